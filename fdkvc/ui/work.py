"""What the pages' background runs do."""

from __future__ import annotations

import threading

from fdkvc.benchmark import Benchmark
from fdkvc.study import Study, run_study
from fdkvc.ui.jobs import Report, Work


def study_work(benchmark: Benchmark) -> Work:
    """Return the work of a benchmark."""

    def work(report: Report, cancelled: threading.Event) -> Study:
        return run_study(benchmark, on_progress=report, cancelled=cancelled)

    return work
