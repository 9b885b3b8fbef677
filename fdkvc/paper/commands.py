"""The commands ``benchmark``, ``sweep`` and ``trace``, on synthetic dialogs.

Modules that load pandas are imported inside the commands, so that ``benchmark`` can start its
workers first: they load while this process does.
"""

from argparse import Namespace

from fdkvc.core.limits import MAX_RUN_NAMES
from fdkvc.core.parameters import BUDGET, SEED, check_values
from fdkvc.engine.metrics import metric_named
from fdkvc.paper.benchmark import Benchmark, start_workers
from fdkvc.paper.sweep import Sweep, read_values, suggested_values
from fdkvc.policies import baseline_of, read_policy
from fdkvc.runs.console import finish, print_results, running, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.runs.write import write_files
from fdkvc.synthetic.scenarios import Scenario, World, custom_scenario, scenario_named


def benchmark(options: Namespace) -> None:
    """Measure policies on scenarios; with ``--all``, all that the paper has figures for."""
    if options.all and options.baseline is not None:
        raise ValueError("--all and --baseline cannot be combined: give only one")
    settings = settings_from(Benchmark, options)
    baseline = baseline_of(settings.policies, options.baseline)
    start_workers(settings, options.workers)  # before this process imports pandas and SciPy

    from fdkvc.paper.results import BenchmarkRun, StudyRun
    from fdkvc.paper.study import run_study

    warn_no_effect(settings.policies)
    with running(options.workers) as execution:
        study = run_study(settings, is_whole=options.all, **execution)
    finish(options, StudyRun(study) if options.all else BenchmarkRun(study, baseline))


def sweep(options: Namespace) -> None:
    """Sweep a hyperparameter of a policy."""
    from fdkvc.paper.results import SweepRun

    policy = read_policy(options.policy)
    swept = policy.name, options.parameter
    if options.values is None:
        values = suggested_values(*swept)
    else:
        values = read_values(" ".join(options.values), *swept, MAX_RUN_NAMES)
    settings = settings_from(Sweep, options, policy=policy.name, values=values)
    warn_no_effect([policy])
    with running(options.workers) as execution:
        run = SweepRun.measure(settings, **execution)
    finish(options, run)


def trace(options: Namespace) -> None:
    """Run one policy on one dialog and write every step."""
    from fdkvc.player.entry_files import check_entries, trace_files, trace_text
    from fdkvc.player.run import DialogChoice, build_run

    scenario = _scenario(options)
    policy = read_policy(options.policy)
    warn_no_effect([policy])
    BUDGET.check(options.budget, "budget")
    SEED.check(options.seed, "seed")
    check_entries(policy, scenario, options.budget)
    check_values("metric", options.metrics)
    for key in options.metrics:
        metric_named(key)

    dialog = DialogChoice(scenario, options.seed, World())
    run = build_run(dialog, policy, options.budget, tuple(options.metrics))
    title = f"{policy.title} on {scenario.label} ({scenario.schedule}), seed {options.seed}"
    text = f"{title}\n\n{trace_text(run.trace, run.dialogs, options.metrics)}"
    write_files(options.out, trace_files({policy.name: run}))
    print_results(text, options.out)


def _scenario(options: Namespace) -> Scenario:
    if options.schedule is None:
        return scenario_named("mixed" if options.scenario is None else options.scenario)
    if options.scenario is not None:
        raise ValueError(
            f"--scenario {options.scenario} and --schedule {options.schedule} cannot be "
            "combined: give only one"
        )
    return custom_scenario(options.schedule)
