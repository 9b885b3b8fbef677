"""Results as tidy tables: a row for each figure, numbers unrounded, NaN where undefined.

Percentages are fractions, adaptation is in turns, latency in milliseconds. Published figures appear
only beside runs with the paper's settings: default hyperparameters, budget and world.

The paper compares the attention output with "the projected ground-truth topic vector" and does not
name the matrix. The output is a mean of values, so only the value matrix compares vectors of one
space: tables of alignment have all three.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd

from fdkvc.core.statistics import Paired, paired, summarize
from fdkvc.engine.metrics import CacheBytes
from fdkvc.paper.benchmark import ADAPTATION, Results, late_metrics
from fdkvc.paper.published import ABLATED_POLICY, LATENCY_BASELINE, RETENTION_AND_LATENCY
from fdkvc.paper.replication.facts import (
    BENCHMARK,
    DIFFERENCE,
    TIME,
    facts_table,
    printed,
    unrelated_spread,
)
from fdkvc.paper.replication.rules import TWO_SIDED, t_of_difference
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, baseline_of, read_policy

SUMMARY = ("scenario", "policy", "metric", "n", "mean", "ci_low", "ci_high", "published")
_TURNS = ("mean", "median", "p90")
ADAPTATIONS = ("policy", "n", *_TURNS, *(f"published_{name}" for name in _TURNS))
PAIR = ("policy", "baseline", "n", "mean_diff", "ci_low", "ci_high", "t", "p")
PAIRED = ("scenario", "metric", *PAIR)
LATENCY = ("policy", "ms_per_turn", "ratio_to_fifo", "published_ms")
SERIES = ("scenario", "policy", "quantity", "turn", "topic", "n", "mean", "ci_low", "ci_high")
ALIGNMENTS = ("scenario", "projection", "policy", "n", "mean", "sd", "ci_low", "ci_high")
DIFFERENCES = ("scenario", "projection", *PAIR)
SWEPT = ("metric", "n", "mean", "ci_low", "ci_high", "published")

PROJECTIONS = {
    "value": "late_alignment",
    "key": "late_alignment_key",
    "query": "late_alignment_query",
}
"""The metric of each matrix."""

PUBLISHED = "published"
"""The projection's name in rows of published figures."""


def summary_table(results: Results) -> pd.DataFrame:
    """Return the mean of each late metric with its 95 % interval, beside the published figure.

    Columns `SUMMARY`; scenarios with finished dialogs by their keys, then ``composite`` if all five
    are complete. The interval is NaN for one dialog.
    """
    return _columns(_of(facts_table(results), BENCHMARK), SUMMARY)


def adaptation_table(results: Results) -> pd.DataFrame:
    """Return the turns that each policy needs after a change of topic (Table 2).

    Columns `ADAPTATIONS`; empty without the adaptation run. Dialogs that never adapt count with all
    their turns.
    """
    table = _of(facts_table(results), ADAPTATION)
    rows = []
    for policy, turns in table.groupby("policy", sort=False):
        rows.append((policy, turns.n.iloc[0], *turns["mean"], *turns.published))
    return pd.DataFrame(rows, columns=list(ADAPTATIONS))


def comparisons(results: Results, baseline: str) -> Iterator[tuple[str, str, str, Paired]]:
    """Compare all other policies with a baseline on the same dialogs.

    Yields scenario, metric, policy and the differences, policy − baseline; a ValueError if the
    baseline is not among the policies.
    """
    benchmark = results.benchmark
    baseline = baseline_of(benchmark.policies, baseline)
    names = [name for name in benchmark.names if name != baseline]
    for place in product(results.reported, late_metrics(benchmark), names):
        if pair := results.pair(*place, baseline):
            yield *place, paired(*pair)


def paired_table(results: Results, baseline: str = BASELINE) -> pd.DataFrame:
    """Return the paired differences of every policy from a baseline, with their t-tests.

    Columns `PAIRED`. t and p are NaN for one dialog, and for equal differences in all dialogs.
    """
    rows = []
    for *place, test in comparisons(results, baseline):
        rows.append((*place, baseline, *_pair_cells(test)))
    return pd.DataFrame(rows, columns=list(PAIRED))


def _pair_cells(test: Paired) -> tuple[float, ...]:
    """Return the last columns of `PAIR`."""
    return test.n, test.mean, test.low, test.high, test.t, test.p


def latency_table(study: Study) -> pd.DataFrame:
    """Return each policy's time for a turn of one dialog, and as a multiple of FIFO's.

    Columns `LATENCY`; without FIFO among the latencies the ratio is NaN.
    """
    times = _of(facts_table(study), TIME)
    milliseconds = times["mean"]
    fifo = milliseconds[times.policy == LATENCY_BASELINE].max()  # the only one; NaN if none
    renamed = times.assign(ms_per_turn=milliseconds, published_ms=times.published)
    return renamed.assign(ratio_to_fifo=milliseconds / fifo)[list(LATENCY)]


