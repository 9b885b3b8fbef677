"""Results as tidy tables: one row a fact, numbers unrounded, NaN where there is nothing to say.

Percentages are fractions, adaptation is in turns, latency in milliseconds. A published figure
stands beside a measured one only where the run is the paper's: a policy with its default
hyperparameters, the paper's budget and the paper's world.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.measured.benchmark import (
    ADAPTATION,
    Benchmark,
    Latency,
    Results,
    check_baseline,
    is_the_papers,
    late_metrics,
)
from fdkvc.measured.statistics import (
    AdaptationSummary,
    Paired,
    bootstrap_interval,
    differences,
    effect_size,
    holm,
    paired,
    summarize,
    summarize_adaptation,
)
from fdkvc.paper.tables import (
    ABLATED_POLICY,
    ABLATED_SCENARIO,
    BASELINE,
    LATENCY_BASELINE,
    Published,
    published,
    published_ablation,
    published_adaptation,
    published_latency,
)
from fdkvc.policies import policy_named
from fdkvc.run.metrics import Memory

SUMMARY = ("scenario", "policy", "metric", "n", "mean", "ci_low", "ci_high", "published")
ADAPTATIONS = (
    *("policy", "n", "mean", "median", "p90"),
    *("published_mean", "published_median", "published_p90"),
)
PAIRED = (
    *("scenario", "metric", "policy", "baseline"),
    *("n", "mean_diff", "ci_low", "ci_high", "t", "p"),
)
LATENCY = ("policy", "ms_per_turn", "ratio_to_fifo", "published_ms")
SERIES = ("scenario", "policy", "quantity", "turn", "topic", "n", "mean", "ci_low", "ci_high")
COMPARISON = (
    *("scenario", "metric", "policy", "baseline", "n", "mean_diff", "ci_low", "ci_high"),
    *("bootstrap_low", "bootstrap_high", "t", "p", "p_holm", "effect_size", "words"),
)
COST = (
    *("policy", "ms_per_turn", "ratio_to_fifo", "published_ms", "published_ratio"),
    *("ms_per_turn_batched", "batched_ratio_to_fifo"),
    *("key_bytes", "value_bytes", "score_bytes", "score_bytes_per_entry", "full_cache_bytes"),
)
ABLATION = ("parameter", "value", "metric", "n", "mean", "ci_low", "ci_high", "published")


def summary_table(results: Results) -> pd.DataFrame:
    """Return the mean of each late metric with its 95 % interval, beside the published figure.

    Parameters
    ----------
    results : Results
        Scenarios of which no dialog is finished are left out.

    Returns
    -------
    DataFrame
        Columns `SUMMARY`; scenarios by their keys, then ``composite`` where all five are
        complete. The interval is NaN for one dialog.
    """
    ours = is_the_papers(results.benchmark)
    rows = []
    for scenario in results.reported:
        for policy in results.benchmark.policies:
            for metric in late_metrics(results.benchmark):
                values = results.values(scenario, policy.name, metric)
                if values is None:
                    continue
                figure = published(scenario, policy.name, metric) if ours else None
                rows.append((scenario, policy.name, metric, *_interval(values), _value(figure)))
    return _frame(rows, SUMMARY)


def adaptations(results: Results) -> Iterator[tuple[str, AdaptationSummary]]:
    """Summarize the turns that each policy needs after a change of topic.

    Parameters
    ----------
    results : Results

    Yields
    ------
    policy : str
    summary : AdaptationSummary
        Nothing is yielded where the adaptation run was not among the scenarios.
    """
    for policy in results.benchmark.policies:
        turns = results.values(ADAPTATION, policy.name, "adaptation")
        never = results.values(ADAPTATION, policy.name, "never")
        if turns is not None and never is not None:
            yield policy.name, summarize_adaptation(turns, never)


def adaptation_table(results: Results) -> pd.DataFrame:
    """Return the turns that each policy needs after a change of topic (Table 2).

    Dialogs that never adapt count with all the turns they had.

    Parameters
    ----------
    results : Results

    Returns
    -------
    DataFrame
        Columns `ADAPTATIONS`; no rows where the adaptation run was not among the scenarios.
    """
    ours = is_the_papers(results.benchmark)
    rows = []
    for policy, summary in adaptations(results):
        figures = (
            _value(published_adaptation(policy, statistic) if ours else None)
            for statistic in ("mean", "median", "p90")
        )
        rows.append((policy, summary.n, summary.mean, summary.median, summary.p90, *figures))
    return _frame(rows, ADAPTATIONS)


def comparisons(
    results: Results, baseline: str = BASELINE
) -> Iterator[tuple[str, str, str, Paired]]:
    """Compare every policy with a baseline on the same dialogs.

    Parameters
    ----------
    results : Results
    baseline : str
        The name of a policy that ran.

    Yields
    ------
    scenario, metric, policy : str
    comparison : Paired
        Policy less baseline.

    Raises
    ------
    ValueError
        If the baseline is not among the policies.
    """
    check_baseline(baseline, results.benchmark.policies)
    for scenario in results.reported:
        for metric in late_metrics(results.benchmark):
            base = results.values(scenario, baseline, metric)
            for policy in results.benchmark.policies:
                values = results.values(scenario, policy.name, metric)
                if policy.name != baseline and values is not None and base is not None:
                    yield scenario, metric, policy.name, paired(values, base)


def paired_table(results: Results, baseline: str = BASELINE) -> pd.DataFrame:
    """Return the paired differences of every policy from a baseline, with their t-tests.

    Parameters
    ----------
    results : Results
    baseline : str
        The name of a policy that ran.

    Returns
    -------
    DataFrame
        Columns `PAIRED`. t and p are NaN where they are not defined: for one dialog, and where
        the difference is the same in every dialog.

    Raises
    ------
    ValueError
        If the baseline is not among the policies.
    """
    rows = [
        (scenario, metric, policy, baseline, c.n, c.mean, c.low, c.high, c.t, c.p)
        for scenario, metric, policy, c in comparisons(results, baseline)
    ]
    return _frame(rows, PAIRED)


def latency_table(latencies: Iterable[Latency], budget: int = Benchmark.budget) -> pd.DataFrame:
    """Return each policy's time for a turn of one dialog, and as a multiple of FIFO's.

    Parameters
    ----------
    latencies : iterable of Latency
        Without FIFO among them the ratio is NaN.
    budget : int
        The budget they were measured with.

    Returns
    -------
    DataFrame
        Columns `LATENCY`.

    Examples
    --------
    >>> table = latency_table([Latency("fifo", 0.1, 0.01), Latency("h2o", 0.3, 0.02)])
    >>> table.ratio_to_fifo.round(6).tolist()
    [1.0, 3.0]
    """
    latencies = list(latencies)
    known = {latency.policy: latency.milliseconds for latency in latencies}
    fifo = known.get(LATENCY_BASELINE, math.nan)
    ours = budget == Benchmark.budget
    rows = [
        (policy, ms, ms / fifo, _value(published_latency(policy) if ours else None))
        for policy, ms in known.items()
    ]
    return _frame(rows, LATENCY)


def series_table(results: Results) -> pd.DataFrame:
    """Return the mean of every turn with its 95 % interval, of what was kept of every turn.

    Parameters
    ----------
    results : Results
        Of a benchmark with `series`.

    Returns
    -------
    DataFrame
        Columns `SERIES`; `quantity` is a metric, a row state such as ``learning_rate``, or the
        entries that a rule evicted. Turns count from 0; those of which a metric says nothing are
        left out.
    """
    rows = []
    for scenario in results.benchmark.scenarios:
        for policy, measured in results.measured.get(scenario.key, {}).items():
            for quantity, series in measured.series.items():
                rows += [
                    (
                        scenario.key,
                        policy,
                        quantity,
                        turn,
                        scenario.schedule[turn],
                        *_interval(each),
                    )
                    for turn, each in enumerate(series.T)
                    if not np.isnan(each).any()
                ]
    return _frame(rows, SERIES)


def comparison_table(
    results: Results, policy: str, baseline: str, seed: int = 0, resamples: int = 1999
) -> pd.DataFrame:
    """Compare two policies on every scenario and metric.

    Parameters
    ----------
    results : Results
    policy, baseline : str
        Names of policies that ran; the differences are policy less baseline.
    seed, resamples : int
        Of the bootstrap.

    Returns
    -------
    DataFrame
        Columns `COMPARISON`. Beside Student's interval stands a bootstrap interval, which does not
        assume a normal distribution; `p_holm` is p adjusted for the number of tests in this table.
    """
    rows = []
    for scenario in results.reported:
        for metric in late_metrics(results.benchmark):
            one, other = (results.values(scenario, name, metric) for name in (policy, baseline))
            if one is None or other is None:
                continue
            test, each = paired(one, other), differences(one, other)
            rows.append(
                (
                    *(scenario, metric, policy, baseline, test.n, test.mean, test.low, test.high),
                    *bootstrap_interval(each, seed, resamples=resamples),
                    *(test.t, test.p, math.nan, effect_size(each), test.words()),
                )
            )
    table = _frame(rows, COMPARISON)
    return table.assign(p_holm=holm(table.p))


def cost_table(
    latencies: Iterable[Latency],
    memories: Mapping[str, Memory],
    budget: int = Benchmark.budget,
) -> pd.DataFrame:
    """Return what a turn costs in time, single and batched, and what a cache takes in bytes.

    Parameters
    ----------
    latencies : iterable of Latency
    memories : mapping of policy name to Memory
    budget : int
        The budget they were measured with.

    Returns
    -------
    DataFrame
        Columns `COST`. Batched times are of one dialog of a batch.
    """
    latencies = list(latencies)
    single = latency_table(latencies, budget)
    batched = {latency.policy: latency.batched for latency in latencies}
    fifo_printed = published_latency(LATENCY_BASELINE)
    known = [memories.get(policy) for policy in single.policy]
    full = Memory(0, 0, 0, 0)
    return single.assign(
        published_ratio=single.published_ms / _value(fifo_printed),
        ms_per_turn_batched=single.policy.map(batched),
        batched_ratio_to_fifo=single.policy.map(batched) / batched.get(LATENCY_BASELINE, math.nan),
        key_bytes=[(each or full).keys for each in known],
        value_bytes=[(each or full).values for each in known],
        score_bytes=[(each or full).scores for each in known],
        score_bytes_per_entry=[(each or full).scores / budget for each in known],
        full_cache_bytes=[(each or full).full_cache for each in known],
    )[list(COST)]


def ablation_table(results: Results, parameter: str) -> pd.DataFrame:
    """Return the late metrics of one policy's variants over a sweep of a hyperparameter.

    Parameters
    ----------
    results : Results
        Of one scenario; policies that do not have the parameter are left out.
    parameter : str

    Returns
    -------
    DataFrame
        Columns `ABLATION`, in the order of the policies. Published figures stand where only this
        parameter of FD-KVC is away from its default, on the scenario of the paper's ablations.
    """
    (scenario,) = results.benchmark.scenarios
    ours = is_the_papers(results.benchmark) and scenario.key == ABLATED_SCENARIO
    rows = []
    for policy in results.benchmark.policies:
        value = getattr(policy, parameter, None)
        if value is None:
            continue
        swept = ours and policy == policy_named(policy.key, **{parameter: value})
        for metric in late_metrics(results.benchmark):
            values = results.values(scenario.key, policy.name, metric)
            if values is None:
                continue
            printed = swept and policy.key == ABLATED_POLICY
            figure = published_ablation(parameter, value, metric) if printed else None
            rows.append((parameter, value, metric, *_interval(values), _value(figure)))
    return _frame(rows, ABLATION)


def _interval(values: NDArray[np.float32]) -> tuple[int, float, float, float]:
    summary = summarize(values)
    return summary.n, summary.mean, summary.low, summary.high


def _value(figure: Published | None) -> float:
    return math.nan if figure is None else figure.value


def _frame(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns))
