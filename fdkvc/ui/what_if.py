"""What if: one of the runs, continued after a turn with something changed, as a lane of its own."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fdkvc.compare import first_difference
from fdkvc.fork import Fork
from fdkvc.parameters import Parameter
from fdkvc.policies import read_policy
from fdkvc.ui import fields
from fdkvc.ui.fields import Field
from fdkvc.ui.frame import problems
from fdkvc.ui.lanes import FORK, Lane, overlap, pair_fields
from fdkvc.ui.runs import load_fork
from fdkvc.ui.settings import MOST_BUDGET, entry_field
from fdkvc.ui.transport import turn_field
from fdkvc.ui.variants import PolicyField, edit_policy
from fdkvc.words import listed, sentence

ENTRY_CHOICES = {"leave": "Leave it", "pin": "Pin it", "drop": "Drop it"}


def fork_fields(page: str) -> tuple[Field, ...]:
    """Return the fields that hold the fork: of which lane, after which turn, with what changed."""
    token = Parameter("Entry of the fork", "", low=0, high=10**6)
    return (
        PolicyField(page, "fork", "", Parameter("Fork", "")),
        Field(page, "fork_turn", None, Parameter("Turn of the fork", "", low=0, high=9999)),
        PolicyField(page, "fork_policy", "", Parameter("Policy of the fork", "")),
        Field(page, "fork_budget", None, Parameter("Its budget", "", low=1, high=MOST_BUDGET)),
        Field(page, "pinned", None, token),
        Field(page, "dropped", None, token),
    )


def ask(page: str, lanes: Sequence[Lane]) -> None:
    """Show the button behind which a person changes a run from the current turn on."""
    forks = f"{page}/forks"  # how many there were: a popover of another name is a closed one
    number = st.session_state.get(forks, 0)
    with st.popover("What if …", icon=":material/alt_route:", key=f"{page}/what-if/{number}"):
        st.markdown("Continue one run **after the turn that is shown**, with something changed.")
        labels = {lane.name: lane.label for lane in lanes}
        draft = f"{page}/draft"
        run = Parameter("Run", "", choices=tuple(labels))
        chosen = Field(draft, "run", lanes[-1].name, run)
        if chosen.value not in labels:
            chosen.set(lanes[-1].name)
        name = fields.choice(chosen, labels)
        origin = next(lane for lane in lanes if lane.name == name)
        policy = edit_policy(f"{draft}/{name}", origin.run.choice.policy)
        known = Parameter("Budget", "A smaller one evicts at once.", low=1, high=MOST_BUDGET)
        budget = fields.number(Field(f"{draft}/{name}", "budget", origin.run.choice.budget, known))
        entry = st.segmented_control(
            "The entry that is picked",
            list(ENTRY_CHOICES),
            format_func=lambda key: ENTRY_CHOICES[key],
            key=f"{draft}/entry",
            default="leave",
            required=True,
            help="Pick one by a click in a cache, or from the list below the lanes.",
        )

        def begin() -> None:
            picked = entry_field(page).value
            if entry != "leave" and picked is None:
                st.session_state[f"{page}/fork-problem"] = (
                    "No entry is picked, so none can be pinned or dropped: click one in a cache, "
                    "or choose one from the list below the lanes."
                )
                return
            values = (
                name,
                turn_field(page).value,
                policy.name,
                budget,
                picked if entry == "pin" else None,
                picked if entry == "drop" else None,
            )
            for field, value in zip(fork_fields(page), values, strict=True):
                field.set(value)
            for field, value in zip(pair_fields(page), (name, FORK), strict=True):
                field.set(value)
            st.session_state[forks] = number + 1

        st.button(
            "Continue from here",
            key=f"{page}/fork-here",
            type="primary",
            icon=":material/alt_route:",
            on_click=begin,
            width="stretch",
        )


def with_fork(page: str, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    """Say what is forked, if anything is, and return the lanes with it as the last."""
    problem = st.session_state.pop(f"{page}/fork-problem", None)
    problems([problem] if problem else [])
    name, turn, to, budget, pinned, dropped = (field.value for field in fork_fields(page))
    if not name:
        return lanes
    origin = next((lane for lane in lanes if lane.name == name), None)
    try:
        if origin is None:
            raise ValueError(f"{name} is not among the policies that are compared")
        if turn is None:
            raise ValueError("it does not say after which turn")
        policy = read_policy(to) if to else None
        change = Fork(turn, policy, budget, pinned, dropped)
        run = load_fork(origin.run, change)
    except ValueError as error:
        problems([sentence(f"There is no such fork: {error}")])
        _offer_removal(page)
        return lanes
    changes = change.changes(origin.run.choice.policy, origin.run.choice.budget) or ["no change"]
    parted = first_difference(overlap(origin.run, run))
    outcome = (
        "The two caches stay the same to the end."
        if parted is None
        else f"The two caches first differ after turn {parted}."
    )
    with st.container(horizontal=True, vertical_alignment="center", key=f"{page}-fork"):
        st.markdown(
            f":material/alt_route: **{origin.label}, continued after turn {turn}** with "
            f"{listed(changes)}. {outcome}"
        )
        _offer_removal(page)
    words = f"{name} after turn {turn}: {', '.join(changes)}"
    label = f"{len(lanes) + 1} fork of {origin.label}"
    return (*lanes, Lane(FORK, label, words, run))


def _offer_removal(page: str) -> None:
    def remove() -> None:
        for field in fork_fields(page):
            field.set(field.default)

    st.button(
        "Remove the fork", key=f"{page}/fork-remove", icon=":material/close:", on_click=remove
    )
