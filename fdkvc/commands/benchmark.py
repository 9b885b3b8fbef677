"""``benchmark``: the policies on synthetic scenarios, compared with the paper."""

from __future__ import annotations

from argparse import Namespace

from fdkvc.commands.console import finish, running, warn_no_effect
from fdkvc.experiments.benchmark import Benchmark, check_baseline, default_baseline, start_workers
from fdkvc.files.options import settings_from


def benchmark(options: Namespace) -> None:
    """Measure policies on scenarios; with ``--all``, also judge what else the paper has."""
    if options.all and options.baseline is not None:
        raise ValueError("--all and --baseline do not go together: give one of them")
    settings = settings_from(Benchmark, options)
    baseline = options.baseline
    if baseline is None:
        baseline = default_baseline(settings.policies)
    check_baseline(baseline, settings.policies)
    if options.dask is None:  # before pandas and SciPy are imported
        start_workers(settings, options.workers)

    from fdkvc.experiments.study import run_study
    from fdkvc.files.write import check_folder

    if options.out is not None:
        check_folder(options.out)
    warn_no_effect(settings.policies)
    with running(options) as arguments:
        study = run_study(settings, whole=options.all, **arguments)

    if options.all:
        from fdkvc.files.studies import study_files, study_text

        finish(options, study_files(study), study_text(study))
    else:
        from fdkvc.files.export import benchmark_files
        from fdkvc.files.text import benchmark_text

        results = study.results, study.latencies, baseline
        finish(options, benchmark_files(*results), benchmark_text(*results))
