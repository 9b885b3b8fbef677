"""The sidebar of the ablation page: what is swept, on which dialogs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.measured.sweep import Number, Sweep, can_be_swept, read_values, suggested_values
from fdkvc.paper.tables import ABLATED_POLICY, ABLATED_SCENARIO
from fdkvc.parameters import DIALOGS, SEED, Field, fields_of
from fdkvc.policies import POLICIES
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import BUDGET_HERE, MEASURED, POLICY, SCENARIO

MOST_VALUES = 12
"""Values of a hyperparameter; of two, this many squared settings run."""

NONE = "–"

SWEPT_POLICY = replace(
    POLICY,
    default=ABLATED_POLICY,
    choices={key: policy for key, policy in POLICIES.items() if can_be_swept(key)},
)
FIRST = Field("Hyperparameter", "", name="first", default="gamma")
SECOND = Field("And a second one", "Two at once give a heat map.", name="second", default=NONE)
SWEPT_SCENARIO = replace(
    SCENARIO,
    default=ABLATED_SCENARIO,
    choices={key: each for key, each in SCENARIOS.items() if key != "adaptation"},
)
DIALOGS_HERE = replace(DIALOGS, default=200, high=600)
"""Dialogs that a sweep on the page may have."""


def choose_sweep(page: str) -> Sweep:
    """Show the controls and return the sweep."""
    policy = fields.choice(page, SWEPT_POLICY)
    labels = {known.name: known.label for known in fields_of(POLICIES[policy]) if not known.choices}
    start = FIRST.default if FIRST.default in labels else next(iter(labels))
    first = fields.choice(f"{page}/{policy}", replace(FIRST, default=start, choices=labels))
    axes = [(first, _values(page, policy, first))]
    others = {NONE: "none", **{name: label for name, label in labels.items() if name != first}}
    if len(others) > 1:
        second = fields.choice(f"{page}/{policy}/{first}", replace(SECOND, choices=others))
        if second != NONE:
            axes.append((second, _values(page, policy, second)))
    sweep = Sweep(
        policy=policy,
        axes=tuple(axes),
        scenario=SCENARIOS[fields.choice(page, SWEPT_SCENARIO)],
        metrics=fields.several(page, MEASURED),
        **fields.numbers(page, (DIALOGS_HERE, SEED, BUDGET_HERE)),
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
    (known,) = [known for known in fields_of(POLICIES[policy]) if known.name == name]
    field = Field(
        f"Values of {known.label.lower()}",
        f"Each {known.allowed(known.kind)}.",
        name=name,
        default=" ".join(f"{value:g}" for value in suggested_values(policy, name)),
    )
    return fields.text(
        f"{page}/{policy}/values",
        field,
        lambda typed: read_values(typed, policy, name, MOST_VALUES),
    )


def command_line(sweep: Sweep, dialogs: int = 2000) -> str:
    """Return the command that runs this sweep with more dialogs."""
    axes = zip(("parameter", "second"), ("values", "second_values"), sweep.axes, strict=False)
    options: dict[str, Any] = {"policy": sweep.policy}
    for parameter, values, (name, tried) in axes:
        options |= {parameter: name, values: [f"{value:g}" for value in tried]}
    options |= {"scenario": sweep.scenario.key, "dialogs": dialogs, "seed": sweep.seed}
    return fields.command_line(
        "sweep", options | {"budget": sweep.budget, "metrics": sweep.metrics}
    )
