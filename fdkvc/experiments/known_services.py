"""How many dialogs use services that the model was trained on."""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import pandas as pd

from fdkvc.experiments.answers import FULL
from fdkvc.words import count, decimal, listed

KNOWN_SERVICES = ("known", "dialogs", "calls", "calls_exact")

NOT_NAMED = "not named"
_IN_WORDS = {
    "all": "{} use only services that the model was trained on",
    "some": "{} also use other services",
    "none": "{} use only services that it was not trained on",
    NOT_NAMED: "{} name no services",
}


def known_services(answers: pd.DataFrame, trained_on: Set[str]) -> pd.DataFrame:
    """Count dialogs and calls by whether the model was trained on their services.

    Parameters
    ----------
    answers : DataFrame
        As `fdkvc.experiments.answers.run_answers` returns it.
    trained_on : set of str
        The services that the model was trained on; empty if unknown.

    Returns
    -------
    DataFrame
        Columns `KNOWN_SERVICES`, no rows without `trained_on`. `known` is all, some or none of a
        dialog's services, or `NOT_NAMED`; `calls_exact` is the share of their calls that the model
        writes exactly with the full cache, NaN without calls.
    """
    dialogs = answers.drop_duplicates("dialog")
    groups = {
        name: _known(name, services, trained_on)
        for name, services in zip(dialogs.dialog, dialogs.services, strict=True)
    }
    full = answers[(answers.policy == FULL) & (answers.metric == "calls_exact")]
    full = full.drop_duplicates("dialog")  # the same at every budget
    own = full.dialog.map(groups)
    rows = []
    for group in _IN_WORDS if trained_on else ():
        values, calls = (full[own == group][name].to_numpy(float) for name in ("value", "count"))
        exact = float(np.average(values, weights=calls)) if calls.sum() else np.nan
        rows.append((group, list(groups.values()).count(group), int(calls.sum()), exact))
    return pd.DataFrame([row for row in rows if row[1]], columns=list(KNOWN_SERVICES))


def _known(dialog: str, services: str, trained_on: Set[str]) -> str:
    if services == dialog:  # the transcript has no topics: see `Transcript.services`
        return NOT_NAMED
    named = set(services.split(" + "))
    return "all" if named <= trained_on else "some" if named & trained_on else "none"


def known_sentence(known: pd.DataFrame) -> str:
    """Return the counts of `known_services` as a sentence.

    Examples
    --------
    >>> rows = [("all", 97, 251, 0.709), ("none", 1, 2, 0.5), (NOT_NAMED, 1, 0, np.nan)]
    >>> known_sentence(pd.DataFrame(rows, columns=list(KNOWN_SERVICES)))  # doctest: +ELLIPSIS
    '97 dialogs (251 calls; full cache: 70.9 % exact) use only services that the model was ...'
    >>> known_sentence(pd.DataFrame(columns=list(KNOWN_SERVICES)))
    ''
    """
    if known.empty:
        return ""
    if known.known.tolist() == [NOT_NAMED]:
        return "These dialogs name no services, so it is unknown which the model was trained on."
    parts = []
    for group, dialogs, calls, exact in known.itertuples(index=False):
        of_full = f"; full cache: {decimal(100 * exact, 1)} % exact" if calls else ""
        counts = f"{count(dialogs, 'dialog')} ({count(calls, 'call')}{of_full})"
        parts.append(_IN_WORDS[group].format(counts))
    return f"{listed(parts)}."
