"""The run before a change of settings, shown as a ghost behind the current one, and Undo."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import streamlit as st

from fdkvc.core.parameters import Field
from fdkvc.core.words import listed
from fdkvc.explain.notes import setting_changes
from fdkvc.player.run import ChosenDialog, StageRun
from fdkvc.policies import Policy
from fdkvc.ui import fields
from fdkvc.ui.lanes import load_run
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import MORE_METRICS, as_published, has_paper_values

MOST = 50
"""Settings that a session can undo."""

ALONE, BEFORE, PUBLISHED = "alone", "before", "published"


class Ghost(NamedTuple):
    """A run shown behind another one, for comparison."""

    run: StageRun | None = None
    called: str = ""

    @property
    def named(self) -> Mapping[str, StageRun]:
        """The run by its name in files; empty without one."""
        if self.run is None:
            return {}
        return {f"{self.run.policy.name} ({self.called})": self.run}


NO_GHOST = Ghost()

FieldsOf = Callable[[str, Mapping[str, str]], Sequence[Field]]
"""Returns the fields of a page, for a link or else the session's values."""

_Settings = tuple[ChosenDialog, Policy, int]


def choose_ghost(
    page: str, run: StageRun, fields_of: FieldsOf, text: Hashable = None
) -> Ghost:
    """Remember the settings of a run; once they change, show how, Undo, and what to compare with.

    A run over a dialog with other turns cannot be compared turn by turn. Another `text` starts a
    new history.
    """
    policy = run.policy
    key = f"{page}/compare-with"
    place = f"{page}/history"
    settings = run.dialog, policy, run.budget
    link = {
        field.name: field.written(fields.running(page, field))
        for field in _choosing(page, fields_of, {})
    }
    if fields.is_new(f"{page}/history-of", text):
        st.session_state.pop(place, None)
    # 1. The history. Going back to the last settings is no new entry.
    history: list[tuple[dict[str, str], _Settings]] = st.session_state.setdefault(place, [])
    if history and history[-1][1] == settings:
        history.pop()
    elif st.session_state.get(key) != PUBLISHED:
        # What has just changed is compared with what was before it.
        st.session_state[key] = BEFORE
    history[:] = [*history, (link, settings)][-MOST:]
    # 2. What to compare with: the previous run, and the policy with its published settings.
    others = {BEFORE: ("previous run", history[-2][1])} if len(history) > 1 else {}
    if (published := as_published(policy)) != policy:
        called = "paper's setting" if has_paper_values(policy) else "default setting"
        others[PUBLISHED] = called, (run.dialog, published, run.budget)
    if not others:
        return NO_GHOST
    runs = {}
    labels = {ALONE: "nothing"}
    for name, (called, other) in others.items():
        runs[name] = load_run(*other, run.optional)
        if not runs[name].long and _turns(runs[name]) == _turns(run):
            labels[name] = f"the {called}"
    if st.session_state[key] not in labels:
        st.session_state[key] = BEFORE if BEFORE in labels else ALONE
    # 3. The controls, and what has changed in words.
    with st.container(horizontal=True, vertical_alignment="center", key="before"):
        st.button(
            "Undo",
            key=f"{page}/undo",
            icon=":material/undo:",
            on_click=partial(_undo, page, history, fields_of),
            disabled=len(history) < 2,
            help="Return to the previous settings.",
        )
        st.markdown("Compare with")
        chosen = fields.segments(key, "Compare with", labels)
        if chosen == ALONE:
            return NO_GHOST
        past = runs[chosen]
        called = others[chosen][0]
        changes = setting_changes(policy, past.trace.policy)
        if past.budget != run.budget:
            changes.append(f"budget {run.budget:,} instead of {past.budget:,}")
        if past.dialog != run.dialog:
            same_title = past.dialog.title == run.dialog.title
            changes.append("other heads" if same_title else "another dialog")
        st.caption(plain(f"Now {listed(changes)}. Dashed and narrow: the {called}."))
    return Ghost(past, called)


def _turns(run: StageRun) -> list[list[int]]:
    """Return the topic of each turn, and where each begins."""
    return [run.dialogs.current[0].tolist(), run.dialogs.bounds[0].tolist()]


def _choosing(page: str, fields_of: FieldsOf, link: Mapping[str, str]) -> list[Field]:
    """Return the fields that choose the run, for a link or else the session's values."""
    return [row for row in fields_of(page, link) if row.chosen and row != MORE_METRICS]


def _undo(
    page: str, history: list[tuple[dict[str, str], _Settings]], fields_of: FieldsOf
) -> None:
    del history[-1]
    link, _ = history[-1]
    fields.adopt(page, _choosing(page, fields_of, link), link)
