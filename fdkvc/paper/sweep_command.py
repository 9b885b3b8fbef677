"""``sweep``: hyperparameters of a policy."""

from argparse import Namespace

from fdkvc.paper.sweep import Sweep, read_values, suggested_values
from fdkvc.paper.sweep_results import SweepRun
from fdkvc.policies import read_policy
from fdkvc.runs.console import finish, running, warn_no_effect
from fdkvc.runs.options import settings_from
from fdkvc.runs.write import check_folder


def sweep(options: Namespace) -> None:
    """Sweep one or two hyperparameters of a policy, beside all other policies."""
    policy = read_policy(options.policy)
    names = [(options.parameter, options.values)]
    if options.second is not None:
        names.append((options.second, options.second_values))
    elif options.second_values is not None:
        raise ValueError("--second-values needs --second: name the hyperparameter")
    axes = tuple(
        (
            name,
            suggested_values(policy.name, name)
            if values is None
            else read_values(" ".join(values), policy.name, name, len(values)),
        )
        for name, values in names
    )
    settings = settings_from(Sweep, options, policy=policy.name, axes=axes)
    warn_no_effect([policy])
    check_folder(options.out)
    with running(options) as how:
        run = SweepRun.measure(settings, **how)
    finish(options, run)
