"""The sidebar: which dialog, which policy, which budget; made from the declared parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.dialogs.batch import DialogBatch
from fdkvc.dialogs.scenarios import SCENARIOS, Scenario, World, own_scenario, scenario_named
from fdkvc.parameters import BUDGET, SEED, Parameter, defaults_of, parameters_of
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named
from fdkvc.run.metrics import ASKED_METRICS, metric_named
from fdkvc.run.trace import Trace
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import Field
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.runs import DialogChoice
from fdkvc.ui.kit.transport import turn_field

OWN = "own"
SHOWN_OF_WORLD = ("tokens_per_turn", "noise")
ORDERS = {"age": "cells by age", "score": "by score"}
MOST_TURNS = 60
MOST_TOKENS = 128
BUDGET_HERE = replace(BUDGET, high=512)
MOST_BOUND = 120_000  # turns × tokens whose exact bound takes a few seconds


@dataclass(frozen=True)
class MetricsField(Field):
    """The keys of metrics; in a link ``regret,output_error``."""

    def parse(self, text: str) -> Any:
        """Read the keys from a link."""
        return list(dict.fromkeys(metric_named(key).key for key in text.split(",") if key))

    def written(self, value: Any) -> str:
        """Return the keys as they stand in a link."""
        return ",".join(value)


def _scenario_field(page: str) -> Field:
    known = Parameter("Scenario", "Which topic each turn is about.", choices=(*SCENARIOS, OWN))
    return Field(page, "scenario", "mixed", known)


def _schedule_field(page: str) -> Field:
    known = Parameter("Own schedule", "One letter a turn, A to Z: the turn's topic.")
    return Field(page, "schedule", "AAABBBCC", known)


def _seed_field(page: str) -> Field:
    return Field(page, "seed", 7, replace(SEED, help="Which dialog is drawn."))


def _budget_field(page: str) -> Field:
    return Field(page, "budget", 56, BUDGET_HERE)


def _policy_field(page: str) -> Field:
    known = Parameter("Policy", "Who decides what is evicted.", choices=tuple(POLICIES))
    return Field(page, "policy", "fd-kvc", known)


def _world_fields(page: str) -> list[Field]:
    defaults, known = defaults_of(World), parameters_of(World)
    bounded = {"tokens_per_turn": replace(known["tokens_per_turn"], high=MOST_TOKENS)}
    return [
        Field(page, name, defaults[name], bounded.get(name, known[name])) for name in SHOWN_OF_WORLD
    ]


def _hyperparameter_fields(page: str, policy: str) -> list[Field]:
    defaults = defaults_of(POLICIES[policy])
    return [
        Field(f"{page}/{policy}", name, defaults[name], known)
        for name, known in parameters_of(POLICIES[policy]).items()
    ]


def dialog_fields(page: str) -> list[Field]:
    """Return the fields that choose a dialog and a budget."""
    single = (_scenario_field(page), _schedule_field(page), _seed_field(page), _budget_field(page))
    return [*single, *_world_fields(page)]


def policy_fields(page: str, policy: str | None = None) -> list[Field]:
    """Return the fields that choose a policy: this one, or the one that the session holds."""
    chosen = _policy_field(page)
    key = policy if policy is not None and policy in POLICIES else str(chosen.value)
    return [chosen, *_hyperparameter_fields(page, key)]


def choose_dialog(page: str) -> tuple[DialogChoice, int]:
    """Show the controls of the dialog; return it and the budget."""
    labels = {key: scenario.label for key, scenario in SCENARIOS.items()}
    key = fields.choice(_scenario_field(page), {**labels, OWN: "Own schedule …"})
    scenario = _own_schedule(page) if key == OWN else scenario_named(key)
    seed_field = _seed_field(page)
    seed = fields.number(seed_field)

    def another() -> None:
        seed_field.set(int(seed) + 1)

    st.button(
        "Another dialog",
        key=f"{page}/another",
        icon=":material/casino:",
        shortcut="N",
        on_click=another,
        help="The next seed: the same schedule with other tokens.",
    )
    budget = fields.number(_budget_field(page))
    with st.expander("Tokens and noise"):
        world = World(**{field.name: fields.number(field) for field in _world_fields(page)})
    return DialogChoice(scenario, seed, world), budget


def _own_schedule(page: str) -> Scenario:
    """Ask for a schedule; keep to the last good one while it is not right."""
    field = _schedule_field(page)
    last = f"{field.key}/last"
    typed = fields.text(field, placeholder="AAABBBCC")
    try:
        scenario = own_scenario(typed)
        if len(scenario.schedule) > MOST_TURNS:
            raise ValueError(
                f"the schedule has {len(scenario.schedule)} turns, but at most {MOST_TURNS} "
                "are shown here"
            )
    except ValueError as error:
        kept: Scenario = st.session_state.get(last, own_scenario(field.default))
        st.error(plain(f"{error}. Staying at {kept.schedule}."), icon=":material/error:")
        return kept
    st.session_state[last] = scenario
    return scenario


def choose_metrics(page: str, size: int) -> tuple[str, ...]:
    """Show the choice of metrics beside the paper's, and return their keys.

    Parameters
    ----------
    page : str
    size : int
        The dialog's turns times its tokens, with which the exact bound takes longer.
    """
    field = asked_field(page)
    with st.expander("More metrics", expanded=bool(field.value)):
        labels = {key: metric.label for key, metric in ASKED_METRICS.items()}
        asked = fields.several(field, labels)
        if "regret" in asked and size > MOST_BOUND:
            st.error(
                plain(
                    f"Regret is left out: this dialog has {size:,} turns × tokens, and its bound "
                    f"is found at once for {MOST_BOUND:,} at most. The command line has no such "
                    "limit."
                ),
                icon=":material/error:",
            )
            asked = tuple(key for key in asked if key != "regret")
        return asked


def choose_policy(page: str) -> tuple[Policy, Mapping[str, DeltaGenerator]]:
    """Show the controls of the policy; return it, and a place beside each rule's threshold."""
    key = fields.choice(
        _policy_field(page), {key: policy.label for key, policy in POLICIES.items()}
    )
    st.caption(plain(POLICIES[key].idea))
    hyperparameters = _hyperparameter_fields(page, key)

    def restore() -> None:
        for field in hyperparameters:
            field.set(field.default)

    values, beside = choose_hyperparameters(hyperparameters)
    if hyperparameters:
        papers = key in PAPER_POLICIES and any(field.parameter.paper for field in hyperparameters)
        st.button(
            "Restore the paper's" if papers else "Restore the defaults",
            key=f"{page}/restore",
            icon=":material/restart_alt:",
            on_click=restore,
            disabled=all(values[field.name] == field.default for field in hyperparameters),
        )
    return policy_named(key, **values), beside


