"""Proxies: how well metrics of a replayed cache predict the damage to a model's answers."""

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
from fdkvc.experiments.known_services import by_services, known_services
from fdkvc.experiments.statistics import cluster_numbers, jackknife_interval

DAMAGES = (
    *("values_right", "nats", "nats_arguments", "nats_old"),
    *("kl", "calls_exact", "arguments_right"),
)
"""Measures whose damage is predicted: 0 under the full cache, higher is worse."""

PROXIES_TABLE = (
    *("proxy", "damage", "over", "n", "services", "rho", "ci_low", "ci_high"),
    *("policies", "policies_low", "policies_high"),
)

Numbers = NDArray[np.float64]


def rank_correlation(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Return the rank correlation of pairs (n,), each repeated as often as its weight (r, n) says.

    Pairs with a value that is not finite are left out. Of the r results, those for fewer than three
    pairs, or where x or y is constant, are NaN.

    References
    ----------
    C. Spearman, The Proof and Measurement of Association between Two Things, 1904.

    Examples
    --------
    >>> x, y = np.array([1.0, 2.0, 3.0, np.nan]), np.array([1.0, 4.0, 9.0, 0.0])
    >>> rank_correlation(x, y, np.array([[1.0, 1, 1, 1], [1, 1, 0, 5]])).tolist()
    [1.0, nan]
    """
    finite = np.isfinite(x) & np.isfinite(y)
    weights = weights[:, finite]

    def ranks(each: Numbers) -> Numbers:
        values, tied = np.unique(each[finite], return_inverse=True)
        count = np.stack([np.bincount(tied, row, len(values)) for row in weights])
        return np.asarray((np.cumsum(count, axis=1) - count / 2)[:, tied])  # ties share the middle

    return _correlation(ranks(x), ranks(y), weights)


def row_correlations(x: Numbers, y: Numbers) -> Numbers:
    """Return the rank correlation of the pairs in each row: (r, M) to (r,)."""
    finite = np.isfinite(x) & np.isfinite(y)

    def ranks(each: Numbers) -> Numbers:
        each = np.where(finite, each, 0)
        above = (np.sign(each[:, :, None] - each[:, None, :]) + 1) / 2
        return np.asarray(above.sum(axis=2, where=finite[:, None, :]))

    return _correlation(ranks(x), ranks(y), finite.astype(float))


def _correlation(one: Numbers, other: Numbers, weights: Numbers) -> Numbers:
    """Return the weighted correlation of each row's ranks, whose mean is half of the weight."""
    counts = weights.sum(axis=1, keepdims=True)
    one, other = one - counts / 2, other - counts / 2
    squares = [(weights * each**2).sum(axis=1) for each in (one, other)]
    defined = (counts[:, 0] >= 3) & (squares[0] > 0) & (squares[1] > 0)
    length = np.sqrt(np.where(defined, squares[0] * squares[1], np.nan))
    found: Numbers = (weights * one * other).sum(axis=1) / length
    return np.round(found, 12)  # so that 1 is exactly 1


def over_all(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Correlate over dialogs, policies and budgets pooled."""
    return rank_correlation(x.ravel(), y.ravel(), np.repeat(weights, x.shape[1], axis=1))


def over_cases(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Correlate the means over dialogs, over policies and budgets."""
    return row_correlations(_means(x, weights), _means(y, weights))


def within_dialogs(x: Numbers, y: Numbers, weights: Numbers) -> Numbers:
    """Correlate over the policies and budgets of each dialog; average over dialogs."""
    return _means(row_correlations(x, y)[:, None], weights)[:, 0]


OVER: Mapping[str, Callable[[Numbers, Numbers, Numbers], Numbers]] = {
    "all": over_all,
    "policies and budgets": over_cases,
    "within dialogs": within_dialogs,
}
"""Ways to correlate: functions of proxy and damage (D, M) and of dialog weights (r, D) to (r,)."""


def _over_policies(x: Numbers, y: Numbers, policies: Sequence[str]) -> tuple[float, float]:
    """Return the interval of `over_cases` with policies, each with its budgets, as clusters."""
    one, inside = np.ones((1, len(x))), _inside(policies)
    weights = np.concatenate([np.ones((1, len(policies))), 1 - inside])
    rho, *without = rank_correlation(_means(x, one)[0], _means(y, one)[0], weights)
    return _interval(rho, without, inside)


def _inside(clusters: Sequence[str]) -> Numbers:
    """Return the membership of n items in k clusters, 0 or 1 (k, n)."""
    return np.eye(len(set(clusters)))[:, cluster_numbers(clusters)]


def _interval(rho: float, without: Sequence[float], inside: Numbers) -> tuple[float, float]:
    """Return the jackknife interval of a correlation."""
    low, high = jackknife_interval(rho, np.array(without), inside.mean(axis=1))
    return float(np.clip(low, -1, 1)), float(np.clip(high, -1, 1))


def _means(x: Numbers, weights: Numbers) -> Numbers:
    """Return weighted means over dialogs (r, M) of the finite values, NaN without any."""
    finite = np.isfinite(x)
    counts = weights @ finite
    return np.where(counts > 0, weights @ np.where(finite, x, 0) / np.maximum(counts, 1), np.nan)


def proxies_table(answers: pd.DataFrame, proxies: pd.DataFrame) -> pd.DataFrame:
    """Return the rank correlation of each proxy and damage, with 95 % intervals.

    Columns `PROXIES_TABLE`, a row per proxy, damage and way to correlate (`OVER`), where it is
    defined; n is the number of dialogs with both. Intervals are over service clusters; over
    policies and budgets a second one, with policies as clusters, shows how far the correlation
    depends on the choice of policies.
    """
    predictors = {name: _by_case(proxies, name) for name in PROXIES}
    damages = {name: _by_case(answers, name) for name in DAMAGES}
    services_of = answers.drop_duplicates("dialog").set_index("dialog").services
    rows = []
    for proxy in PROXIES:
        for damage in DAMAGES:
            x, y = _aligned(predictors[proxy], damages[damage], MEASURES[damage].lower_is_better)
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
                    row = (proxy, damage, name, len(x), len(inside), rho, *interval)
                    rows.append((*row, len(set(policies)), *other))
    return pd.DataFrame(rows, columns=list(PROXIES_TABLE))


@dataclass(frozen=True, eq=False)
class AnswersTables:
    """The tables of a run of answers."""

    baseline: str
    """The policy or control that the others are compared with."""
    summary: pd.DataFrame
    paired: pd.DataFrame
    proxies: pd.DataFrame
    known: pd.DataFrame
    by_services: pd.DataFrame
    """As `answers_summary`, `answers_paired`, `proxies_table`, `known_services` and `by_services`
    return them."""


def answers_tables(
    measured: AnswerScores, baseline: str, trained_on: Set[str] = frozenset()
) -> AnswersTables:
    """Return all tables of answers; `trained_on` has the model's services, none if unknown."""
    return AnswersTables(
        baseline,
        answers_summary(measured.answers),
        answers_paired(measured.answers, baseline),
        proxies_table(measured.answers, measured.proxies),
        known_services(measured.answers, trained_on),
        by_services(measured.answers, trained_on),
    )


def _by_case(measured: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric with a row per dialog and a column per policy and budget."""
    found = measured[measured.metric == metric]
    return found.pivot(index="dialog", columns=["policy", "budget"], values="value")


def _aligned(
    x: pd.DataFrame, y: pd.DataFrame, lower_is_better: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a proxy and a damage for the dialogs, policies and budgets that both have."""
    dialogs = [dialog for dialog in x.index if dialog in y.index]
    shared: list[Any] = [each for each in x.columns if each in y.columns and each[0] != FULL]
    if not (dialogs and shared):
        return pd.DataFrame(), pd.DataFrame()
    full = y[FULL].loc[dialogs, [budget for _, budget in shared]].to_numpy(float)
    lost = y.loc[dialogs, shared] - full
    return x.loc[dialogs, shared], lost if lower_is_better else -lost
