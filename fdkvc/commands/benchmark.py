"""``benchmark`` and ``study``: the policies on synthetic scenarios, compared with the paper."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from fdkvc.commands.console import finish, running, warn_no_effect
from fdkvc.experiments.benchmark import Benchmark, check_baseline, default_baseline, start_workers
from fdkvc.files.options import settings_from

if TYPE_CHECKING:
    from fdkvc.experiments.study import Study


def benchmark(options: Namespace) -> None:
    """Measure policies on scenarios."""
    settings = _settings(options)
    baseline = options.baseline
    if baseline is None:
        baseline = default_baseline(settings.policies)
    check_baseline(baseline, settings.policies)
    measured = _measure(options, settings, whole=False)

    from fdkvc.files.export import benchmark_files
    from fdkvc.files.text import benchmark_text

    results = measured.results, measured.latencies, baseline
    finish(options, benchmark_files(*results), benchmark_text(*results))


def study(options: Namespace) -> None:
    """Measure and judge all of the paper's tables, figures and claims."""
    measured = _measure(options, _settings(options), whole=True)

    from fdkvc.files.studies import study_files, study_text

    finish(options, study_files(measured), study_text(measured))


def _settings(options: Namespace) -> Benchmark:
    """Read the settings, and start the workers before pandas and SciPy are imported."""
    settings = settings_from(Benchmark, options)
    if options.dask is None:
        start_workers(settings, options.workers)
    return settings


def _measure(options: Namespace, settings: Benchmark, *, whole: bool) -> Study:
    from fdkvc.experiments.study import run_study
    from fdkvc.files.write import check_folder

    if options.out is not None:
        check_folder(options.out)
    warn_no_effect(settings.policies)
    with running(options) as arguments:
        return run_study(settings, whole=whole, **arguments)