def choose_hyperparameters(
    chosen: Sequence[Field], columns: int = 1
) -> tuple[dict[str, Any], dict[str, DeltaGenerator]]:
    """Show the paper's hyperparameters, and behind a click those that the paper does not have.

    Parameters
    ----------
    chosen : sequence of Field
    columns : int
        How many stand side by side.

    Returns
    -------
    tuple of (mapping of str to value, mapping of str to DeltaGenerator)
        What was chosen, by name; and a place beside each rule's threshold.
    """
    papers = [field for field in chosen if field.parameter.paper]
    others = [field for field in chosen if not field.parameter.paper]
    values, beside = {}, {}
    for place, field in _placed(papers, columns):
        with place:
            values[field.name] = fields.hyperparameter(field)
            if field.parameter.rule:
                beside[field.parameter.rule] = st.empty()
    changed = any(field.value != field.default for field in others)
    with st.expander("Beyond the paper", expanded=changed) if papers else st.container():
        for place, field in _placed(others, columns):
            with place:
                values[field.name] = fields.hyperparameter(field)
    return values, beside


def _placed(chosen: Sequence[Field], columns: int) -> Iterator[tuple[DeltaGenerator, Field]]:
    """Yield each field with the column that it stands in."""
    if chosen:
        yield from zip(cycle(st.columns(columns)), chosen, strict=False)


def tell_rules(beside: Mapping[str, DeltaGenerator], trace: Trace) -> None:
    """Say beside each rule's threshold how many entries it evicted in this run."""
    for rule, place in beside.items():
        count = int(trace.evicted[rule].sum())
        entries = f"{count or 'no'} entr{'y' if count == 1 else 'ies'}"
        place.caption(plain(f"It evicted {entries} in this run."))


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Let the page show what a link asks for; return a sentence for each part that is not right.

    Parameters
    ----------
    page : str
    link : mapping of str to str
        From `fields.arriving_link`; empty where no link was followed.
    """
    return fields.adopt_link(_all_fields(page, link.get("policy")), link)


def show(page: str, view: Mapping[str, str]) -> None:
    """Let the page show this view, as a link would; only from a callback."""
    fields.adopt(_all_fields(page, view.get("policy")), view)


def _all_fields(page: str, policy: str | None = None) -> list[Field]:
    return [
        *dialog_fields(page),
        *policy_fields(page, policy),
        *view_fields(page),
        order_field(page),
        asked_field(page),
    ]


def view_fields(page: str) -> list[Field]:
    """Return the fields of what is looked at: the turn, and the entry that was picked."""
    return [turn_field(page), entry_field(page)]


def keep_to_dialog(page: str, dialogs: DialogBatch, link: Mapping[str, str]) -> list[str]:
    """Take the turn and the entry to what a dialog has; say where a link asked for others.

    Parameters
    ----------
    page : str
    dialogs : DialogBatch
        The one that is shown.
    link : mapping of str to str
        From `fields.arriving_link`; empty where no link was followed.
    """
    last_turn, last_token = dialogs.turns - 1, int(dialogs.bounds[0, -1]) - 1
    wrong = []
    for field, last, kept in (
        (turn_field(page), last_turn, last_turn),
        (entry_field(page), last_token, None),
    ):
        here = replace(field, parameter=replace(field.parameter, high=last))
        try:
            here.check(field.value)
        except ValueError as error:
            field.set(kept)
            if field.name in link:
                wrong.append(fields.not_quite_right(field, f"{error} in this dialog", kept))
    return wrong


def asked_field(page: str) -> Field:
    """Return the field that holds the metrics asked for beside the paper's."""
    return MetricsField(page, "metrics", (), Parameter("Beside the paper's three", ""))


def entry_field(page: str) -> Field:
    """Return the field that holds the entry a person has picked, if any."""
    known = Parameter("Entry", "Which token.", low=0, high=10**6)
    return Field(page, "entry", None, known, chosen=False)


def order_field(page: str) -> Field:
    """Return the field that holds the order of the cache's cells."""
    known = Parameter("Order", "", choices=tuple(ORDERS))
    return Field(page, "order", "age", known, chosen=False)


def write_link(page: str) -> None:
    """Put the whole view into the page's address."""
    fields.write_link(_all_fields(page))
