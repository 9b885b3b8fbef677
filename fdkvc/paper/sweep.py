"""Sweeps: one hyperparameter of a policy over many values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdkvc.core.parameters import BUDGET, DIALOGS, SEED, check_most, read_number
from fdkvc.engine.metrics import default_metrics
from fdkvc.paper.benchmark import ADAPTATION, PAPERS_METRICS, Benchmark
from fdkvc.paper.published import ABLATED_POLICY, ABLATED_SCENARIO, published_sweep
from fdkvc.policies import Policy, read_policy
from fdkvc.runs.options import HELD, number, option
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS, Scenario

STEPS = 7
"""Default number of values where the paper has none."""

Number = int | float


@dataclass(frozen=True)
class Sweep:
    """What to sweep; raises a ValueError of one sentence for what cannot be swept."""

    policy: str = ABLATED_POLICY
    """A policy's name: its key, or a line such as ``blocks(h2o)``."""
    parameter: str = "gamma"
    """The swept hyperparameter."""
    values: tuple[Number, ...] = published_sweep("gamma")
    scenario: Scenario = option(  # noqa: RUF009, declares a field
        "scenario to run", default=SCENARIOS[ABLATED_SCENARIO]
    )
    dialogs: int = number(DIALOGS, "dialogs per setting", 200)
    seed: int = number(SEED, "random seed")
    budget: int = number(BUDGET, HELD)
    metrics: tuple[str, ...] = option(PAPERS_METRICS, default_factory=default_metrics)

    def __post_init__(self) -> None:
        check_sweepable(self.policy, self.parameter)
        if not self.values:
            raise ValueError(f"{self.parameter} has no values to sweep")
        if self.scenario.key == ADAPTATION:
            raise ValueError(
                "the adaptation run has no late metrics to sweep: choose from "
                f"{', '.join(BENCHMARK_SCENARIOS)}"
            )
        _ = self.benchmark  # checks the values and all other settings

    @property
    def variants(self) -> tuple[Policy, ...]:
        """The policy with each value."""
        base = read_policy(self.policy)
        return tuple(base.variant(**{self.parameter: value}) for value in self.values)

    @property
    def benchmark(self) -> Benchmark:
        """The variants on the same dialogs."""
        return Benchmark(
            scenarios=(self.scenario,),
            policies=self.variants,
            dialogs=self.dialogs,
            seed=self.seed,
            budget=self.budget,
            metrics=self.metrics,
        )


def suggested_values(policy: str, parameter: str) -> tuple[Number, ...]:
    """Return values to sweep: the paper's, else steps over its range, else over the allowed range.

    Examples
    --------
    >>> suggested_values("fd-kvc", "gamma")
    (0.7, 0.75, 0.8, 0.85, 0.88, 0.92)
    >>> suggested_values("h2o", "window")
    (0.0, 0.1667, 0.3333, 0.5, 0.6667, 0.8333, 1.0)
    """
    check_sweepable(policy, parameter)
    if policy == ABLATED_POLICY and published_sweep(parameter):
        return published_sweep(parameter)
    field = read_policy(policy).settings[parameter]
    default = field.default
    low, high = field.paper or (field.low, field.high)
    if math.isinf(high):  # no upper end: up to four times the default
        high = max(4 * default, 1)
    steps = np.linspace(low, high, STEPS)
    if not field.accepts(low, type(default)):  # an open lower end
        steps = steps[1:]
    if isinstance(default, int):
        return tuple(dict.fromkeys(map(int, steps.round())))
    return tuple(float(f"{step:.4g}") for step in steps)


def read_values(text: str, policy: str, parameter: str, max_values: int) -> tuple[Number, ...]:
    """Read the values of a sweep from text such as ``0.1 0.3 0.5`` or ``0.1, 0.3``.

    Examples
    --------
    >>> read_values("0.9, 0.5", "fd-kvc", "gamma", 10)
    (0.5, 0.9)
    >>> read_values("0.5 1", "fd-kvc", "gamma", 10)
    Traceback (most recent call last):
    ValueError: gamma is 1.0, but must be a number above 0 and below 1
    """
    check_sweepable(policy, parameter)
    base = read_policy(policy)
    is_integer = base.settings[parameter].kind is int
    values = []
    for word in text.replace(",", " ").split():
        value = read_number(word, int if is_integer else float)
        if isinstance(value, str):
            kind = "whole numbers" if is_integer else "numbers"
            raise ValueError(f"{parameter} has the value {word!r}, but takes {kind}")
        values.append(value)
    if not values:
        raise ValueError(f"{parameter} has no values to sweep: give some, such as 0.1 0.3")
    check_most(f"{parameter} has", len(values), "values", max_values)
    for value in values:
        base.variant(**{parameter: value})
    return tuple(sorted(set(values)))


def check_sweepable(policy: str, parameter: str) -> None:
    """Raise a ValueError unless this is a numeric hyperparameter of the policy."""
    names = sweepable(policy)
    if parameter not in names:
        raise ValueError(
            f"parameter {parameter!r} is unknown to {policy}: choose from "
            f"{', '.join(names) or 'none'}"
        )


def sweepable(policy: str) -> Sequence[str]:
    """Return the numeric hyperparameters of a policy."""
    settings = read_policy(policy).settings.items()
    return [name for name, field in settings if not field.choices and field.kind is not str]