def alignments_table(results: Results) -> pd.DataFrame:
    """Return late alignments under each projection, and the published ones.

    Columns `ALIGNMENTS`. The paper prints no intervals: the one of a published figure is that of a
    mean over as many dialogs of unrelated vectors, by their spread in this run.
    """
    rows = []
    for scenario, policy in product(results.reported, results.benchmark.names):
        for projection, metric in PROJECTIONS.items():
            values = results.values(scenario, policy, metric)
            if values is not None:
                s = summarize(values)
                rows.append((scenario, projection, policy, s.n, s.mean, s.sd, s.low, s.high))
        figure = printed(results.benchmark, scenario, policy, "late_alignment")
        if figure is not None:
            n = figure.dialogs
            mean = figure.value
            chance = unrelated_spread(results, scenario, policy)
            reach = TWO_SIDED * chance / math.sqrt(n)
            rows.append(
                (scenario, PUBLISHED, policy, n, mean, chance, mean - reach, mean + reach)
            )
    return pd.DataFrame(rows, columns=list(ALIGNMENTS))


def differences_table(results: Results) -> pd.DataFrame:
    """Return the difference in late alignment (FD-KVC − H2O), by projection and as published.

    Columns `DIFFERENCES`; t of a published difference is printed in Section 5.6 or computed from
    the spread of unrelated vectors in this run. Empty unless both policies ran.
    """
    rows = []
    pair = ABLATED_POLICY, BASELINE
    for scenario in results.reported if set(pair) <= set(results.benchmark.names) else ():
        for projection, metric in PROJECTIONS.items():
            if values := results.pair(scenario, metric, *pair):
                rows.append((scenario, projection, *pair, *_pair_cells(paired(*values))))
        figure = printed(results.benchmark, scenario, DIFFERENCE, "late_alignment")
        if figure is not None:
            spread = unrelated_spread(results, scenario, DIFFERENCE)
            mean = figure.value
            t = t_of_difference(scenario, spread)
            reach = abs(TWO_SIDED * mean / t)  # t is mean / error
            # Over 600 dialogs t is normal to three digits.
            p = math.erfc(abs(t) / math.sqrt(2))
            low = mean - reach
            high = mean + reach
            rows.append((scenario, PUBLISHED, *pair, figure.dialogs, mean, low, high, t, p))
    return pd.DataFrame(rows, columns=list(DIFFERENCES))


def series_table(results: Results) -> pd.DataFrame:
    """Return the mean of each recorded series at every turn with its 95 % interval.

    Columns `SERIES`; `quantity` is a metric, a row state such as ``learning_rate``, or the number
    of entries that a rule evicted. Turns count from 0, without those where it is NaN. Empty unless
    the benchmark has `series`.
    """
    rows = []
    for scenario in results.benchmark.scenarios:
        for policy, measured in results.measured.get(scenario.key, {}).items():
            for quantity, series in measured.series.items():
                for turn, values in enumerate(series.T):
                    if not np.isnan(values).any():
                        s = summarize(values)
                        topic = scenario.schedule[turn]
                        place = scenario.key, policy, quantity, turn, topic
                        rows.append((*place, s.n, s.mean, s.low, s.high))
    return pd.DataFrame(rows, columns=list(SERIES))


def cost_table(study: Study) -> pd.DataFrame:
    """Return the time of a turn and the bytes of a cache: `latency_table`, and columns below."""
    single = latency_table(study)
    fifo_printed = RETENTION_AND_LATENCY[LATENCY_BASELINE, "latency"].value
    sizes = [study.memories.get(policy, CacheBytes(0, 0, 0, 0)) for policy in single.policy]
    return single.assign(
        published_ratio=single.published_ms / fifo_printed,
        key_bytes=[size.keys for size in sizes],
        value_bytes=[size.values for size in sizes],
        score_bytes=[size.scores for size in sizes],
        score_bytes_per_entry=[4 * len(read_policy(name).channels) for name in single.policy],
        full_cache_bytes=[size.full_cache for size in sizes],
    )


def sweep_table(results: Results, parameter: str) -> pd.DataFrame:
    """Return the late metrics over a sweep of a hyperparameter.

    Columns setting (the policy's name), the hyperparameter, `SWEPT`; rows in the order of the
    policies. Published figures appear where only this hyperparameter of FD-KVC differs from its
    default, on the paper's scenario.
    """
    policies = results.benchmark.policies
    values = {policy.name: policy.settings[parameter].default for policy in policies}
    table = facts_table(results, parameter).rename(columns={"policy": "setting"})
    table[parameter] = table.setting.map(values)
    return _columns(table, ("setting", parameter, *SWEPT))


def _of(facts: pd.DataFrame, source: str) -> pd.DataFrame:
    return facts[facts.source == source].reset_index(drop=True)


def _columns(facts: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return some columns of facts under their names in files."""
    renamed = facts.rename(columns={"low": "ci_low", "high": "ci_high"})
    return renamed.reset_index(drop=True)[list(names)]
