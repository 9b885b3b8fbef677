"""How many of the dialogs are of services that the model was trained on."""

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
    "some": "{} use other services as well",
    "none": "{} use only services that it was not trained on",
    NOT_NAMED: "{} name no services",
}


def known_services(answers: pd.DataFrame, trained_on: Set[str]) -> pd.DataFrame:
    """Return how many dialogs and calls are of services that the model was trained on.

    Parameters
    ----------
    answers : DataFrame
        As `fdkvc.experiments.answers.run_answers` gives it.
    trained_on : set of str
        The services that the model was trained on; empty where that is not known.

    Returns
    -------
    DataFrame
        Columns `KNOWN_SERVICES`, no rows without `trained_on`. A row for the dialogs of which all,
        some or none of the services are known, and for those that name none, where there are any;
        `calls_exact` is the share of their calls that the model writes exactly with the full cache,
        NaN without calls.
    """
    dialogs = answers.drop_duplicates("dialog")
    kinds = {
        name: _known(name, services, trained_on)
        for name, services in zip(dialogs.dialog, dialogs.services, strict=True)
    }
    full = answers[(answers.policy == FULL) & (answers.metric == "calls_exact")]
    full = full.drop_duplicates("dialog")  # it is the same at every budget
    own = full.dialog.map(kinds)
    rows = []
    for kind in _IN_WORDS if trained_on else ():
        values, calls = (full[own == kind][name].to_numpy(float) for name in ("value", "count"))
        exact = float(np.average(values, weights=calls)) if calls.sum() else np.nan
        rows.append((kind, list(kinds.values()).count(kind), int(calls.sum()), exact))
    return pd.DataFrame([row for row in rows if row[1]], columns=list(KNOWN_SERVICES))


def _known(dialog: str, services: str, trained_on: Set[str]) -> str:
    if services == dialog:  # the transcript has no topics: see `Transcript.services`
        return NOT_NAMED
    named = set(services.split(" + "))
    return "all" if named <= trained_on else "some" if named & trained_on else "none"


def known_sentence(known: pd.DataFrame) -> str:
    """Say how many dialogs and calls are of services that the model was trained on.

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
        return "These dialogs name no services, so which of them the model knows is not known."
    parts = []
    for kind, dialogs, calls, exact in known.itertuples(index=False):
        of_full = f"; full cache: {decimal(100 * exact, 1)} % exact" if calls else ""
        said = f"{count(dialogs, 'dialog')} ({count(calls, 'call')}{of_full})"
        parts.append(_IN_WORDS[kind].format(said))
    return f"{listed(parts)}."
