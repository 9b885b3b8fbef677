"""The sidebar of the benchmark: which scenarios and policies, how many dialogs."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.measured.benchmark import Benchmark
from fdkvc.parameters import DIALOGS, SEED, Field
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import BUDGET_HERE, MEASURED
from fdkvc.ui.kit.variants import choose_policies

ALL_SCENARIOS = Field(
    "Scenarios", "", name="scenarios", default=tuple(SCENARIOS), choices=SCENARIOS
)
DIALOGS_HERE = replace(DIALOGS, high=2000)
"""Dialogs a scenario that a run on the page may have: it shares its server with others."""


def choose_benchmark(page: str) -> Benchmark:
    """Show the controls and return the benchmark."""
    scenarios = fields.several(page, ALL_SCENARIOS)
    policies = choose_policies(page)
    metrics = fields.several(page, MEASURED)
    numbers = fields.numbers(page, (DIALOGS_HERE, SEED, BUDGET_HERE))
    st.caption(
        plain(
            f"At most {DIALOGS_HERE.high:,} dialogs a scenario run here, because the server is "
            "shared. The command line runs more:"
        )
    )
    names = [policy.name for policy in policies]
    chosen = {"scenarios": scenarios, "policies": names, "metrics": metrics}
    more = fields.command_line("study", {**numbers, "dialogs": 6000, **chosen})
    st.code(more, language=None, wrap_lines=True)
    return Benchmark(
        tuple(SCENARIOS[key] for key in scenarios), policies, metrics=metrics, **numbers
    )
