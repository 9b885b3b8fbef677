"""Proxies: how well what a replay says of a cache foretells what a model's answers lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.measured.answers import FULL, MEASURES, PROXIES
from fdkvc.measured.statistics import drawn_kinds, percentiles

DAMAGES = ("nats", "nats_arguments", "nats_old", "kl", "calls_exact", "arguments_right")
"""Measures whose loss is to be foretold: 0 under the full cache, and more where it is worse."""

RESAMPLES = 499
"""How often dialogs are drawn anew for an interval."""

PROXIES_TABLE = ("proxy", "damage", "over", "n", "services", "rho", "ci_low", "ci_high")

Numbers = NDArray[np.float64]


def rank_correlation(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the rank correlation of pairs, of which each counts as often as its weight says.

    Parameters
    ----------
    x, y : array (n,)
        A pair of which one is not finite is left out.
    weights : array (r, n)
        Whole numbers, 0 or more; for each result.

    Returns
    -------
    array (r,)
        NaN where fewer than three pairs count, or either is the same in all that do.

    References
    ----------
    C. Spearman, The Proof and Measurement of Association between Two Things, 1904.

    Examples
    --------
    >>> x, y = np.array([1.0, 2.0, 3.0, np.nan]), np.array([1.0, 4.0, 9.0, 0.0])
    >>> rank_correlation(x, y, np.array([[1.0, 1, 1, 1], [1, 1, 0, 5]])).tolist()
    [1.0, nan]
    """
    known = np.isfinite(x) & np.isfinite(y)
    weights = weights[:, known]
    counts = weights.sum(axis=1)
    deviations = []
    for each in (x, y):
        values, tied = np.unique(each[known], return_inverse=True)
        count = np.stack([np.bincount(tied, row, len(values)) for row in weights])
        middle = np.cumsum(count, axis=1) - count / 2  # the mean rank of those that tie
        deviations.append(middle[:, tied] - counts[:, None] / 2)
    one, other = deviations
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Numbers = (weights * one * other).sum(axis=1) / np.sqrt(
            (weights * one**2).sum(axis=1) * (weights * other**2).sum(axis=1)
        )
    return np.where(counts >= 3, np.round(found, 12), np.nan)  # 1 is 1, whatever its last bit


def over_all(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the correlations over dialogs, policies and budgets alike."""
    return rank_correlation(x.ravel(), y.ravel(), np.repeat(weights, x.shape[1], axis=1))


def over_cases(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return those of the means over dialogs, over policies and budgets."""
    means = zip(_means(x, weights), _means(y, weights), strict=True)
    once = np.ones((1, x.shape[1]))
    return np.array([rank_correlation(*pair, once)[0] for pair in means])


def within_dialogs(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the means over dialogs of those over the policies and budgets of each."""
    once = np.ones((1, x.shape[1]))
    each = np.stack([rank_correlation(*pair, once) for pair in zip(x, y, strict=True)])
    return _means(each, weights)[:, 0]


OVER: Mapping[str, Callable[[Numbers, Numbers, Numbers], Numbers]] = {
    "all": over_all,
    "policies and budgets": over_cases,
    "within dialogs": within_dialogs,
}
"""What a correlation is over: functions of proxy and damage (D, M), and of how often each dialog
counts (r, D), to (r,)."""


def _means(x: Numbers, weights: Numbers) -> Numbers:
    """Weighted means over dialogs (r, M) of what is finite, NaN where nothing is."""
    known = np.isfinite(x)
    counts = weights @ known
    return np.where(counts > 0, weights @ np.where(known, x, 0) / np.maximum(counts, 1), np.nan)


def proxies_table(answers: pd.DataFrame, proxies: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return how each proxy goes with each damage, with 95 % intervals over sets of services.

    Parameters
    ----------
    answers, proxies : DataFrame
        As `fdkvc.measured.answers.run_answers` gives them.
    seed : int
        Of the bootstrap, which draws dialogs of the same services together.

    Returns
    -------
    DataFrame
        Columns `PROXIES_TABLE`. A row for each proxy, damage and what the rank correlation is over
        (`OVER`), but where it cannot be told; n are the dialogs of which both say something.
    """
    rows = []
    for proxy in PROXIES:
        for damage in DAMAGES:
            x, y, services = _side_by_side(answers, proxies, proxy, damage)
            if not x.size:
                continue
            kind, drawn = drawn_kinds(services, seed, RESAMPLES)
            weights = np.concatenate([np.ones((1, len(x))), drawn[:, kind]])
            for name, statistic in OVER.items():
                rho, *resampled = statistic(x, y, weights)
                if np.isfinite(rho):
                    ends = percentiles(np.array(resampled), 0.95)
                    interval = ends if drawn.shape[1] > 1 else (np.nan, np.nan)
                    rows.append((proxy, damage, name, len(x), drawn.shape[1], rho, *interval))
    return pd.DataFrame(rows, columns=list(PROXIES_TABLE))


def _side_by_side(
    answers: pd.DataFrame, proxies: pd.DataFrame, proxy: str, damage: str
) -> tuple[Numbers, Numbers, list[str]]:
    """Return proxy and damage by dialog, policy and budget (D, M), and each dialog's services."""
    case = ["policy", "budget"]
    found = answers[answers.metric == damage]
    x = proxies[proxies.metric == proxy].pivot(index="dialog", columns=case, values="value")
    y = found.pivot(index="dialog", columns=case, values="value")
    dialogs = [dialog for dialog in x.index if dialog in y.index]
    shared: list[Any] = [each for each in x.columns if each in y.columns and each[0] != FULL]
    if not (dialogs and shared):
        return np.empty((0, 0)), np.empty((0, 0)), []
    full = y[FULL].loc[dialogs, [budget for _, budget in shared]].to_numpy(float)
    lost = y.loc[dialogs, shared].to_numpy(float) - full
    services = found.drop_duplicates("dialog").set_index("dialog").services
    return (
        x.loc[dialogs, shared].to_numpy(float),
        lost if MEASURES[damage].lower_is_better else -lost,
        services.loc[dialogs].tolist(),
    )
