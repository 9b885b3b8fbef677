"""How often an interval by clusters covers the true difference, and how often a verdict is wrong.

    python -m benchmarks.research.coverage [--draws N]

Draws clusters of one to six dialogs, whose paired differences in KL are the sum of a cluster's part
and a dialog's part, both normal, or both skewed as an exponential or a lognormal distribution is;
half of the variance is the clusters'. Prints a row for each number of clusters and each shape: the
share of draws whose 95 % interval covers the true difference; those with a verdict of better or
worse where there is no difference; those called equivalent where the difference is the margin. The
last two columns are of bootstrap-t, which resamples clusters 999 times: its coverage, and how often
it calls that difference equivalent. The standard error is at most 0.8 points for 5,000 draws.

A second table has the coverage where one cluster has most of the weight, by its share, also of
those to which `cluster_mean` gives no interval; the means of clusters are drawn.
"""

import math
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks import options
from fdkvc.core import statistics
from fdkvc.core.statistics import Doubles, cluster_mean
from fdkvc.engine.metrics import METRICS

SIZES, MOST_DIALOGS, SPREAD, SEED = (10, 20, 40), 6, 0.04, 1
"""Clusters; dialogs of one; the standard deviation of a dialog's difference, in nats."""

LARGEST, SOME_CLUSTERS = (0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99), (4, 5, 8, 20)
"""Shares of the weight that one cluster has, and how many there are."""

SHAPES = ("normal", "exponential", "lognormal")
RESAMPLES = 999

Numbers = NDArray[np.int64]


def noise(random: np.random.Generator, shape: str, count: int) -> Doubles:
    """Return draws with mean 0 and variance 1 (count,)."""
    match shape:
        case "exponential":
            return random.exponential(size=count) - 1
        case "lognormal":
            mean, spread = math.sqrt(math.e), math.sqrt(math.e * (math.e - 1))
            return (random.lognormal(size=count) - mean) / spread
    return random.normal(size=count)


def drawn(random: np.random.Generator, clusters: int, shape: str) -> tuple[Doubles, Numbers]:
    """Return the differences of dialogs drawn around 0, and the cluster of each (n,)."""
    dialogs = random.integers(1, MOST_DIALOGS, clusters, endpoint=True)
    names = np.repeat(np.arange(clusters), dialogs)
    cluster_parts = noise(random, shape, clusters)[names]
    dialog_parts = noise(random, shape, len(names))
    return (cluster_parts + dialog_parts) * SPREAD / np.sqrt(2), names


def resampled_t(
    random: np.random.Generator, values: Doubles, names: Numbers, error: float
) -> tuple[Doubles, Doubles]:
    """Return the 95 % and the 90 % interval of the mean by bootstrap-t over clusters."""
    sums, counts = np.bincount(names, values), np.bincount(names)
    chosen = random.integers(0, len(sums), (RESAMPLES, len(sums)))
    sums, counts = sums[chosen], counts[chosen]
    total, weight = sums.sum(axis=1, keepdims=True), counts.sum(axis=1, keepdims=True)
    means, without = total / weight, (total - sums) / (weight - counts)
    errors = np.sqrt(((1 - counts / weight) * (without - means) ** 2).sum(axis=1))
    mean = values.mean()
    ratios = (means[:, 0] - mean)[errors > 0] / errors[errors > 0]
    ends = mean - error * np.quantile(ratios, [0.975, 0.025, 0.95, 0.05])
    return ends[:2], ends[2:]


def shares(shape: str, clusters: int, draws: int) -> list[float]:
    """Return the numbers of a row."""
    random, margin, rows = np.random.default_rng(SEED), METRICS["kl"].margin, []
    for _ in range(draws):
        values, names = drawn(random, clusters, shape)
        no_difference = cluster_mean(values, names.tolist())
        at_margin = cluster_mean(values + margin, names.tolist())
        low, high = no_difference.interval
        wide, narrow = resampled_t(random, values, names, no_difference.error)
        rows.append(
            (
                low <= 0 <= high,
                no_difference.settled(margin) in ("higher", "lower"),
                at_margin.settled(margin) == "equivalent",
                wide[0] <= 0 <= wide[1],
                -2 * margin < narrow[0] and narrow[1] < 0,
            )
        )
    return [float(share) for share in np.mean(rows, axis=0)]


def covered_with_a_large_one(largest: float, clusters: int, shape: str, draws: int) -> float:
    """Return the share of draws whose interval covers the mean, where one cluster is so large."""
    random = np.random.default_rng(SEED)
    weights = [largest] + [(1 - largest) / (clusters - 1)] * (clusters - 1)
    covered = 0
    with patch.object(statistics, "MIN_EFFECTIVE", 0.0):
        for _ in range(draws):
            values = noise(random, shape, clusters)
            low, high = cluster_mean(values, range(clusters), weights).interval
            covered += low <= 0 <= high
    return covered / draws


def main() -> None:
    """Print the table."""
    draws = options(__doc__, draws=5000).draws
    heads = ["differences", "clusters", "covered, %", "called different, %"]
    heads += ["called equivalent, %", "covered by bootstrap-t, %", "equivalent by it, %"]
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for shape in SHAPES:
        for clusters in SIZES:
            figures = [f"{100 * share:.1f}" for share in shares(shape, clusters, draws)]
            print(f"| {' | '.join([shape, str(clusters), *figures])} |", flush=True)
    print(f"\n| share of one | effective | clusters | {' | '.join(SHAPES)} |")
    print("|---" * (len(SHAPES) + 3) + "|")
    for largest in LARGEST:
        for clusters in SOME_CLUSTERS:
            effective = 1 / (largest**2 + (1 - largest) ** 2 / (clusters - 1))
            figures = [f"{effective:.2f}", str(clusters)]
            for shape in SHAPES:
                covered = covered_with_a_large_one(largest, clusters, shape, draws)
                figures.append(f"{100 * covered:.1f}")
            print(f"| {100 * largest:.0f} % | {' | '.join(figures)} |", flush=True)


if __name__ == "__main__":
    main()
