"""The controls of the benchmark: scenarios, policies and dialogs, in the sidebar."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import streamlit as st

from fdkvc.core.parameters import DIALOGS, SEED, Field
from fdkvc.core.words import command_line, count
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.page.past import Kind
from fdkvc.paper.results import StudyRun
from fdkvc.paper.shipped import papers_run
from fdkvc.runs.options import options_of
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui import fields
from fdkvc.ui.sidebar import BUDGET_HERE, MEASURED
from fdkvc.ui.variants import CHOSEN, choose_policies, warn_no_effect

ALL_SCENARIOS = Field(
    "Scenarios", name="scenarios", default=tuple(SCENARIOS), choices=SCENARIOS
)
DIALOGS_HERE = replace(DIALOGS, high=2000)
"""Dialogs per scenario of a run on the page."""

NUMBERS = (DIALOGS_HERE, SEED, replace(BUDGET_HERE, follows=False))

FIELDS = [ALL_SCENARIOS, *NUMBERS, CHOSEN, MEASURED]
"""Every field of the address."""


def choose_benchmark(page: str) -> Benchmark:
    """Show the controls and return the benchmark."""
    scenarios = fields.several(page, ALL_SCENARIOS)
    numbers = fields.numbers(page, NUMBERS)
    with st.expander("Policies and metrics", icon=":material/tune:"):
        policies = choose_policies(page)
        warn_no_effect(policies)
        metrics = fields.several(page, MEASURED)
    return Benchmark(
        tuple(SCENARIOS[key] for key in scenarios), policies, metrics=metrics, **numbers
    )


def _command(benchmark: Benchmark) -> str:
    return command_line("benchmark --all", options_of(replace(benchmark, dialogs=6000)))


def _link(benchmark: Benchmark) -> Mapping[str, str]:
    run_options = options_of(benchmark)
    link = {}
    for field in FIELDS:
        value = run_options.get(field.name, field.default)
        link[field.name] = field.written(value)
    return link


def _described(benchmark: Benchmark) -> str:
    """Return the settings of a run in words."""
    return (
        f"{count(benchmark.dialogs, 'dialog')} per scenario, seed {benchmark.seed}, "
        f"budget {benchmark.budget:,}, {count(len(benchmark.policies), 'policy', 'policies')}, "
        f"{count(len(benchmark.scenarios), 'scenario')}"
    )


# Made when it is first needed, since it reads the shipped run.
@cache
def kind() -> Kind:
    """Return what the page runs."""
    return Kind(
        "benchmark",
        Benchmark,
        StudyRun.measure,
        choose_benchmark,
        _command,
        f"At most {DIALOGS_HERE.high:,} dialogs per scenario",
        _link,
        lambda *_: FIELDS,
        _described,
        shipped=[StudyRun(papers_run().study)],
    )
