"""A study: the benchmark, and what the paper's other tables and claims need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from time import perf_counter

import numpy as np

from fdkvc.experiments.benchmark import (
    Benchmark,
    Latency,
    Progress,
    Results,
    Values,
    matches_paper,
    measure_latency,
    run_benchmark,
)
from fdkvc.paper.tables import (
    ABLATED_POLICY,
    ABLATED_SCENARIO,
    ABLATION_DIALOGS,
    ABLATIONS,
    DIALOGS,
    LATENCY_BASELINE,
    published_sweep,
)
from fdkvc.policies import PAPER_POLICIES, Policy, policy_named
from fdkvc.run.metrics import PROJECTED_ALIGNMENTS, CacheBytes, cache_bytes
from fdkvc.run.simulate import simulate
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS

CHUNK = 50
"""Dialogs between two checks for cancellation."""

PROBE_DIALOGS = 100
"""Dialogs whose entries are kept, which take much more memory than metrics."""


@dataclass(frozen=True, eq=False)
class Probes:
    """Measurements for claims that the results of a benchmark do not settle.

    Attributes
    ----------
    seconds : float
        Wall-clock time of the longest scenario with the paper's dialogs and policies.
    highest_score : array (n,)
        The highest score in FD-KVC's cache after the last turn of Topic Shift.
    same_entries : array (n,)
        Share of the turns of Mixed after which FD-KVC with w_c = 1 holds the same entries as H2O.
    """

    seconds: float
    highest_score: Values
    same_entries: Values


@dataclass(frozen=True, eq=False)
class Study:
    """The results of a study; a cancelled one is partial.

    Attributes
    ----------
    results : Results
        With the series of every turn and the alignments of all projections.
    sweeps : mapping of parameter to Results
        The paper's ablations.
    latencies : tuple of Latency
        Of the benchmark's policies, with FIFO among them.
    memories : mapping of policy name to CacheBytes
        After a whole dialog of Mixed.
    """

    results: Results
    sweeps: Mapping[str, Results] = field(default_factory=dict)
    latencies: tuple[Latency, ...] = ()
    memories: Mapping[str, CacheBytes] = field(default_factory=dict)
    probes: Probes | None = None


def run_study(
    benchmark: Benchmark,
    *,
    whole: bool = True,
    executor: Executor | None = None,
    workers: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> Study:
    """Run a benchmark and, with the paper's budget and world, its ablations and probes.

    Parameters
    ----------
    whole : bool
        False for the benchmark and the latencies of single dialogs only.
    executor, workers, on_progress, cancelled
        See `run_benchmark`.
    """
    cancelled = cancelled or threading.Event()
    main, sweeps = benchmark, {}
    if whole:
        metrics = tuple(dict.fromkeys((*benchmark.metrics, *PROJECTED_ALIGNMENTS)))
        main = replace(benchmark, series=True, metrics=metrics)
        if matches_paper(benchmark):
            sweeps = {key: ablation(key, benchmark) for key in ABLATIONS}
    progress = _Progress([main, *sweeps.values()], on_progress)

    def run(part: Benchmark, title: str) -> Results:
        return run_benchmark(
            part,
            executor=executor,
            workers=workers,
            chunk=CHUNK if whole else None,
            on_progress=progress.part(part, title),
            cancelled=cancelled,
        )

    results = replace(run(main, "Benchmark, " if whole else ""), benchmark=benchmark)
    swept = {}
    for key, sweep in sweeps.items():
        if cancelled.is_set():
            break
        swept[key] = run(sweep, f"Ablation of {key}, ")
    if cancelled.is_set():
        return Study(results, swept)
    if whole:
        progress.report(progress.total, "Latency and memory")
    timed = timed_policies(benchmark)
    latencies = measure_latency(timed, benchmark.budget, benchmark.seed, batched=whole)
    if not whole:
        return Study(results, latencies=tuple(latencies))
    memories = {policy.name: _memory(policy, benchmark) for policy in benchmark.policies}
    probing = sweeps and not cancelled.is_set()
    probes = run_probes(benchmark.seed, executor, workers) if probing else None
    return Study(results, swept, tuple(latencies), memories, probes)


def timed_policies(benchmark: Benchmark) -> list[Policy]:
    """Return the policies to time: the benchmark's, and FIFO as the reference."""
    names = {policy.name for policy in benchmark.policies}
    first = [] if LATENCY_BASELINE in names else [policy_named(LATENCY_BASELINE)]
    return [*first, *benchmark.policies]


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


def run_probes(
    seed: int = 0, executor: Executor | None = None, workers: int | None = None
) -> Probes:
    """Measure what settles the claims that a benchmark's results do not."""
    longest = max((SCENARIOS[key] for key in BENCHMARK_SCENARIOS), key=lambda s: len(s.schedule))
    policies = tuple(policy_named(key) for key in PAPER_POLICIES)
    timed = run_benchmark(
        Benchmark((longest,), policies, DIALOGS, seed), executor=executor, workers=workers
    )

    shift = generate(SCENARIOS["shift"], PROBE_DIALOGS, seed)
    trace = simulate(policy_named(ABLATED_POLICY), shift, Benchmark.budget)
    last = trace.entries_in(shift.turns - 1)
    held = np.isfinite(last.attention_after)
    highest = np.where(held, last.score, -np.inf).max(axis=1)

    mixed = generate(SCENARIOS["mixed"], PROBE_DIALOGS, seed)
    one, other = (
        np.sort(simulate(policy, mixed, Benchmark.budget, entries=False).kept)
        for policy in (policy_named(ABLATED_POLICY, w_c=1.0), policy_named("h2o"))
    )
    same = (one == other).all(axis=2).mean(axis=1, dtype=np.float32)
    return Probes(timed.seconds, highest, same)


def _memory(policy: Policy, benchmark: Benchmark) -> CacheBytes:
    dialogs = generate(SCENARIOS["mixed"], 1, benchmark.seed, benchmark.world)
    return cache_bytes(simulate(policy, dialogs, benchmark.budget, entries=False), dialogs)


class _Progress:
    """The progress of several benchmarks in sequence, as that of one run."""

    def __init__(
        self, parts: Sequence[Benchmark], on_progress: Callable[[Progress], None] | None
    ) -> None:
        self.began = perf_counter()
        self.on_progress = on_progress
        self.before = {}
        self.total = 0
        for part in parts:
            self.before[id(part)] = self.total
            self.total += _weight(part)

    def part(self, part: Benchmark, title: str) -> Callable[[Progress], None]:
        """Return the function that takes the progress of a part."""

        def report(progress: Progress) -> None:
            done = round(progress.done / progress.total * _weight(part))
            self.report(self.before[id(part)] + done, f"{title}{progress.title}")

        return report

    def report(self, done: int, title: str) -> None:
        """Report the work done so far."""
        if self.on_progress is not None:
            self.on_progress(Progress(done, self.total, title, perf_counter() - self.began))


def _weight(benchmark: Benchmark) -> int:
    """Return the work of a benchmark: turns of all policies."""
    turns = sum(len(scenario.schedule) for scenario in benchmark.scenarios)
    return turns * benchmark.dialogs * len(benchmark.policies)
