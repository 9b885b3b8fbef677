"""``benchmark``: the policies on synthetic scenarios, compared with the paper."""

from argparse import Namespace

from fdkvc.paper.benchmark import Benchmark, start_workers
from fdkvc.policies import baseline_of
from fdkvc.runs.console import finish, running, warn_no_effect
from fdkvc.runs.options import settings_from


def benchmark(options: Namespace) -> None:
    """Measure policies on scenarios; with ``--all``, also judge what else the paper has."""
    if options.all and options.baseline is not None:
        raise ValueError("--all and --baseline cannot be combined: give only one")
    settings = settings_from(Benchmark, options)
    baseline = baseline_of(settings.policies, options.baseline)
    if options.dask is None:  # before pandas and SciPy are imported
        start_workers(settings, options.workers)

    from fdkvc.paper.results import BenchmarkRun, StudyRun
    from fdkvc.paper.study import run_study
    from fdkvc.runs.write import check_folder

    if options.out is not None:
        check_folder(options.out)
    warn_no_effect(settings.policies)
    with running(options) as how:
        study = run_study(settings, whole=options.all, **how)
    finish(options, StudyRun(study) if options.all else BenchmarkRun(study, baseline))
