"""The sidebar: which dialog, which policy, which budget; made from the declared fields."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from typing import Any

import streamlit as st

from fdkvc.core.limits import MAX_SCHEDULE_TURNS
from fdkvc.core.parameters import BUDGET, SEED, Field, check_most, fields_of
from fdkvc.core.words import listed, sentence
from fdkvc.engine.metrics import default_metrics, metrics_of
from fdkvc.explain.notes import setting_changes
from fdkvc.player.run import DialogChoice
from fdkvc.policies import (
    PAPER_POLICIES,
    WRAPPERS,
    Policy,
    policy_named,
    read_policy,
    synthetic_policies,
    wrapped,
)
from fdkvc.policies.wrapper import Wrapper, inside
from fdkvc.synthetic.scenarios import (
    SCENARIOS,
    Scenario,
    World,
    custom_scenario,
    scenario_named,
)
from fdkvc.ui import fields
from fdkvc.ui.fields import held, hold
from fdkvc.ui.glossary import WORDS
from fdkvc.ui.markdown import plain


def read_name(text: str) -> str:
    """Read the name of a policy from a link, such as ``fd-kvc:gamma=0.8``."""
    return read_policy(text).name


OWN = "own"
SCENARIO = Field(
    "Scenario",
    "Which topic each turn is about.",
    name="scenario",
    default="mixed",
    choices={**SCENARIOS, OWN: "Custom schedule …"},
    follows=True,
)
SCHEDULE = Field(
    "Custom schedule",
    "One letter a turn, A to Z: the turn's topic.",
    name="schedule",
    default="AAABBBCC",
    follows=True,
)
SEED_HERE = replace(SEED, help="Which dialog is generated.", default=7, follows=True)
BUDGET_HERE = replace(BUDGET, high=512, follows=True)
_OFFERED = [field for field in fields_of(World) if field.name in ("tokens_per_turn", "noise")]
WORLD = [replace(field, high=min(field.high, 128), follows=True) for field in _OFFERED]
POLICY = Field(
    "Policy",
    "Decides which entries are evicted.",
    name="policy",
    default="fd-kvc",
    choices=synthetic_policies(),
    read=read_name,
)
NOTHING = ""
AROUND = Field(
    "Wrapper",
    WORDS["Wrapper"],
    name="around",
    default=NOTHING,
    choices={NOTHING: "none", **WRAPPERS},
)
MEASURED = Field(
    "Metrics",
    "Metrics beyond the paper's three take longer.",
    name="metrics",
    default=default_metrics(),
    choices=metrics_of(),
)
MORE_METRICS = Field(
    "Beyond the paper's three", name="metrics", default=(), choices=metrics_of(optional=True)
)
ENTRY = Field(
    "Entry", "Which token.", name="entry", low=0, high=10**6, chosen=False, follows=True
)

DIALOG = (SCENARIO, SCHEDULE, SEED_HERE, BUDGET_HERE, *WORLD)
"""The fields that choose a dialog and a budget."""

TURN = Field("Turn", name="turn", default=0, low=0, high=9999, chosen=False)
"""The turn that a page shows."""

LOOK = (replace(TURN, follows=True), ENTRY)
"""The turn that is shown, and the selected entry, which a stage changes."""

LANES = "policies"
"""The name under which the policies of lanes carry over from page to page."""


def choose_dialog(page: str) -> tuple[DialogChoice, int]:
    """Show the controls of the dialog; return it and the budget."""
    key = fields.choice(page, SCENARIO)
    scenario = (
        fields.text(page, SCHEDULE, _custom_scenario) if key == OWN else scenario_named(key)
    )
    seed = fields.number(page, SEED_HERE)
    st.button(
        "Another dialog",
        key=f"{page}/another",
        icon=":material/casino:",
        shortcut="N",
        on_click=hold,
        args=(page, SEED_HERE, seed + 1),
        help="The next seed: the same schedule with other tokens. Key: N.",
    )
    budget = fields.number(page, BUDGET_HERE)
    with st.expander("Tokens and noise"):
        world = World(**fields.numbers(page, WORLD))
    return DialogChoice(scenario, seed, world), budget


def _custom_scenario(typed: str) -> Scenario:
    scenario = custom_scenario(typed)
    check_most("the schedule has", len(scenario.schedule), "turns", MAX_SCHEDULE_TURNS)
    return scenario


def choose_metrics(page: str) -> tuple[str, ...]:
    """Show the choice of metrics beside the paper's, and return their keys."""
    with st.expander("More metrics", expanded=bool(held(page, MORE_METRICS))):
        return fields.several(page, MORE_METRICS)


