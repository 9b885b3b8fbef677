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

from fdkvc.dialogs.batch import Bits, DialogBatch, World
from fdkvc.measured.benchmark import ADAPTATION, Benchmark, Latency, Results
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
    Published,
    published,
    published_ablation,
    published_adaptation,
    published_latency,
)
from fdkvc.policies import Policy, policy_named
from fdkvc.run.metrics import Memory, Metric, metric_named
from fdkvc.run.trace import Rule, Status, Trace

BASELINE = "h2o"
"""The policy that the paper compares with."""

LATENCY_BASELINE = "fifo"
"""The policy that latencies are given in multiples of."""

ABLATED_POLICY = "fd-kvc"
"""The policy whose hyperparameters the paper sweeps (Section 6)."""

ABLATED_SCENARIO = "mixed"
"""The scenario on which it does."""

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

_TURN_STATES = ("ownership_loss", "learning_rate")
_TURN_METRICS = ("retention", "diversity", "alignment")


# ------------------------------------------------------------------------------- benchmark


def late_metrics(benchmark: Benchmark) -> list[str]:
    """Return the names under which a benchmark's metrics are measured, such as late_retention."""
    return [f"late_{key}" for key in benchmark.metrics]


def late_metric(name: str) -> Metric:
    """Return the metric that is measured under a name such as late_retention."""
    return metric_named(name.removeprefix("late_"))


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


def default_baseline(policies: Sequence[Policy]) -> str:
    """Return the name of the policy that others are compared with: H2O, or else the first."""
    names = [policy.name for policy in policies]
    return BASELINE if BASELINE in names else names[0]


def check_baseline(baseline: str, policies: Sequence[Policy]) -> None:
    """Raise a ValueError unless a policy of this name is among the policies."""
    names = [policy.name for policy in policies]
    if baseline not in names:
        raise ValueError(
            f"baseline {baseline!r} is not among the policies: choose from {', '.join(names)}"
        )


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


def is_the_papers(benchmark: Benchmark) -> bool:
    """Whether budget and world are those that the paper's figures were measured with."""
    return benchmark.budget == Benchmark.budget and benchmark.world == World()


def _interval(values: NDArray[np.float32]) -> tuple[int, float, float, float]:
    summary = summarize(values)
    return summary.n, summary.mean, summary.low, summary.high


def _value(figure: Published | None) -> float:
    return math.nan if figure is None else figure.value


def _frame(rows: Sequence[tuple[Any, ...]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=list(columns))


# ------------------------------------------------------------------------------- a trace


def entries_table(trace: Trace, dialogs: DialogBatch, row: int = 0) -> pd.DataFrame:
    """Return a row for each turn and entry that took part in it.

    Parameters
    ----------
    trace : Trace
        Recorded with its entries.
    dialogs : DialogBatch
        What it ran on.
    row : int
        Which row of the batch.

    Returns
    -------
    DataFrame
        In each turn the entries that were cached before it, older first, then its own. `turn` and
        `born` count from 0; `topic` names the token's topics, several joined by ``+``; `status`
        is kept, new, evicted or new_evicted; `rule` is what evicted it, budget or threshold;
        `attention_…` are of the kept entries. A ``channel_…`` and a ``term_…`` column stand for
        every channel and term that the policy declares, as eviction saw them; an entry that the
        threshold evicted has no terms, score and rank.

    Raises
    ------
    ValueError
        If the trace was recorded without entries.
    """
    entries = trace.every_entry()
    own = dialogs.in_turns[row, trace.first_turn :, None]
    turn, slot = np.nonzero((entries.status[row] != Status.empty) & own)

    def pick(column: NDArray[Any]) -> NDArray[Any]:
        picked: NDArray[Any] = column[row, turn, slot]
        return picked

    def each(prefix: str, columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        return {f"{prefix}_{name}": pick(column) for name, column in columns.items()}

    token = pick(entries.token)
    rank = pick(entries.rank)
    return pd.DataFrame(
        {
            "turn": turn + trace.first_turn,
            "token": token,
            "born": dialogs.born[row, token],
            "topic": _topics(dialogs.topic_bits[row, token], dialogs.topic_names),
            "status": _names(Status)[pick(entries.status)],
            "rule": _names(Rule)[pick(entries.rule)],
            "attention_before": pick(entries.attention_before),
            "attention_after": pick(entries.attention_after),
            **each("channel", entries.channels),
            **each("term", entries.terms),
            "score": pick(entries.score),
            "rank": pd.array(np.where(rank > 0, rank, np.nan), dtype="Int64"),
            "protected": pick(entries.protected),
        }
    )


def turns_table(
    trace: Trace, dialogs: DialogBatch, row: int = 0, asked: Iterable[str] = ()
) -> pd.DataFrame:
    """Return a row for each turn.

    Parameters
    ----------
    trace : Trace
    dialogs : DialogBatch
        What it ran on.
    row : int
        Which row of the batch.
    asked : iterable of str
        Keys of further metrics; see `fdkvc.run.metrics.metric_named`.

    Returns
    -------
    DataFrame
        `turn` counts from 0; `topic` is the current one; `cached` and `evicted` count entries.
        `ownership_loss` and `learning_rate` are NaN for a policy that has none; row states of
        other names follow them. `latency_ms` is the time of the turn, shared by the batch.
    """
    own = np.flatnonzero(dialogs.in_turns[row, trace.first_turn :])
    current = dialogs.current[row, own + trace.first_turn]
    states = {
        name: trace.state[name][row, own] if name in trace.state else np.nan
        for name in dict.fromkeys((*_TURN_STATES, *trace.state))
    }
    metrics = {
        key: metric_named(key).series(trace, dialogs)[row, own]
        for key in dict.fromkeys((*_TURN_METRICS, *asked))
    }
    evicted = sum(trace.evicted.values(), np.zeros(trace.kept.shape[:2], np.intp))
    return pd.DataFrame(
        {
            "turn": own + trace.first_turn,
            "topic": np.array([*dialogs.topic_names, None], object)[current],  # −1 is None
            "cached": (trace.kept[row, own] >= 0).sum(axis=1),
            "evicted": evicted[row, own],
            **states,
            **metrics,
            "latency_ms": 1e3 * trace.seconds[own] / dialogs.rows,
        }
    )


def _topics(bits: Bits, names: Sequence[str]) -> NDArray[Any]:
    """Name the topics of each token (n,); None for a token of no topic."""
    patterns, which = np.unique(bits, return_inverse=True)
    words = [
        "+".join(name for k, name in enumerate(names) if pattern >> k & 1) or None
        for pattern in patterns.tolist()
    ]
    return np.array(words, object)[which]


def _names(codes: type[Status] | type[Rule]) -> NDArray[Any]:
    """Return the word for each code; None for 0, which means that nothing happened."""
    return np.array([code.name if code else None for code in codes], object)
