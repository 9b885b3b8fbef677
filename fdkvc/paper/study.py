"""A study: the benchmark, and what the paper's other tables and claims need."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, pairwise
from time import perf_counter
from typing import Unpack

import numpy as np

from fdkvc.engine.metrics import PROJECTED_ALIGNMENTS, CacheBytes, cache_bytes
from fdkvc.engine.simulate import simulate
from fdkvc.paper.benchmark import (
    LATENCY_REPEATS,
    TIMED,
    Benchmark,
    Results,
    Values,
    matches_paper,
    measure_latency,
    run_benchmark,
)
from fdkvc.paper.published import (
    ABLATED_POLICY,
    ABLATED_SCENARIO,
    ABLATION_DIALOGS,
    ABLATIONS,
    LATENCY_BASELINE,
    published_sweep,
)
from fdkvc.policies import Policy, policy_named
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS

_MAIN = "Benchmark"
_COST = "Latency"

CHUNK = 50
"""Dialogs between two checks for cancellation."""

PROBE_DIALOGS = 100
"""Dialogs whose entries are kept, which take much more memory than metrics."""


@dataclass(frozen=True, eq=False)
class Study:
    """The results of a study; a cancelled one is partial."""

    results: Results
    """With the series of every turn and the alignments of all projections."""
    sweeps: Mapping[str, Results] = field(default_factory=dict)
    """The paper's ablations by parameter."""
    latencies: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of a turn by policy name, also of FIFO."""
    memories: Mapping[str, CacheBytes] = field(default_factory=dict)
    """The bytes of a cache after a whole dialog of Mixed, by policy name."""
    probes: Mapping[str, Values] = field(default_factory=dict)
    """As `run_probes` returns them; empty unless the settings are the paper's."""


def run_study(
    benchmark: Benchmark, *, is_whole: bool = True, **execution: Unpack[Execution]
) -> Study:
    """Run a benchmark and, with the paper's budget and world, its ablations and probes.

    If not `is_whole`, only the benchmark and the latencies of single dialogs.
    """
    cancelled = execution.get("cancelled") or threading.Event()
    # 1. What to run: the benchmark, and for a whole study the ablations.
    main = benchmark
    sweeps = {}
    if is_whole:
        metrics = tuple(dict.fromkeys((*benchmark.metrics, *PROJECTED_ALIGNMENTS)))
        main = replace(benchmark, series=True, metrics=metrics)
        if matches_paper(benchmark):
            settings = policy_named(ABLATED_POLICY).settings
            for key in ABLATIONS:
                sweeps[f"Ablation: {settings[key].title}"] = key, ablation(key, benchmark)
    timed = timed_policies(benchmark)
    # 2. One progress for all parts: each has a span of it, as long as its work. Timing counts as a
    # benchmark of the timed policies.
    parts = {_MAIN: main} | {title: part for title, (_, part) in sweeps.items()}
    if is_whole:
        rounds = replace(benchmark, scenarios=(SCENARIOS[TIMED],), policies=tuple(timed))
        parts[_COST] = replace(rounds, dialogs=LATENCY_REPEATS)
    began = perf_counter()
    on_progress = execution.get("on_progress")
    part_ends = [0, *accumulate(map(_weight, parts.values()))]
    spans = dict(zip(parts, pairwise(part_ends), strict=True))

    def report(title: str, of_part: Progress) -> None:
        if on_progress is not None:
            first, end = spans[title]
            finished_weight = first + round(
                (end - first) * of_part.finished_jobs / of_part.total
            )
            title = f"{title}, {of_part.title}" if len(parts) > 1 else of_part.title
            on_progress(
                Progress(finished_weight, part_ends[-1], title, perf_counter() - began)
            )

    def run(title: str) -> Results:
        execution["on_progress"] = partial(report, title)
        return run_benchmark(parts[title], chunk=CHUNK if is_whole else None, **execution)

    # 3. Run the parts; a cancelled study keeps what it has.
    # As it was asked for: what a whole study measures beyond it is for its tables alone.
    results = replace(run(_MAIN), benchmark=benchmark)
    swept = {}
    for title, (key, _) in sweeps.items():
        if cancelled.is_set():
            break
        swept[key] = run(title)
    if cancelled.is_set():
        return Study(results, swept)
    report_rounds = partial(report, _COST) if is_whole else None
    latencies = measure_latency(timed, benchmark.budget, benchmark.seed, report_rounds)
    if not is_whole:
        return Study(results, latencies=latencies)
    mixed = generate(SCENARIOS["mixed"], 1, benchmark.seed, benchmark.world)
    memories = {}
    for policy in benchmark.policies:
        trace = simulate(policy, mixed, benchmark.budget, entries=False)
        memories[policy.name] = cache_bytes(trace, mixed)
    probes = run_probes(benchmark.seed) if sweeps else {}
    return Study(results, swept, latencies, memories, probes)


def timed_policies(benchmark: Benchmark) -> list[Policy]:
    """Return the policies to time: the benchmark's, and FIFO as the reference."""
    if LATENCY_BASELINE in benchmark.names:
        return [*benchmark.policies]
    return [policy_named(LATENCY_BASELINE), *benchmark.policies]


def ablation(parameter: str, benchmark: Benchmark) -> Benchmark:
    """Return the paper's ablation of a parameter, with at most the paper's dialogs."""
    values = published_sweep(parameter)
    return replace(
        benchmark,
        scenarios=(SCENARIOS[ABLATED_SCENARIO],),
        policies=tuple(policy_named(ABLATED_POLICY, **{parameter: value}) for value in values),
        dialogs=min(benchmark.dialogs, ABLATION_DIALOGS),
        series=False,
    )


def run_probes(seed: int) -> dict[str, Values]:
    """Measure what decides the claims that a benchmark's results do not.

    Returns ``highest_score`` (n,), the highest score in FD-KVC's cache after the last turn of Topic
    Shift, and ``same_entries`` (n,), the share of the turns of Mixed after which FD-KVC with
    w_c = 1 holds the same entries as H2O.
    """
    shift = generate(SCENARIOS["shift"], PROBE_DIALOGS, seed)
    trace = simulate(policy_named(ABLATED_POLICY), shift, Benchmark.budget)
    last = trace.entries_in(shift.turns - 1)
    # Only entries that stay have an attention after eviction.
    stays = np.isfinite(last.attention_after)
    highest = np.where(stays, last.score, -np.inf).max(axis=1)

    mixed = generate(SCENARIOS["mixed"], PROBE_DIALOGS, seed)
    kept_tokens = []
    for policy in (policy_named(ABLATED_POLICY, w_c=1.0), policy_named("h2o")):
        run = simulate(policy, mixed, Benchmark.budget, entries=False)
        # (n, T, budget), sorted by token: equal entries may be in different slots.
        kept_tokens.append(np.sort(run.kept_tokens))
    agreeing = np.equal(*kept_tokens).all(axis=2).mean(axis=1, dtype=np.float32)
    return {"highest_score": highest, "same_entries": agreeing}


def _weight(benchmark: Benchmark) -> int:
    """Return the work of a benchmark, in turns of a policy."""
    turns = sum(len(scenario.schedule) for scenario in benchmark.scenarios)
    return turns * benchmark.dialogs * len(benchmark.policies)
