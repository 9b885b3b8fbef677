"""Proxies: how well metrics of a replayed cache predict the damage to a model's answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.attention import Bools
from fdkvc.experiments.answers import FULL, PROXIES, AnswerScores
from fdkvc.experiments.statistics import cluster_numbers, jackknife_interval
from fdkvc.experiments.summary import first_places, mean_table, paired_differences
from fdkvc.run.metrics import METRICS

DAMAGES = (
    *("values_right", "nats", "nats_arguments", "nats_old"),
    *("kl", "calls_exact", "arguments_right"),
)
"""Metrics whose damage is predicted: 0 under the full cache, higher is worse."""

PROXIES_TABLE = (
    *("proxy", "damage", "over", "n", "services", "rho", "ci_low", "ci_high"),
    *("policies", "policies_low", "policies_high"),
)

Numbers = NDArray[np.float64]


def rank_correlation(x: Numbers, y: Numbers) -> float:
    """Return the rank correlation of pairs of any shape, those with NaN left out.

    NaN for fewer than three pairs, or where x or y is constant.

    References
    ----------
    C. Spearman, The Proof and Measurement of Association between Two Things, 1904.

    Examples
    --------
    >>> x, y = np.array([1.0, 2.0, 3.0, np.nan]), np.array([1.0, 4.0, 9.0, 0.0])
    >>> rank_correlation(x, y), rank_correlation(x[:2], y[:2])
    (1.0, nan)
    """
    from scipy.stats import rankdata

    finite = np.isfinite(x) & np.isfinite(y)
    one, other = (rankdata(values[finite]) for values in (x, y))
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return np.nan
    return round(float(np.corrcoef(one, other)[0, 1]), 12)  # so that 1 is exactly 1


def over_all(x: Numbers, y: Numbers, some: Bools) -> Numbers:
    """Correlate over dialogs, policies and budgets pooled."""
    return np.array([rank_correlation(x[dialogs], y[dialogs]) for dialogs in some])


def over_cases(x: Numbers, y: Numbers, some: Bools) -> Numbers:
    """Correlate the means over dialogs, over policies and budgets."""
    means = zip(_means(x, some), _means(y, some), strict=True)
    return np.array([rank_correlation(*pair) for pair in means])


def within_dialogs(x: Numbers, y: Numbers, some: Bools) -> Numbers:
    """Correlate over the policies and budgets of each dialog; average over dialogs."""
    of_dialogs = np.array([rank_correlation(*pair) for pair in zip(x, y, strict=True)])
    return _means(of_dialogs[:, None], some)[:, 0]


OVER: Mapping[str, Callable[[Numbers, Numbers, Bools], Numbers]] = {
    "all": over_all,
    "policies and budgets": over_cases,
    "within dialogs": within_dialogs,
}
"""Ways to correlate: functions of proxy and damage (D, M) and of sets of dialogs (r, D) to (r,)."""


def _over_policies(x: Numbers, y: Numbers, policies: Sequence[str]) -> tuple[float, float]:
    """Return the interval of `over_cases` with policies, each with its budgets, as clusters."""
    inside, every = _inside(policies), np.ones((1, len(x)), bool)
    return _interval(over_all(_means(x, every).T, _means(y, every).T, _leaving_out(inside)), inside)


def _inside(clusters: Sequence[str]) -> Bools:
    """Return which of n items are in each of k clusters (k, n)."""
    return np.eye(len(set(clusters)), dtype=bool)[:, cluster_numbers(clusters)]


def _leaving_out(inside: Bools) -> Bools:
    """Return which items are in the whole set, and in the set without each cluster (1 + k, n)."""
    return np.concatenate([np.ones((1, inside.shape[1]), bool), ~inside])


def _interval(rho: Numbers, inside: Bools) -> tuple[float, float]:
    """Return the jackknife interval of a correlation; `rho` (1 + k,) is of `_leaving_out`."""
    low, high = jackknife_interval(rho[0], rho[1:], inside.mean(axis=1))
    return float(np.clip(low, -1, 1)), float(np.clip(high, -1, 1))


def _means(x: Numbers, some: Bools) -> Numbers:
    """Return means over sets of dialogs (r, M) of the finite values, NaN without any."""
    finite, weights = np.isfinite(x), some.astype(float)
    counts = weights @ finite
    return np.where(counts > 0, weights @ np.where(finite, x, 0) / np.maximum(counts, 1), np.nan)


def proxies_table(answers: pd.DataFrame, proxies: pd.DataFrame) -> pd.DataFrame:
    """Return the rank correlation of each proxy and damage, with 95 % intervals.

    Columns `PROXIES_TABLE`, a row per proxy, damage and way to correlate (`OVER`), where it is
    defined; n is the number of dialogs with both. Intervals are over clusters; over
    policies and budgets a second one, with policies as clusters, shows how far the correlation
    depends on the choice of policies.
    """
    predictors = {name: _by_case(proxies, name) for name in PROXIES}
    damages = {name: _by_case(answers, name) for name in DAMAGES}
    services_of = answers.drop_duplicates("dialog").set_index("dialog").services
    rows = []
    for proxy in PROXIES:
        for damage in DAMAGES:
            x, y = _aligned(predictors[proxy], damages[damage], METRICS[damage].lower_is_better)
            services = services_of.loc[y.index].tolist()
            if not x.size:
                continue
            inside = _inside(services)
            policies = x.columns.get_level_values("policy").tolist()
            numbers = x.to_numpy(float), y.to_numpy(float)
            over_policies = _over_policies(*numbers, policies)
            for name, statistic in OVER.items():
                rho = statistic(*numbers, _leaving_out(inside))
                if np.isfinite(rho[0]):
                    other = over_policies if name == "policies and budgets" else (np.nan, np.nan)
                    row = (proxy, damage, name, len(x), len(inside), rho[0])
                    rows.append((*row, *_interval(rho, inside), len(set(policies)), *other))
    return pd.DataFrame(rows, columns=list(PROXIES_TABLE))


@dataclass(frozen=True, eq=False)
class AnswersTables:
    """The tables of a run of answers."""

    baseline: str
    """The policy or control that the others are compared with."""
    summary: pd.DataFrame
    paired: pd.DataFrame
    proxies: pd.DataFrame
    """As `mean_table`, `paired_differences` and `proxies_table` return them."""
    places: Mapping[tuple[Any, ...], str] = field(default_factory=dict, kw_only=True)
    """The `first_places`, the full cache left out; none where each dialog's numbers are unknown."""


def answers_tables(measured: AnswerScores, baseline: str) -> AnswersTables:
    """Return all tables of answers."""
    return AnswersTables(
        baseline,
        mean_table(measured.answers),
        paired_differences(measured.answers, baseline),
        proxies_table(measured.answers, measured.proxies),
        places=first_places(measured.answers[measured.answers.policy != FULL]),
    )


def _by_case(measured: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return a metric with a row per dialog and a column per policy and budget."""
    rows = measured[measured.metric == metric]
    return rows.pivot(index="dialog", columns=["policy", "budget"], values="value")


def _aligned(
    x: pd.DataFrame, y: pd.DataFrame, lower_is_better: bool
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return a proxy and a damage for the dialogs, policies and budgets that both have."""
    dialogs = [dialog for dialog in x.index if dialog in y.index]
    shared: list[Any] = [case for case in x.columns if case in y.columns and case[0] != FULL]
    if not (dialogs and shared):
        return pd.DataFrame(), pd.DataFrame()
    full = y[FULL].loc[dialogs, [budget for _, budget in shared]].to_numpy(float)
    lost = y.loc[dialogs, shared] - full
    return x.loc[dialogs, shared], lost if lower_is_better else -lost
