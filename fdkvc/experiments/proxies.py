"""Proxies: how well what a replay says of a cache predicts what a model's answers lose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.experiments.answers import (
    FULL,
    MEASURES,
    PROXIES,
    AnswerScores,
    answers_paired,
    answers_summary,
)
from fdkvc.experiments.known_services import known_services
from fdkvc.experiments.statistics import cluster_numbers, jackknife_interval

DAMAGES = ("nats", "nats_arguments", "nats_old", "kl", "calls_exact", "arguments_right")
"""Measures whose loss is to be predicted: 0 under the full cache, and more where it is worse."""

PROXIES_TABLE = (
    *("proxy", "damage", "over", "n", "services", "rho", "ci_low", "ci_high"),
    *("policies", "policies_low", "policies_high"),
)

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

    def ranks(each: Numbers) -> Numbers:
        values, tied = np.unique(each[known], return_inverse=True)
        count = np.stack([np.bincount(tied, row, len(values)) for row in weights])
        return np.asarray((np.cumsum(count, axis=1) - count / 2)[:, tied])  # amid those that tie

    return _correlation(ranks(x), ranks(y), weights)


def row_correlations(x: Numbers, y: Numbers) -> Numbers:
    """Return the rank correlation of each row's few pairs (r, M), as `rank_correlation` (r,)."""
    known = np.isfinite(x) & np.isfinite(y)

    def ranks(each: Numbers) -> Numbers:
        each = np.where(known, each, 0)
        above = (np.sign(each[:, :, None] - each[:, None, :]) + 1) / 2
        return np.asarray(above.sum(axis=2, where=known[:, None, :]))

    return _correlation(ranks(x), ranks(y), known.astype(float))


def _correlation(one: Numbers, other: Numbers, weights: Numbers) -> Numbers:
    """Return the weighted correlation of each row's ranks, whose mean is half of the weight."""
    counts = weights.sum(axis=1, keepdims=True)
    one, other = one - counts / 2, other - counts / 2
    squares = [(weights * each**2).sum(axis=1) for each in (one, other)]
    told = (counts[:, 0] >= 3) & (squares[0] > 0) & (squares[1] > 0)
    length = np.sqrt(np.where(told, squares[0] * squares[1], np.nan))
    found: Numbers = (weights * one * other).sum(axis=1) / length
    return np.round(found, 12)  # 1 is 1, whatever its last bit


