"""``sweep`` and its preset ``ablation``: hyperparameters of a policy."""

from __future__ import annotations

from argparse import Namespace

from fdkvc.commands.console import finish, running, warn_no_effect
from fdkvc.experiments.benchmark import Benchmark, Results, run_benchmark
from fdkvc.experiments.sweep import Sweep, read_values, suggested_values
from fdkvc.files.export import ablation_files
from fdkvc.files.options import settings_from
from fdkvc.files.studies import sweep_files
from fdkvc.files.text import ablation_text, sweep_text
from fdkvc.files.write import check_folder
from fdkvc.policies import read_policy


def sweep(options: Namespace) -> None:
    """Sweep one or two hyperparameters of a policy, beside all other policies."""
    settings = _settings(options)
    results = _measure(options, settings.benchmark)
    finish(options, sweep_files(settings, results), sweep_text(settings, results))


def ablation(options: Namespace) -> None:
    """Sweep one hyperparameter of FD-KVC, without the other policies."""
    results = _measure(options, _settings(options).alone)
    names = results, options.parameter
    finish(options, ablation_files(*names), ablation_text(*names))


def _settings(options: Namespace) -> Sweep:
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
    return settings


def _measure(options: Namespace, benchmark: Benchmark) -> Results:
    check_folder(options.out)
    with running(options) as arguments:
        return run_benchmark(benchmark, **arguments)