def choose_policy(page: str) -> Policy:
    """Show the controls of the policy, and return it."""
    _follow_lanes(page)
    name = fields.choice(page, with_policy(POLICY, held(page, POLICY)))
    policy = choose_around(page, read_policy(name))
    for inner_policy in reversed([*inside(policy)]):
        st.caption(plain(inner_policy.idea))
    hyperparameters = policy.settings.values()
    if hyperparameters:
        # What differs stands above the controls, and is known once they are drawn.
        differ = st.empty()
        with st.expander("Hyperparameters", icon=":material/tune:"):
            variant = policy.variant(**choose_hyperparameters(page, hyperparameters))
            changes = setting_changes(variant, policy)
            st.button(
                "Restore the paper's values"
                if has_paper_values(policy)
                else "Restore the defaults",
                key=f"{page}/restore",
                icon=":material/restart_alt:",
                on_click=fields.reset,
                args=(page, hyperparameters),
                disabled=not changes,
            )
        if changes:
            differ.caption(plain(sentence(listed(changes))))
        policy = variant
    fields.share(POLICY.name, policy.name)
    return policy


def with_policy(field: Field, name: str) -> Field:
    """Return the choice of a policy with the one of this name among the choices."""
    named = {} if name in field.choices else {name: read_policy(name).title}
    return replace(field, choices={**field.labels, **named})


def choose_around(page: str, policy: Policy) -> Policy:
    """Show the choice of a wrapper that fits the policy; return the policy with it."""
    key = fields.choice(page, around_of(policy))
    return wrapped(key, policy) if key else policy


def around_of(policy: Policy) -> Field:
    """Return the choice of the wrappers that fit a policy."""
    fitting: dict[str, Any] = {NOTHING: "none"}
    for key, wrapper in WRAPPERS.items():
        with suppress(ValueError):  # the wrapper refuses this policy
            wrapped(key, policy)
            fitting[key] = wrapper
    return replace(AROUND, choices=fitting)


def with_numbers_apart(link: Mapping[str, str]) -> Mapping[str, str]:
    """Split a link's policy into policy, wrapper and hyperparameters; explicit ones win."""
    try:
        policy = read_policy(link[POLICY.name])
    except (KeyError, ValueError):
        return link
    # A variant's settings have its own values as defaults.
    numbers = {name: str(field.default) for name, field in policy.settings.items()}
    if isinstance(policy, Wrapper) and AROUND.name not in link:
        numbers[AROUND.name] = policy.key
        policy = policy.policy
    return {**numbers, **link, POLICY.name: as_published(policy).name}


def has_paper_values(policy: Policy) -> bool:
    """Whether the defaults of a policy are those of the paper."""
    return policy.key in PAPER_POLICIES and any(
        field.paper for field in policy.settings.values()
    )


def as_published(policy: Policy) -> Policy:
    """Return a policy, and what is inside it, with the default of every hyperparameter."""
    if isinstance(policy, Wrapper):
        return type(policy)(as_published(policy.policy))
    return policy_named(policy.key)


def held_policy(page: str, link: Mapping[str, str] | None = None) -> tuple[Policy, Policy]:
    """Return the policy of a link or else of the session, without and with its wrapper."""
    link_values = link or {}
    try:
        policy = read_policy(link_values.get(POLICY.name, held(page, POLICY)))
    except ValueError:
        policy = policy_named(POLICY.default)
    key = link_values.get(AROUND.name, NOTHING if link_values else held(page, AROUND))
    fits = key != NOTHING and key in around_of(policy).choices
    return policy, wrapped(key, policy) if fits else policy


def _follow_lanes(page: str) -> None:
    """Continue with the last policy of the previous page, unless this page has one of them."""
    lanes = fields.shared(page).get(LANES)
    if not lanes:
        return
    _, policy = held_policy(page)
    values = {name: fields.running(page, field) for name, field in policy.settings.items()}
    if policy.variant(**values).name not in lanes:
        link = with_numbers_apart({POLICY.name: lanes[-1]})
        fields.adopt(page, _policy_fields(page, link), link)


def _policy_fields(page: str, link: Mapping[str, str] | None = None) -> list[Field]:
    """Return the fields of the policy of a link, or else of the session's."""
    policy, outer_policy = held_policy(page, link)
    return [
        with_policy(POLICY, policy.name),
        around_of(policy),
        *outer_policy.settings.values(),
    ]


def choose_hyperparameters(
    page: str, chosen: Iterable[Field], columns: int = 1
) -> dict[str, Any]:
    """Show hyperparameters, first those that the paper varies; return their values by name."""
    values = {}
    papers_first = sorted(chosen, key=lambda field: not field.paper)
    # The controls go from column to column, then to the next row.
    for place, field in zip(cycle(st.columns(columns)), papers_first, strict=False):
        with place:
            values[field.name] = fields.control(page, field)
    return values


def view_fields(page: str, link: Mapping[str, str] | None = None) -> list[Field]:
    """Return the fields of the step page, for a link or else the session's values."""
    return [*DIALOG, *_policy_fields(page, link), *LOOK, MORE_METRICS]


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Apply a link to the step page; return a sentence for each error."""
    link = with_numbers_apart(link)
    return fields.adopt_link(page, view_fields(page, link), link)