def over_all(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the correlations over dialogs, policies and budgets alike."""
    return rank_correlation(x.ravel(), y.ravel(), np.repeat(weights, x.shape[1], axis=1))


def over_cases(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return those of the means over dialogs, over policies and budgets."""
    return row_correlations(_means(x, weights), _means(y, weights))


def within_dialogs(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the means over dialogs of those over the policies and budgets of each."""
    return _means(row_correlations(x, y)[:, None], weights)[:, 0]


OVER: Mapping[str, Callable[[Numbers, Numbers, Numbers], Numbers]] = {
    "all": over_all,
    "policies and budgets": over_cases,
    "within dialogs": within_dialogs,
}
"""What a correlation is over: functions of proxy and damage (D, M), and of how often each dialog
counts (r, D), to (r,)."""


def _over_policies(x: Numbers, y: Numbers, policies: Sequence[str]) -> tuple[float, float]:
    """Return the interval of `over_cases` over policies, each with its budgets."""
    one, inside = np.ones((1, len(x))), _inside(policies)
    weights = np.concatenate([np.ones((1, len(policies))), 1 - inside])
    rho, *without = rank_correlation(_means(x, one)[0], _means(y, one)[0], weights)
    return _interval(rho, without, inside)


def _inside(clusters: Sequence[str]) -> Numbers:
    """Return 1 where one of n is in one of k clusters, 0 elsewhere (k, n)."""
    return np.eye(len(set(clusters)))[:, cluster_numbers(clusters)]


def _interval(rho: float, without: Sequence[float], inside: Numbers) -> tuple[float, float]:
    """Return the interval of a correlation, from what it is without each cluster."""
    low, high = jackknife_interval(rho, np.array(without), inside.mean(axis=1))
    return float(np.clip(low, -1, 1)), float(np.clip(high, -1, 1))


def _means(x: Numbers, weights: Numbers) -> Numbers:
    """Weighted means over dialogs (r, M) of what is finite, NaN where nothing is."""
    known = np.isfinite(x)
    counts = weights @ known
    return np.where(counts > 0, weights @ np.where(known, x, 0) / np.maximum(counts, 1), np.nan)


def proxies_table(answers: pd.DataFrame, proxies: pd.DataFrame) -> pd.DataFrame:
    """Return how each proxy goes with each damage, with 95 % intervals over service clusters.

    Parameters
    ----------
    answers, proxies : DataFrame
        As `fdkvc.experiments.answers.run_answers` gives them.

    Returns
    -------
    DataFrame
        Columns `PROXIES_TABLE`. A row for each proxy, damage and what the rank correlation is over
        (`OVER`), but where it cannot be told; n are the dialogs of which both say something. Over
        policies and budgets there is a second interval, over policies, each with all of its
        budgets: how far the correlation depends on which policies are compared.
    """
    known = {name: _by_case(proxies, name) for name in PROXIES}
    asked = {name: _by_case(answers, name) for name in DAMAGES}
    services_of = answers.drop_duplicates("dialog").set_index("dialog").services
    rows = []
    for proxy in PROXIES:
        for damage in DAMAGES:
            x, y = _side_by_side(known[proxy], asked[damage], MEASURES[damage].lower_is_better)
            services = services_of.loc[y.index].tolist()
            if not x.size:
                continue
            inside = _inside(services)
            weights = np.concatenate([np.ones((1, len(x))), 1 - inside])
            policies = x.columns.get_level_values("policy").tolist()
            over_policies = _over_policies(x.to_numpy(float), y.to_numpy(float), policies)
            for name, statistic in OVER.items():
                rho, *without = statistic(x.to_numpy(float), y.to_numpy(float), weights)
                if np.isfinite(rho):
                    interval = _interval(rho, without, inside)
                    other = over_policies if name == "policies and budgets" else (np.nan, np.nan)
                    about = (proxy, damage, name, len(x), len(inside), rho, *interval)
                    rows.append((*about, len(set(policies)), *other))
    return pd.DataFrame(rows, columns=list(PROXIES_TABLE))


@dataclass(frozen=True, eq=False)
class AnswersTables:
    """What answers came to, told in tables.

    Attributes
    ----------
    baseline : str
        The policy or control that the paired differences are from.
    summary, paired, proxies, known : DataFrame
        As `answers_summary`, `answers_paired`, `proxies_table` and `known_services` return them.
    """

    baseline: str
    summary: pd.DataFrame
    paired: pd.DataFrame
    proxies: pd.DataFrame
    known: pd.DataFrame


def answers_tables(
    measured: AnswerScores, baseline: str, trained_on: Set[str] = frozenset()
) -> AnswersTables:
    """Return all tables of answers.

    Parameters
    ----------
    measured : AnswerScores
    baseline : str
        The name of a policy or control that ran.
    trained_on : set of str
        The services that the model was trained on; empty where that is not known.
    """
    return AnswersTables(
        baseline,
        answers_summary(measured.answers),
        answers_paired(measured.answers, baseline),
        proxies_table(measured.answers, measured.proxies),
        known_services(measured.answers, trained_on),
    )


def _by_case(measured: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric by dialog, and by policy and budget in columns."""
    found = measured[measured.metric == metric]
    return found.pivot(index="dialog", columns=["policy", "budget"], values="value")


def _side_by_side(
    x: pd.DataFrame, y: pd.DataFrame, lower_is_better: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a proxy and a damage for the dialogs, policies and budgets that both know."""
    dialogs = [dialog for dialog in x.index if dialog in y.index]
    shared: list[Any] = [each for each in x.columns if each in y.columns and each[0] != FULL]
    if not (dialogs and shared):
        return pd.DataFrame(), pd.DataFrame()
    full = y[FULL].loc[dialogs, [budget for _, budget in shared]].to_numpy(float)
    lost = y.loc[dialogs, shared] - full
    return x.loc[dialogs, shared], lost if lower_is_better else -lost
