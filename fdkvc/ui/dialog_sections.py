"""Below the transcript: one cache closely, caches beside each other, evidence, heads, the file."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fdkvc.ui import lanes_view, step_view, story
from fdkvc.ui.dialog_settings import SECTIONS, Chosen, section_field, sections_key
from fdkvc.ui.evidence_view import show_evidence
from fdkvc.ui.heads_view import show_heads
from fdkvc.ui.lanes import Lane
from fdkvc.ui.markdown import plain
from fdkvc.ui.replay_view import show_replay
from fdkvc.ui.settings import entry_field

Steps = Callable[[int], None]
"""Shows what a turn changes of a section."""


def open_section(
    page: str,
    chosen: Chosen,
    lanes: tuple[Lane, ...],
    lane: Lane,
    order: str,
    asked: tuple[str, ...],
) -> Steps:
    """Show the section that is open, without what a turn changes; return what shows that."""
    sections: dict[str, Callable[[], Steps | None]] = {
        "cache": lambda: _one_cache(page, lane, order),
        "lanes": lambda: _side_by_side(page, lanes),
        "evidence": lambda: show_evidence(page, chosen, lanes),
        "heads": lambda: show_heads(chosen, lanes, lane),
        "all": lambda: show_replay(page, chosen, lanes, asked),
    }
    field = section_field(page)
    tabs = st.tabs(
        [plain(SECTIONS[key]) for key in sections],
        default=SECTIONS[field.value],
        key=sections_key(page),
        on_change="rerun",
    )
    for tab, (key, show) in zip(tabs, sections.items(), strict=True):
        if tab.open:
            field.set(key)
            with tab:
                return show() or _nothing
    return _nothing


def _nothing(turn: int) -> None:
    """Change nothing from turn to turn."""


def _one_cache(page: str, lane: Lane, order: str) -> Steps:
    """Show one policy's cache as the step page does."""
    run = lane.run
    with st.container(horizontal=True):
        step_view.downloads(page, run)
    views = st.container()
    question = story.ask_why(page, run, entry_field(page))
    algorithm = story.algorithm(run)

    def steps(turn: int) -> None:
        with views:
            step_view.views(page, run, turn, order)
        story.why(run, turn, question)
        story.inside_turn(run, turn, algorithm)

    return steps


def _side_by_side(page: str, lanes: tuple[Lane, ...]) -> Steps:
    """Show several policies' caches as the compare page does."""
    with st.container(horizontal=True):
        lanes_view.follow_entry(page, lanes)
        lanes_view.downloads(page, lanes)
    rivers = st.container()
    lines, pair, difference = lanes_view.difference_panels(page, lanes)

    def steps(turn: int) -> None:
        with rivers:
            lanes_view.show_lanes(page, lanes, turn)
        with lines:
            lanes_view.show_lines(page, lanes, turn)
        with difference:
            lanes_view.show_difference(page, *pair, turn)

    return steps
