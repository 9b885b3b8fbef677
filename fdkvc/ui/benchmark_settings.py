"""The sidebar of the benchmark: which scenarios and policies, how many dialogs."""

from __future__ import annotations

import streamlit as st

from fdkvc.benchmark import Benchmark
from fdkvc.dialogs import SCENARIOS
from fdkvc.parameters import Parameter
from fdkvc.policies import PAPER_POLICIES, POLICIES, policy_named
from fdkvc.tables import BASELINE
from fdkvc.ui import fields
from fdkvc.ui.fields import Field

MOST_DIALOGS = 2000
"""Dialogs a scenario that a run on the page may have: it shares its server with others."""

MOST_BUDGET = 512


def dialogs_field(page: str, default: int) -> Field:
    """Return the field that holds the number of dialogs."""
    known = Parameter(
        "Dialogs a scenario", "More give narrower intervals.", low=1, high=MOST_DIALOGS
    )
    return Field(page, "dialogs", default, known)


def seed_field(page: str) -> Field:
    """Return the field that holds the seed."""
    known = Parameter("Seed", "The same seed gives the same numbers.", low=0, high=2**31)
    return Field(page, "seed", 0, known)


def budget_field(page: str) -> Field:
    """Return the field that holds the budget."""
    known = Parameter(
        "Budget", "Entries that the cache may hold after a turn.", low=1, high=MOST_BUDGET
    )
    return Field(page, "budget", Benchmark.budget, known)


def choose_benchmark(page: str) -> tuple[Benchmark, str]:
    """Show the controls; return the benchmark, and the policy that others are compared with."""
    scenarios = fields.several(
        Field(page, "scenarios", tuple(SCENARIOS), Parameter("Scenarios", "")),
        {key: scenario.label for key, scenario in SCENARIOS.items()},
    )
    policies = fields.several(
        Field(page, "policies", PAPER_POLICIES, Parameter("Policies", "")),
        {key: policy.label for key, policy in POLICIES.items()},
    )
    baseline = fields.choice(
        Field(
            page,
            "baseline",
            BASELINE if BASELINE in policies else policies[0],
            Parameter("Compared with", "The paper compares with H2O."),
        ),
        {key: POLICIES[key].label for key in policies},
    )
    dialogs = fields.number(dialogs_field(page, Benchmark.dialogs))
    seed = fields.number(seed_field(page))
    budget = fields.number(budget_field(page))
    benchmark = Benchmark(
        scenarios=tuple(SCENARIOS[key] for key in scenarios),
        policies=tuple(policy_named(key) for key in policies),
        dialogs=dialogs,
        seed=seed,
        budget=budget,
    )
    st.caption(
        f"At most {MOST_DIALOGS:,} dialogs a scenario run here, because the server is shared. "
        "More run from the command line:"
    )
    st.code(command_line(benchmark, baseline), language="bash", wrap_lines=True)
    return benchmark, baseline


def command_line(benchmark: Benchmark, baseline: str) -> str:
    """Return the command that runs this benchmark with more dialogs."""
    scenarios = " ".join(scenario.key for scenario in benchmark.scenarios)
    policies = " ".join(policy.key for policy in benchmark.policies)
    return (
        f"python -m fdkvc benchmark --dialogs 6000 --seed {benchmark.seed} "
        f"--budget {benchmark.budget} --scenarios {scenarios} --policies {policies} "
        f"--baseline {baseline} --out results"
    )
