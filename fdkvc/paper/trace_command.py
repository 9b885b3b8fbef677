"""``trace``: everything that happens in one dialog under one policy."""

from argparse import Namespace

from fdkvc.core.parameters import BUDGET, SEED
from fdkvc.engine.metrics import metric_named
from fdkvc.engine.simulate import simulate
from fdkvc.player.entry_files import check_entries, trace_files, trace_text
from fdkvc.policies import read_policy
from fdkvc.runs.console import print_results, warn_no_effect
from fdkvc.runs.jobs import check_different
from fdkvc.runs.write import check_folder, write_files
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import Scenario, custom_scenario, scenario_named


def trace(options: Namespace) -> None:
    """Run one policy on one dialog and write every step."""
    scenario = _scenario(options)
    policy = read_policy(options.policy)
    warn_no_effect([policy])
    BUDGET.check(options.budget, "budget")
    SEED.check(options.seed, "seed")
    check_entries(policy, scenario, options.budget)
    check_different("metric", options.metrics)
    for key in options.metrics:
        metric_named(key)
    check_folder(options.out)

    dialogs = generate(scenario, 1, options.seed)
    trace = simulate(policy, dialogs, options.budget)
    title = f"{policy.title} on {scenario.label} ({scenario.schedule}), seed {options.seed}"
    text = f"{title}\n\n{trace_text(trace, dialogs, options.metrics)}"
    write_files(options.out, trace_files(trace, dialogs, options.metrics))
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
