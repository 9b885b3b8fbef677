"""What the pages' background runs do."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter

from fdkvc.experiments.benchmark import Benchmark, Results, run_benchmark
from fdkvc.experiments.study import Study, run_study
from fdkvc.experiments.sweep import Sweep
from fdkvc.experiments.tuning import Tuned, Tuning, tune
from fdkvc.ui.kit.jobs import Report, Work


@dataclass(frozen=True, eq=False)
class Searched:
    """A search that has come to its end, or was cut short.

    Attributes
    ----------
    tuning : Tuning
    tuned : Tuned
    seconds : float
    tried : int
        How many settings were.
    """

    tuning: Tuning
    tuned: Tuned
    seconds: float
    tried: int


SWEEP_CHUNK = 20
"""Dialogs that go through all settings of a sweep together: a step of its progress."""


def study_work(benchmark: Benchmark) -> Work:
    """Return the work of a benchmark."""

    def work(report: Report, cancelled: threading.Event) -> Study:
        return run_study(benchmark, on_progress=report, cancelled=cancelled)

    return work


def sweep_work(sweep: Sweep) -> Work:
    """Return the work of a sweep, whose result is the sweep and its results."""

    def work(report: Report, cancelled: threading.Event) -> tuple[Sweep, Results]:
        results = run_benchmark(
            sweep.benchmark, chunk=SWEEP_CHUNK, on_progress=report, cancelled=cancelled
        )
        return sweep, results

    return work


def search_work(tuning: Tuning) -> Work:
    """Return the work of a search."""

    def work(report: Report, cancelled: threading.Event) -> Searched:
        began = perf_counter()
        tuned = tune(tuning, on_progress=report, cancelled=cancelled)
        return Searched(tuning, tuned, perf_counter() - began, len(tuned.trials))

    return work
