"""What if: a run continued after a turn with something changed, as another lane."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import listed, sentence
from fdkvc.engine.fork import Fork
from fdkvc.explain.tables import first_difference
from fdkvc.policies import Policy, read_policy
from fdkvc.ui import fields
from fdkvc.ui.fields import held, problems
from fdkvc.ui.lanes import FORK, PAIR, Lane, load_fork, overlap
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.sidebar import BUDGET_HERE, ENTRY, TURN, read_name
from fdkvc.ui.variants import edit_policy

_TOKEN = replace(ENTRY, label="Entry of the fork", chosen=True, follows=False)

FORKED = (
    Field("Fork", name="fork", default="", read=read_name),
    Field("Turn of the fork", name="fork_turn", low=0, high=TURN.high),
    Field("Policy of the fork", name="fork_policy", default="", read=read_name),
    replace(
        BUDGET_HERE, label="Budget of the fork", name="fork_budget", default=None, follows=False
    ),
    replace(_TOKEN, name="pinned"),
    replace(_TOKEN, name="dropped"),
)
"""The fork: its lane, its turn, and the changes."""

ENTRY_CHANGES = {"leave": "leave", "pin": "protect", "drop": "drop"}
"""What the fork does with the selected entry, which the stage calls pinned."""


def show_controls(page: str, lanes: Sequence[Lane]) -> None:
    """Show the controls that fork a run after the current turn."""
    # A new key makes a new, closed expander: each fork closes it.
    forks = st.session_state.setdefault(f"{page}/forks", 0)
    with st.expander("What if …", icon=":material/alt_route:", key=f"{page}/what-if/{forks}"):
        st.markdown(
            "Continue one run **after the turn shown**. Another policy, or the same one with "
            "another option, starts fresh, as if all cached entries had arrived in this turn.",
            help="The same policy with other numbers continues with what it has stored.",
        )
        draft, left_column, right_column = f"{page}/draft", *st.columns(2)
        with left_column:
            by_name = {lane.name: lane for lane in lanes}
            run = Field("Run", name="run", default=lanes[-1].name, choices=by_name)
            origin = by_name[fields.choice(draft, run)]
        # Each run has controls of its own, so that one keeps what was typed for it.
        place, help = f"{draft}/{origin.name}", "A smaller budget evicts at once."
        with right_column:
            changed = replace(BUDGET_HERE, help=help, default=origin.run.budget)
            budget = fields.number(place, changed)
        policy = edit_policy(place, origin.run.trace.policy)
        left_column, right_column = st.columns(2, vertical_alignment="bottom")
        with left_column:
            entry = fields.segments(
                f"{draft}/entry",
                "The pinned entry",
                ENTRY_CHANGES,
                help="Click an entry in any lane to pin it. A protected one is never evicted.",
                label_visibility="visible",
            )
        with right_column:
            if st.button(
                "Continue from here",
                key=f"{page}/fork-here",
                type="primary",
                icon=":material/alt_route:",
                width="stretch",
            ):
                _begin(page, origin, policy, budget, entry)


def _begin(page: str, origin: Lane, policy: Policy, budget: int, entry: str) -> None:
    """Fork after the current turn, and step to the first turn in which the two caches differ."""
    selected = held(page, ENTRY)
    if entry != "leave" and selected is None:
        problems(f"There is no entry to {ENTRY_CHANGES[entry]}: click one in any lane first.")
        return
    pinned = selected if entry == "pin" else None
    dropped = selected if entry == "drop" else None
    fork = Fork(held(page, TURN), policy, budget, pinned, dropped)
    parted = None
    with suppress(ValueError):  # the page says why it cannot be forked so
        parted = first_difference(overlap(origin.run, load_fork(origin.run, fork)))
    st.session_state[f"{page}/forks"] += 1
    # In the order of FORKED and PAIR.
    values = (origin.name, fork.turn, policy.name, budget, pinned, dropped, origin.name, FORK)
    visible_turn = fork.turn if parted is None else parted
    fields.hold_and_rerun(page, zip((*FORKED, *PAIR, TURN), (*values, visible_turn), strict=True))


def with_fork(page: str, lanes: tuple[Lane, ...]) -> tuple[Lane, ...]:
    """Describe the fork, if any, and return the lanes with it as the last."""
    name, turn, line, *changed = (held(page, field) for field in FORKED)
    if not name:
        return lanes
    origin = next((lane for lane in lanes if lane.name == name), None)
    try:
        if origin is None:
            raise ValueError(f"{name} is not among the policies that are compared")
        if turn is None:
            raise ValueError("it does not name its turn")
        change = Fork(turn, read_policy(line) if line else None, *changed)
        run = load_fork(origin.run, change)
    except ValueError as error:
        problems(sentence(f"This fork cannot be shown: {error}"))
        _offer_removal(page)
        return lanes
    changes = change.changes(origin.run.trace.policy, origin.run.budget) or ["no change"]
    parted = first_difference(overlap(origin.run, run))
    memory = ""
    if change.resets(origin.run.trace.policy):
        memory = (
            f" {run.trace.policy.title} starts fresh: it treats the cached entries as if they all "
            f"arrived in turn {turn}."
        )
    outcome = "stay the same to the end" if parted is None else f"first diverge in turn {parted}"
    head = Markdown(
        ":material/alt_route: **{}, continued after turn {}** with {}.{} The two caches {}."
    )
    with st.container(horizontal=True, vertical_alignment="center", key=f"{page}-fork"):
        st.markdown(plain(head.format(origin.label, turn, listed(changes), memory, outcome)))
        _offer_removal(page)
    words = f"{name} after turn {turn}: {', '.join(changes)}"
    return (*lanes, Lane(FORK, f"fork of {origin.label}", words, run, name))


def _offer_removal(page: str) -> None:
    st.button(
        "Remove the fork",
        key=f"{page}/fork-remove",
        icon=":material/close:",
        on_click=fields.reset,
        args=(page, FORKED),
    )
