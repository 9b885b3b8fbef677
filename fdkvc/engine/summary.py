"""From the rows of an experiment to means with intervals, and to paired differences.

A row is the `value` of a `metric` in one `dialog`, whose cluster is named in `services`, under a
`policy` and a `budget`; it may also have a group `known`, and a `count`, its weight.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.core.statistics import ClusterMean, cluster_mean, differences
from fdkvc.engine.metrics import Metric, late_metric

CASE = ("known", "policy", "budget", "metric")
"""Columns that distinguish cases, each with its mean; rows may have some of them."""

INTERVAL = ("mean", "ci_low", "ci_high")

FIRST, TIED = "★", "☆"
"""Marks of the best mean, and of several that are not distinguishable from the best."""


def mean_table(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the mean of each case with its 95 % interval over clusters.

    Columns `CASE` and count as far as the rows have them, n (dialogs), services (clusters) and
    `INTERVAL`. The interval of a share ends at 0 and 1, and is NaN for too few clusters.
    """
    columns = [name for name in CASE if name in rows]
    means = []
    for case, group in _cases(rows, columns):
        metric = late_metric(case[-1])  # the last column of `CASE`
        values = group.value.to_numpy()
        figures = _mean(group, values, share=metric.percent)
        means.append((*case, *figures))
    return pd.DataFrame(means, columns=[*columns, *_sample(rows), *INTERVAL])


def paired_differences(rows: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return the differences of every policy from a baseline over the same dialogs.

    Columns `CASE` without the policy, policy, baseline, n, services, count, mean_diff, ci_low,
    ci_high, `significant` (whether the interval excludes 0, None without an interval), `p`,
    `verdict` (see `verdict_on`), and `more_clusters` (how many more would settle an open one).
    """
    case = [name for name in CASE if name in rows and name != "policy"]
    groups = dict(_cases(rows, ["policy", *case]))
    results = []
    for (policy, *key), group in groups.items():
        reference = groups.get((baseline, *key))
        if policy == baseline or reference is None:
            continue
        # Rows of a case are in the same order of dialogs, so differences are paired.
        change = differences(group.value.to_numpy(), reference.value.to_numpy())
        *sample, low, high = _mean(group, change)
        significant = None if np.isnan(low) else bool(low > 0 or high < 0)
        metric = late_metric(key[-1])
        mean = cluster_mean(change, group.services.tolist(), _weights(group))
        verdict = verdict_on(mean, metric)
        more_clusters = mean.clusters_to_settle(metric.margin)
        tests = significant, mean.p, verdict, more_clusters
        results.append((*key, policy, baseline, *sample, low, high, *tests))
    columns = [*case, "policy", "baseline", *_sample(rows)]
    columns += ["mean_diff", "ci_low", "ci_high"]
    columns += ["significant", "p", "verdict", "more_clusters"]
    table = pd.DataFrame(results, columns=columns)
    return table.astype({"more_clusters": "Int64"})


def verdict_on(difference: ClusterMean, metric: Metric) -> str:
    """Return whether a policy is better, worse, equivalent to its baseline, or whether it is open.

    It is equivalent if two one-sided tests place the difference within the metric's margin, at a
    level of 5 %; better or worse if the 95 % interval excludes 0.
    """
    settled = difference.settled(metric.margin)
    if settled not in ("higher", "lower"):
        return settled
    is_better = (settled == "lower") == metric.lower_is_better
    return "better" if is_better else "worse"


def first_places(rows: pd.DataFrame) -> dict[tuple[Any, ...], str]:
    """Return the mark of each case with the best mean of its budget and metric, or tied with it.

    Cases are keyed by their `CASE`. A policy is tied if the interval of its paired difference from
    the best contains 0, or, without an interval, if its figure is the same.
    """
    case = [name for name in CASE if name in rows]
    marks: dict[tuple[Any, ...], str] = {}
    shared = [name for name in case if name != "policy"]
    for _, group in rows.groupby(shared, sort=False):
        means = mean_table(group)
        if len(means) < 2:
            continue
        metric = late_metric(means.metric.iloc[0])
        ordered = -means["mean"] if metric.lower_is_better else means["mean"]
        best = ordered.argmax()
        differences_from_best = paired_differences(group, means.policy.iloc[best])
        paired = differences_from_best.set_index("policy")
        differs = means.policy.map(paired.significant)
        # Without an interval (also the best itself) equal figures count as tied.
        figures = means["mean"].map(metric.figure)
        differs = differs.where(differs.notna(), figures != figures[best])
        # Not `~`, which of the objects in this column makes −1 and −2.
        first = means[differs.eq(False)]
        mark = TIED if len(first) > 1 else FIRST
        for key in first[case].itertuples(index=False, name=None):
            marks[key] = mark
    return marks


def mean_by_cluster(
    values: NDArray[np.float64],
    clusters: Sequence[str],
    weights: NDArray[np.float64] | None = None,
    *,
    share: bool = False,
) -> tuple[int, int, float, float, float]:
    """Return dialogs, clusters, and the weighted mean with its interval.

    The interval of a share ends at 0 and 1.
    """
    low, high = cluster_mean(values, clusters, weights).interval
    if share:
        low, high = np.clip([low, high], 0, 1).tolist()
    mean = float(np.average(values, weights=weights))
    return len(values), len(set(clusters)), mean, low, high


def _cases(rows: pd.DataFrame, columns: list[str]) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Yield the rows with a value of each case, in order of appearance."""
    yield from rows[rows.value.notna()].groupby(columns, sort=False)


def _sample(rows: pd.DataFrame) -> list[str]:
    """Return the columns that say over how many dialogs and clusters a mean is taken."""
    return ["n", "services", "count"] if "count" in rows else ["n", "services"]


def _mean(
    group: pd.DataFrame, values: NDArray[Any], *, share: bool = False
) -> tuple[Any, ...]:
    """Return dialogs, clusters, the weight where there is one, and the mean with its interval."""
    weights = _weights(group)
    services = group.services.tolist()
    dialogs, clusters, *interval = mean_by_cluster(values, services, weights, share=share)
    total = [] if weights is None else [int(weights.sum())]
    return dialogs, clusters, *total, *interval


def _weights(group: pd.DataFrame) -> NDArray[np.float64] | None:
    """Return the weight of each dialog, None where all have the same."""
    return group["count"].to_numpy(np.float64) if "count" in group else None
