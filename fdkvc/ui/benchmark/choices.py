"""The sidebar of the benchmark: which scenarios and policies, how many dialogs."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.measured.benchmark import Benchmark
from fdkvc.parameters import DIALOGS, SEED, Parameter
from fdkvc.run.metrics import ASKED_METRICS, METRICS
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import BUDGET_HERE
from fdkvc.ui.kit.variants import choose_policies

DIALOGS_HERE = replace(DIALOGS, high=2000)
"""Dialogs a scenario that a run on the page may have: it shares its server with others."""


def dialogs_field(page: str, default: int, known: Parameter = DIALOGS_HERE) -> Field:
    """Return the field that holds the number of dialogs."""
    return Field(page, "dialogs", default, known)


def seed_field(page: str) -> Field:
    """Return the field that holds the seed."""
    return Field(page, "seed", 0, SEED)


def budget_field(page: str) -> Field:
    """Return the field that holds the budget."""
    return Field(page, "budget", Benchmark.budget, BUDGET_HERE)


def choose_metrics(page: str) -> tuple[str, ...]:
    """Show the choice of metrics and return their keys."""
    known = Parameter(
        "Metrics",
        "Those beyond the paper's three cost more; regret above all, about a minute for 1,000 "
        "dialogs of five scenarios.",
    )
    return fields.several(
        Field(page, "metrics", tuple(METRICS), known),
        {key: metric.label for key, metric in {**METRICS, **ASKED_METRICS}.items()},
    )


def choose_benchmark(page: str) -> Benchmark:
    """Show the controls and return the benchmark."""
    scenarios = fields.several(
        Field(page, "scenarios", tuple(SCENARIOS), Parameter("Scenarios", "")),
        {key: scenario.label for key, scenario in SCENARIOS.items()},
    )
    policies = choose_policies(page)
    benchmark = Benchmark(
        scenarios=tuple(SCENARIOS[key] for key in scenarios),
        policies=policies,
        metrics=choose_metrics(page),
        dialogs=fields.number(dialogs_field(page, Benchmark.dialogs)),
        seed=fields.number(seed_field(page)),
        budget=fields.number(budget_field(page)),
    )
    st.caption(
        plain(
            f"At most {DIALOGS_HERE.high:,} dialogs a scenario run here, because the server is "
            "shared. The command line runs more:"
        )
    )
    st.code(command_line(benchmark), language=None, wrap_lines=True)
    return benchmark


def command_line(benchmark: Benchmark, dialogs: int = 6000) -> str:
    """Return the command that runs this benchmark with more dialogs."""
    scenarios = " ".join(scenario.key for scenario in benchmark.scenarios)
    policies = " ".join(policy.name.replace(" ", ":") for policy in benchmark.policies)
    return (
        f"python -m fdkvc study --dialogs {dialogs} --seed {benchmark.seed} "
        f"--budget {benchmark.budget} --scenarios {scenarios} --policies {policies} "
        f"{metrics_option(benchmark.metrics)}--out results"
    )


def metrics_option(metrics: tuple[str, ...]) -> str:
    """Return the option by which the command line measures these; empty for the paper's."""
    return "" if metrics == tuple(METRICS) else f"--metrics {' '.join(metrics)} "
