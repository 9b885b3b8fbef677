"""A whole study: the benchmark, and what the paper's other tables need, in one run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from fdkvc.benchmark import (
    Benchmark,
    Latency,
    Progress,
    Results,
    measure_latency,
    run_benchmark,
)
from fdkvc.policies import Policy, policy_named
from fdkvc.tables import LATENCY_BASELINE


@dataclass(frozen=True, eq=False)
class Study:
    """What a study measured.

    Attributes
    ----------
    results : Results
    latencies : tuple of Latency
        Of the benchmark's policies, with FIFO among them; empty if the study was cancelled before.
    """

    results: Results
    latencies: tuple[Latency, ...] = ()


def run_study(
    benchmark: Benchmark,
    *,
    workers: int | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    cancelled: threading.Event | None = None,
) -> Study:
    """Run a benchmark and time its policies.

    Parameters are those of `run_benchmark`.
    """
    cancelled = cancelled or threading.Event()
    began = perf_counter()
    results = run_benchmark(
        benchmark, workers=workers, on_progress=on_progress, cancelled=cancelled
    )
    if cancelled.is_set():
        return Study(results)
    if on_progress is not None:
        total = benchmark.dialogs * len(benchmark.scenarios)
        on_progress(Progress(total, total, "latency", perf_counter() - began))
    latencies = measure_latency(timed_policies(benchmark), benchmark.budget, benchmark.seed)
    return Study(results, tuple(latencies))


def timed_policies(benchmark: Benchmark) -> list[Policy]:
    """Return the policies to time: the benchmark's, and FIFO, of which latencies are multiples."""
    known = {policy.name for policy in benchmark.policies}
    first = [] if LATENCY_BASELINE in known else [policy_named(LATENCY_BASELINE)]
    return [*first, *benchmark.policies]
