"""First, back, play, next, last and a slider: one transport drives all views of a page."""

from __future__ import annotations

from time import monotonic

import streamlit as st

from fdkvc.parameters import Field
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.scrubber import scrubber

SPEEDS = {"1 turn a second": 1.0, "2 turns a second": 2.0, "5 turns a second": 5.0}


TURN = Field("Turn", "", name="turn", default=0, low=0, high=9999, chosen=False)
"""The turn that a page shows."""


def playback(page: str, turns: int) -> float | None:
    """Show Play or Pause and the speed; return the seconds a turn while playing.

    It stands outside the fragment that it drives, because starting and stopping change how often
    that fragment runs.
    """
    playing_key, speed_key = f"{page}/playing", f"{page}/speed"

    def toggle() -> None:
        playing = not st.session_state.get(playing_key, False)
        st.session_state[playing_key] = playing
        if playing and held(page, TURN) >= turns - 1:
            hold(page, TURN, 0)
        st.session_state[f"{page}/stepped"] = monotonic()

    playing = st.session_state.get(playing_key, False)
    st.button(
        "Pause" if playing else "Play",
        key=f"{page}/play",
        icon=":material/pause:" if playing else ":material/play_arrow:",
        shortcut="P",
        on_click=toggle,
    )
    speed = st.selectbox(
        "Speed",
        list(SPEEDS),
        index=1,
        key=speed_key,
        label_visibility="collapsed",
        width=170,
        persist_state="session",
    )
    return 1 / SPEEDS[speed] if playing else None


def transport(page: str, turns: int, every: float | None) -> int:
    """Show the buttons and the slider, and return the current turn.

    Parameters
    ----------
    page : str
    turns : int
    every : float, optional
        Seconds a turn while playing.
    """
    last = turns - 1
    _advance(page, last, every)

    def go(to: int) -> None:
        hold(page, TURN, min(max(to, 0), last))

    def step(by: int) -> None:
        go(held(page, TURN) + by)  # from where it stands when it is pressed, not when it was drawn

    with st.container(horizontal=True, vertical_alignment="center", key=f"{page}-transport"):
        for name, icon, shortcut, move, by in (
            ("First", "first_page", "Home", go, 0),
            ("Back", "chevron_left", "Left", step, -1),
            ("Next", "chevron_right", "Right", step, 1),
            ("Last", "last_page", "End", go, last),
        ):
            st.button(
                plain(name),
                key=f"{page}/{name.lower()}",
                icon=f":material/{icon}:",
                shortcut=shortcut,
                on_click=move,
                args=(by,),
            )
        if last:
            scrubber(f"{page}/slider", held(page, TURN), last, disabled=every is not None, go=go)
    return int(held(page, TURN))


def _advance(page: str, last: int, every: float | None) -> None:
    """Go one turn on when it is time; stop at the last."""
    if every is None:
        return
    now = monotonic()
    if now - st.session_state.get(f"{page}/stepped", now) >= 0.7 * every:
        st.session_state[f"{page}/stepped"] = now
        if held(page, TURN) >= last:
            st.session_state[f"{page}/playing"] = False
            st.rerun()
        hold(page, TURN, held(page, TURN) + 1)
