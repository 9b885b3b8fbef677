"""The stage on a page: it gets the run once, and the server hears afterwards what was looked at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from fdkvc.stage.drawn import Kind, script, style


def _scene(name: str, kind: Kind) -> Any:
    """Make a component of the module that draws it."""
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
    """Write out what was said, with a mark under each word for every run whose cache holds it.

    Parameters
    ----------
    key : str
    runs : bytes
        From `fdkvc.ui.stage.payload.lanes_payload`, with what was said.
    """
    _words(key=key, data=runs)


def said(key: str) -> Mapping[str, Any]:
    """Return what the stage last said to an ear; nothing if it has not spoken."""
    heard: Mapping[str, Any] | None = st.session_state.get(key, {}).get("said")
    return heard or {}


def listen(key: str, what: str, data: Mapping[str, Any]) -> None:
    """Tell the stage something, and rerun the fragment around this whenever it speaks to it.

    Parameters
    ----------
    key : str
    what : {"view", "answer"}
        What it is told.
    data : mapping
    """
    _ear(key=key, data={"what": what, **data}, on_said_change=lambda: None)
