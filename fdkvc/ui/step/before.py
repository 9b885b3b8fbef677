"""The run before a change of settings, beside which a run is shown, and the way back to it."""

from typing import NamedTuple

import numpy as np
import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import listed
from fdkvc.engine.fork import Fork
from fdkvc.player.run import ChosenDialog, StageRun
from fdkvc.policies import Policy
from fdkvc.ui import fields
from fdkvc.ui.lanes import load_run
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import MORE_METRICS, as_published, has_paper_values, view_fields

MOST = 50
"""Settings that a session can undo."""

ALONE, BEFORE, PUBLISHED = "alone", "before", "published"


class Ghost(NamedTuple):
    """A run beside which another one is shown."""

    run: StageRun | None = None
    called: str = ""


NO_GHOST = Ghost()

_Settings = tuple[ChosenDialog, Policy, int]


def choose_ghost(page: str, run: StageRun) -> Ghost:
    """Remember the settings of a run; once they change, show how, Undo, and what to compare with.

    A run over a dialog with another course of topics cannot be compared turn by turn.
    """
    policy, key = run.trace.policy, f"{page}/compare-with"
    settings = run.dialog, policy, run.budget
    link = fields.chosen_link(page, _chosen(page))
    history: list[tuple[dict[str, str], _Settings]] = st.session_state.setdefault(
        f"{page}/history", []
    )
    if not history or history[-1][0] != link:
        history[:] = [*history, (link, settings)][-MOST:]
        if st.session_state.get(key) != PUBLISHED:
            st.session_state[key] = BEFORE
    others = {BEFORE: ("run before", history[-2][1])} if len(history) > 1 else {}
    if (published := as_published(policy)) != policy:
        name = "paper's setting" if has_paper_values(policy) else "default setting"
        others[PUBLISHED] = name, (run.dialog, published, run.budget)
    if not others:
        return NO_GHOST
    runs = {name: load_run(*other, run.optional) for name, (_, other) in others.items()}
    labels = {ALONE: "nothing"} | {
        name: f"the {others[name][0]}"
        for name, other in runs.items()
        if np.array_equal(other.dialogs.current, run.dialogs.current)
    }
    if st.session_state[key] not in labels:
        st.session_state[key] = BEFORE if BEFORE in labels else ALONE
    with st.container(horizontal=True, vertical_alignment="center", key="before"):
        st.button(
            "Undo",
            key=f"{page}/undo",
            icon=":material/undo:",
            on_click=_undo,
            args=(page,),
            disabled=len(history) < 2,
            help="Return to the settings before.",
        )
        st.markdown("Compare with")
        chosen = fields.segments(key, "Compare with", labels)
        if chosen == ALONE:
            return NO_GHOST
        ghost = Ghost(runs[chosen], others[chosen][0])
        past = runs[chosen].trace
        changes = Fork(0, policy, run.budget).changes(past.policy, past.budget)
        changes += ["another dialog"] * (runs[chosen].dialog != run.dialog)
        st.caption(plain(f"Now {listed(changes)}. Dashed and narrow: the {ghost.called}."))
    return ghost


def _chosen(page: str, link: dict[str, str] | None = None) -> list[Field]:
    """Return the fields that choose the run of a page, for a link or else the session's values."""
    return [field for field in view_fields(page, link) if field.chosen and field != MORE_METRICS]


def _undo(page: str) -> None:
    history = st.session_state[f"{page}/history"]
    del history[-1]
    link, _ = history.pop()  # shown next, and remembered again
    fields.adopt(page, _chosen(page, link), link)
