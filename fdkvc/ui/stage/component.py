"""The stage as Streamlit components: it gets a run once, and reports its turn and entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fdkvc.stage.drawn import Kind, script, style


def _scene(name: str, kind: Kind) -> Any:
    """Return the component that draws a kind of stage."""
    return st.components.v2.component(name, css=style(kind), js=script(kind), isolate_styles=False)


_stage = _scene("stage", "one")
_lanes = _scene("stage-lanes", "lanes")
_words = _scene("stage-words", "transcript")
_ear = st.components.v2.component("stage-ear", js=script("ear"), isolate_styles=False)


def show_stage(key: str, run: bytes) -> None:
    """Draw a run.

    Parameters
    ----------
    key : str
    run : bytes
        From `fdkvc.ui.stage.payload.payload`.
    """
    _stage(key=key, data=run)


def show_lanes(key: str, runs: bytes) -> None:
    """Draw several runs over one dialog, which step together.

    Parameters
    ----------
    key : str
    runs : bytes
        From `fdkvc.ui.stage.payload.lanes_payload`.
    """
    _lanes(key=key, data=runs)


def show_words(key: str, runs: bytes) -> None:
    """Draw a transcript, with a line under each word for every run whose cache holds it.

    Parameters
    ----------
    key : str
    runs : bytes
        From `fdkvc.ui.stage.payload.lanes_payload`, with a transcript.
    """
    _words(key=key, data=runs)


def said(key: str) -> Mapping[str, Any]:
    """Return the last message of the stage to a listener; empty if there is none."""
    heard: Mapping[str, Any] | None = st.session_state.get(key, {}).get("said")
    return heard or {}


def listen(key: str, what: str, data: Mapping[str, Any]) -> None:
    """Send data to the stage, and rerun the surrounding fragment whenever it answers.

    Parameters
    ----------
    key : str
    what : {"view", "answer"}
        The kind of message.
    data : mapping
    """
    _ear(key=key, data={"what": what, **data}, on_said_change=lambda: None)
