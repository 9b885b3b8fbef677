"""Below the transcript: evidence, one cache closely, caches beside each other, heads, the file."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fdkvc.ui.compare import scenes
from fdkvc.ui.dialogs.choices import SECTION, SECTIONS_KEY, Chosen
from fdkvc.ui.dialogs.evidence import show_evidence
from fdkvc.ui.dialogs.heads import show_heads
from fdkvc.ui.dialogs.replay import show_replay
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.step import scene, story

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
        "evidence": lambda: show_evidence(page, chosen, lanes),
        "cache": lambda: _one_cache(page, lane, order),
        "lanes": lambda: _side_by_side(page, lanes),
        "heads": lambda: show_heads(chosen, lanes, lane),
        "all": lambda: show_replay(page, chosen, lanes, asked),
    }
    labels = SECTION.labels
    opened = f"{page}/{SECTIONS_KEY}"
    # Not as a default: one that changes makes new tabs of them, and the click on the old is lost.
    st.session_state.setdefault(opened, labels[held(page, SECTION)])
    tabs = st.tabs([plain(labels[key]) for key in sections], key=opened, on_change="rerun")
    for tab, (key, show) in zip(tabs, sections.items(), strict=True):
        if tab.open:
            hold(page, SECTION, key)
            with tab:
                return show() or _nothing
    return _nothing


def _nothing(turn: int) -> None:
    """Change nothing from turn to turn."""


def _one_cache(page: str, lane: Lane, order: str) -> Steps:
    """Show one policy's cache as the step page does."""
    run = lane.run
    with st.container(horizontal=True):
        scene.downloads(page, run)
    views = st.container()
    question = story.ask_why(page, run)
    algorithm = story.algorithm(run)

    def steps(turn: int) -> None:
        with views:
            scene.views(page, run, turn, order)
        story.why(run, turn, question)
        story.inside_turn(run, turn, algorithm)

    return steps


def _side_by_side(page: str, lanes: tuple[Lane, ...]) -> Steps:
    """Show several policies' caches as the compare page does."""
    with st.container(horizontal=True):
        scenes.follow_entry(page, lanes)
        scenes.downloads(page, lanes)
    rivers = st.container()
    lines, pair, difference = scenes.difference_panels(page, lanes)

    def steps(turn: int) -> None:
        with rivers:
            scenes.show_lanes(page, lanes, turn)
        with lines:
            scenes.show_lines(page, lanes, turn)
        with difference:
            scenes.show_difference(page, *pair, turn)

    return steps
