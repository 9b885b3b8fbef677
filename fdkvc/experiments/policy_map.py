"""The map of policies: cost and quality on synthetic dialogs, real ones and answers.

``benchmarks/research/policy_map.py`` measures ``policy_map.csv``, which takes too long for a page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.experiments.statistics import (
    CONFIDENCE,
    RESAMPLES,
    cluster_interval,
    cluster_numbers,
)
from fdkvc.experiments.sweep import join_axes

FILE = Path(__file__).parent / "policy_map.csv"

COLUMNS = ("policy", "axis", "n", "mean", "ci_low", "ci_high", "rank", "rank_low", "rank_high")
"""A row per policy and axis; rank 1 is the best, and intervals are 95 %."""


@dataclass(frozen=True)
class Axis:
    """An axis of the map."""

    label: str
    data: str
    lower_is_better: bool = False


DRAWN = "the benchmark's scenarios, budget 56"
REAL = "real dialogs, lexical embedding, budget 48"
ANSWERED = "the bundled model's answers, 48 entries per head"

AXES: Mapping[str, Axis] = {
    "memory": Axis("Memory, share of the dialog", DRAWN, lower_is_better=True),
    "reads": Axis("Reads, share of the dialog", DRAWN, lower_is_better=True),
    "time": Axis("Time of a turn, multiple of FIFO's", DRAWN, lower_is_better=True),
    "late_retention": Axis("Late retention", DRAWN),
    "late_diversity": Axis("Late diversity", DRAWN),
    "late_attention_loss": Axis("Attention loss", DRAWN, lower_is_better=True),
    "call_recall": Axis("Call-argument recall", REAL),
    "old_call_recall": Axis("Old call-argument recall", REAL),
    "calls_exact_of_full": Axis("Calls exact, of those exact with the full cache", ANSWERED),
    "nats": Axis("Nats per token", ANSWERED, lower_is_better=True),
}
"""Every axis, by metric."""


def rank_policies(measured: pd.DataFrame, axis: str, seed: int = 0) -> pd.DataFrame:
    """Return the mean and the rank of every policy on one of `AXES`, with 95 % intervals.

    A rank's interval is over bootstrap resamples of clusters, shared by all policies.
    `measured` has columns dialog, services, policy, value and count, a dialog's weight, of the same
    dialogs for every policy; the result has `COLUMNS`.
    """
    values, counts = (
        measured.pivot_table(column, "dialog", "policy", sort=False).dropna()
        for column in ("value", "count")
    )
    services = measured.drop_duplicates("dialog").set_index("dialog").services[values.index]
    clusters = cluster_numbers(services.tolist())
    size = clusters.max() + 1
    drawn = np.random.default_rng(seed).multinomial(size, [1 / size] * size, size=RESAMPLES)
    weights = drawn[:, clusters].astype(float)
    numbers, sizes = values.to_numpy(float), counts.loc[values.index].to_numpy(float)
    sums, totals = weights @ (numbers * sizes), weights @ sizes
    means = np.divide(sums, totals, out=np.full(sums.shape, np.nan), where=totals > 0)
    mean = (numbers * sizes).sum(axis=0) / sizes.sum(axis=0)
    lower = AXES[axis].lower_is_better
    rank, ranks = _ranks(mean[None], lower)[0], _ranks(means, lower)
    rows = []
    for at, policy in enumerate(values.columns):
        ends = cluster_interval(numbers[:, at], clusters.tolist(), sizes[:, at])
        within = np.quantile(ranks[:, at], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        figures = (len(values), mean[at], *ends)
        rows.append((policy, axis, *figures, int(rank[at]), *map(round, within.tolist())))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _ranks(means: NDArray[np.float64], lower_is_better: bool) -> NDArray[np.float64]:
    """Rank the columns of each row, 1 for the best; ties share the best rank."""
    signed = means if lower_is_better else -means
    better = signed[:, None, :] < signed[:, :, None]
    return np.asarray(1.0 + better.sum(axis=2), np.float64)


@cache
def policy_map() -> pd.DataFrame:
    """Return the measured table, columns `COLUMNS`."""
    return pd.read_csv(FILE)


def map_points(table: pd.DataFrame, x: str, y: str, eligible: frozenset[str]) -> pd.DataFrame:
    """Join two axes of the map.

    A row per policy that has both: setting, x, y, their intervals and ranks, and `front`, whether
    it is on the Pareto front of the eligible policies.
    """
    named = table.rename(columns={"policy": "setting"})
    one, other = (
        (named[named.axis == axis].drop(columns=["axis", "n"]), AXES[axis].lower_is_better)
        for axis in (x, y)
    )
    return join_axes(one, other, ["setting"], eligible.__contains__)
