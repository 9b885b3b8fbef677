"""The sidebar of the ablation page: what is swept, on which dialogs."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.measured.sweep import Number, Sweep, can_be_swept, read_values, suggested_values
from fdkvc.paper.tables import ABLATED_POLICY, ABLATED_SCENARIO
from fdkvc.parameters import DIALOGS, Parameter, defaults_of, parameters_of
from fdkvc.policies import POLICIES
from fdkvc.ui.benchmark.choices import (
    budget_field,
    choose_metrics,
    dialogs_field,
    metrics_option,
    seed_field,
)
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.markdown import plain

MOST_VALUES = 12
"""Values of a hyperparameter; of two, this many squared settings run."""

DIALOGS_HERE = replace(DIALOGS, high=600)
"""Dialogs that a sweep on the page may have."""

NONE = "–"


def choose_sweep(page: str) -> Sweep:
    """Show the controls and return the sweep."""
    able = [key for key in POLICIES if can_be_swept(key)]
    policy = fields.choice(
        Field(page, "policy", ABLATED_POLICY, Parameter("Policy", "", choices=tuple(able))),
        {key: POLICIES[key].label for key in able},
    )
    known = parameters_of(POLICIES[policy])
    labels = {name: known[name].label for name in can_be_swept(policy)}
    first = fields.choice(
        Field(
            f"{page}/{policy}",
            "first",
            "gamma" if "gamma" in labels else next(iter(labels)),
            Parameter("Hyperparameter", ""),
        ),
        labels,
    )
    axes = [(first, _values(page, policy, first))]
    others = {NONE: "none", **{name: label for name, label in labels.items() if name != first}}
    if len(others) > 1:
        second = fields.choice(
            Field(
                f"{page}/{policy}/{first}",
                "second",
                NONE,
                Parameter("And a second one", "Two at once give a heat map."),
            ),
            others,
        )
        if second != NONE:
            axes.append((second, _values(page, policy, second)))
    scenario = fields.choice(
        Field(page, "scenario", ABLATED_SCENARIO, Parameter("Scenario", "")),
        {key: scenario.label for key, scenario in SCENARIOS.items() if key != "adaptation"},
    )
    sweep = Sweep(
        policy=policy,
        axes=tuple(axes),
        scenario=SCENARIOS[scenario],
        metrics=choose_metrics(page),
        dialogs=fields.number(dialogs_field(page, 200, DIALOGS_HERE)),
        seed=fields.number(seed_field(page)),
        budget=fields.number(budget_field(page)),
    )
    st.caption(
        plain(
            f"At most {MOST_VALUES} values of a hyperparameter and {DIALOGS_HERE.high} dialogs run "
            "here, because the server is shared. The command line runs more:"
        )
    )
    st.code(command_line(sweep), language=None, wrap_lines=True)
    return sweep


def _values(page: str, policy: str, name: str) -> tuple[Number, ...]:
    """Ask for the values of a hyperparameter; keep to the last good ones."""
    suggested = suggested_values(policy, name)
    known = parameters_of(POLICIES[policy])[name]
    kind = type(defaults_of(POLICIES[policy])[name])
    field = Field(
        f"{page}/{policy}/values",
        name,
        " ".join(f"{value:g}" for value in suggested),
        Parameter(f"Values of {known.label.lower()}", f"Each {known.allowed(kind)}."),
    )
    last = f"{field.key}/last"
    typed = fields.text(field)
    try:
        values = read_values(typed, policy, name, MOST_VALUES)
    except ValueError as error:
        kept: tuple[Number, ...] = st.session_state.get(last, suggested)
        shown = " ".join(f"{value:g}" for value in kept)
        st.error(plain(f"{error}. Staying at {shown}."), icon=":material/error:")
        return kept
    st.session_state[last] = values
    return values


def command_line(sweep: Sweep, dialogs: int = 2000) -> str:
    """Return the command that runs this sweep with more dialogs."""
    options = ("--parameter", "--values"), ("--second", "--second-values")
    axes = " ".join(
        f"{option} {name} {values_option} {' '.join(f'{value:g}' for value in values)}"
        for (option, values_option), (name, values) in zip(options, sweep.axes, strict=False)
    )
    return (
        f"python -m fdkvc sweep --policy {sweep.policy} {axes} --scenario {sweep.scenario.key} "
        f"--dialogs {dialogs} --seed {sweep.seed} --budget {sweep.budget} "
        f"{metrics_option(sweep.metrics)}--out results"
    )
