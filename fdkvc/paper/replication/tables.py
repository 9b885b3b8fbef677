"""Results as tidy tables: a row for each figure, numbers unrounded, NaN where undefined.

Percentages are fractions, adaptation is in turns, latency in milliseconds. Published figures appear
only beside runs with the paper's settings: default hyperparameters, budget and world.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np
import pandas as pd

from fdkvc.core.statistics import Paired, paired, summarize
from fdkvc.engine.metrics import CacheBytes
from fdkvc.paper.benchmark import ADAPTATION, Results, late_metrics
from fdkvc.paper.published import LATENCY_BASELINE, RETENTION_AND_LATENCY
from fdkvc.paper.replication.facts import BENCHMARK, TIME, facts_table
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, baseline_of

SUMMARY = ("scenario", "policy", "metric", "n", "mean", "ci_low", "ci_high", "published")
_TURNS = ("mean", "median", "p90")
ADAPTATIONS = ("policy", "n", *_TURNS, *(f"published_{name}" for name in _TURNS))
PAIR = ("policy", "baseline", "n", "mean_diff", "ci_low", "ci_high", "t", "p")
PAIRED = ("scenario", "metric", *PAIR)
LATENCY = ("policy", "ms_per_turn", "ratio_to_fifo", "published_ms")
SERIES = ("scenario", "policy", "quantity", "turn", "topic", "n", "mean", "ci_low", "ci_high")
SWEPT = ("metric", "n", "mean", "ci_low", "ci_high", "published")


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
    rows = [
        (policy, rows_of_policy.n.iloc[0], *rows_of_policy["mean"], *rows_of_policy.published)
        for policy, rows_of_policy in table.groupby("policy", sort=False)
    ]
    return pd.DataFrame(rows, columns=list(ADAPTATIONS))


def comparisons(
    results: Results, baseline: str, policies: Sequence[str] = ()
) -> Iterator[tuple[str, str, str, Paired]]:
    """Compare policies, by default all others, with a baseline on the same dialogs.

    Yields scenario, metric, policy and the differences, policy − baseline; a ValueError if the
    baseline is not among the policies.
    """
    ran = results.benchmark.policies
    baseline = baseline_of(ran, baseline)
    names = policies or [policy.name for policy in ran if policy.name != baseline]
    for place in product(results.reported, late_metrics(results.benchmark), names):
        if pair := results.pair(*place, baseline):
            yield *place, paired(*pair)


def paired_table(results: Results, baseline: str = BASELINE) -> pd.DataFrame:
    """Return the paired differences of every policy from a baseline, with their t-tests.

    Columns `PAIRED`. t and p are NaN for one dialog, and for equal differences in all dialogs.
    """
    rows = [
        (*place, baseline, c.n, c.mean, c.low, c.high, c.t, c.p)
        for *place, c in comparisons(results, baseline)
    ]
    return pd.DataFrame(rows, columns=list(PAIRED))


def latency_table(study: Study) -> pd.DataFrame:
    """Return each policy's time for a turn of one dialog, and as a multiple of FIFO's.

    Columns `LATENCY`; without FIFO among the latencies the ratio is NaN.
    """
    times = _of(facts_table(study), TIME)
    milliseconds = times["mean"]
    fifo = milliseconds[times.policy == LATENCY_BASELINE].max()  # the only one; NaN if none
    renamed = times.assign(ms_per_turn=milliseconds, published_ms=times.published)
    return renamed.assign(ratio_to_fifo=milliseconds / fifo)[list(LATENCY)]


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
                        s, topic = summarize(values), scenario.schedule[turn]
                        place = scenario.key, policy, quantity, turn, topic
                        rows.append((*place, s.n, s.mean, s.low, s.high))
    return pd.DataFrame(rows, columns=list(SERIES))


def cost_table(study: Study) -> pd.DataFrame:
    """Return the time of a turn and the bytes of a cache: `latency_table`, and columns below."""
    single, budget = latency_table(study), study.results.benchmark.budget
    fifo_printed = RETENTION_AND_LATENCY[LATENCY_BASELINE, "latency"].value
    sizes = [study.memories.get(policy, CacheBytes(0, 0, 0, 0)) for policy in single.policy]
    return single.assign(
        published_ratio=single.published_ms / fifo_printed,
        key_bytes=[size.keys for size in sizes],
        value_bytes=[size.values for size in sizes],
        score_bytes=[size.scores for size in sizes],
        score_bytes_per_entry=[size.scores / budget for size in sizes],
        full_cache_bytes=[size.full_cache for size in sizes],
        read_bytes=[size.reads for size in sizes],
    )


def sweep_table(results: Results, *parameters: str) -> pd.DataFrame:
    """Return the late metrics over a sweep of one or two hyperparameters.

    Columns setting (the policy's name), one for each hyperparameter, `SWEPT`; rows in the order of
    the policies, without those that lack one. Published figures appear where only the one
    hyperparameter of FD-KVC differs from its default, on the paper's scenario.
    """
    settings = {policy.name: policy.settings for policy in results.benchmark.policies}
    swept = {name: row for name, row in settings.items() if {*parameters} <= row.keys()}
    table = facts_table(results, parameters[0]).rename(columns={"policy": "setting"})
    table = table[table.setting.isin(swept)]
    for parameter in parameters:
        values = {name: row[parameter].default for name, row in swept.items()}
        table[parameter] = table.setting.map(values)
    if len(parameters) > 1:  # the paper sweeps one at a time
        table["published"] = math.nan
    return _columns(table, ("setting", *parameters, *SWEPT))


def _of(facts: pd.DataFrame, source: str) -> pd.DataFrame:
    return facts[facts.source == source].reset_index(drop=True)


def _columns(facts: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Return some columns of facts under their names in files."""
    renamed = facts.rename(columns={"low": "ci_low", "high": "ci_high"})
    return renamed.reset_index(drop=True)[list(names)]
