"""Answers by whether the model was trained on the services of a dialog."""

from collections.abc import Set

import numpy as np
import pandas as pd

from fdkvc.experiments.answers import FULL
from fdkvc.experiments.summary import mean_table
from fdkvc.run.metrics import METRICS
from fdkvc.words import count

KNOWN_SERVICES = ("known", "dialogs", "services", "calls", "calls_exact", "values", "values_right")

NOT_NAMED = "not named"
GROUPS = {
    "all": "all services known",
    "some": "some services known",
    "none": "no service known",
    NOT_NAMED: "services not named",
}
"""Labels of the groups of dialogs."""


def known_services(answers: pd.DataFrame, trained_on: Set[str]) -> pd.DataFrame:
    """Count dialogs, calls and values by whether the model was trained on their services.

    Columns `KNOWN_SERVICES`, no rows if `trained_on` is empty. `known` is all, some or none of a
    dialog's services, or `NOT_NAMED`; `services` counts their clusters. `calls_exact` and
    `values_right` are the shares that the model writes exactly, and right, with the full cache, NaN
    without calls or values.
    """
    full = answers[answers.policy == FULL]
    full = full[full.budget == full.budget.min()]  # the same at every budget
    rows = []
    for group, own in _groups(full, trained_on):
        counts = []
        for metric in ("calls_exact", "values_right"):
            shares = own[own.metric == metric]
            total = int(shares["count"].sum())
            mean = np.average(shares.value, weights=shares["count"]) if total else np.nan
            counts += [total, float(mean)]
        rows.append((group, own.dialog.nunique(), own.services.nunique(), *counts))
    return pd.DataFrame(rows, columns=list(KNOWN_SERVICES))


def by_services(answers: pd.DataFrame, trained_on: Set[str]) -> pd.DataFrame:
    """Return the means of values and calls for each group of `known_services` (`mean_table`).

    They are of the values that are right, of all and of those right with the full cache, and of
    the calls that are exact.
    """
    metrics = ("values_right", "values_right_of_full", "calls_exact")
    chosen = answers[answers.metric.isin(metrics)]
    groups = [own.assign(known=group) for group, own in _groups(chosen, trained_on)]
    return mean_table(pd.concat([chosen[:0].assign(known=""), *groups]))


def _groups(answers: pd.DataFrame, trained_on: Set[str]) -> list[tuple[str, pd.DataFrame]]:
    """Return the rows of each group that has dialogs; none if the services are unknown."""
    if not trained_on:
        return []
    known = [
        _known(name, services, trained_on)
        for name, services in zip(answers.dialog, answers.services, strict=True)
    ]
    groups = np.array(known)
    return [(group, answers[groups == group]) for group in GROUPS if group in known]


def _known(dialog: str, services: str, trained_on: Set[str]) -> str:
    if services == dialog:  # the transcript has no topics: see `Transcript.services`
        return NOT_NAMED
    named = set(services.split(" + "))
    return "all" if named <= trained_on else "some" if named & trained_on else "none"


def known_sentence(known: pd.DataFrame) -> str:
    """Return the counts of `known_services` as a sentence.

    Examples
    --------
    >>> row = ("all", 97, 41, 251, 0.709, 640, 0.939)
    >>> known_sentence(pd.DataFrame([row], columns=list(KNOWN_SERVICES)))  # doctest: +ELLIPSIS
    'By what the model was trained on, with the full cache: all services known: 97 dialogs in ...'
    """
    values, call = METRICS["values_right"], METRICS["calls_exact"]
    parts = [
        f"{GROUPS[group]}: {count(dialogs, 'dialog')} in {count(clusters, 'cluster')}, "
        f"{values.with_unit(right)} of {count(total, 'value')} right, {call.with_unit(exact)} of "
        f"{count(calls, 'call')} exact"
        for group, dialogs, clusters, calls, exact, total, right in known.itertuples(index=False)
    ]
    start = "By what the model was trained on, with the full cache"
    return f"{start}: {'; '.join(parts)}." if parts else ""
