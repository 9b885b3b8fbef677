"""The stage on a page: it gets the run once, and the server hears afterwards what was looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from fdkvc.charts.theme import DARK, LIGHT, tint_of
from fdkvc.ui.kit.lanes import MOST_LANES

_HERE = Path(__file__).parent


def _read(*names: str) -> str:
    return "\n".join((_HERE / name).read_text(encoding="utf-8") for name in names)


def _css(*names: str) -> str:
    """Return the style, with the colours of terms and policies from the place of all colours."""
    light, dark = (
        f"--stage-terms: {' '.join(theme.terms)}; "
        + " ".join(f"--track-{at}: {tint_of(at, theme)};" for at in range(MOST_LANES))
        for theme in (LIGHT, DARK)
    )
    return f"{_read(*names)}\n.stage {{ {light} }}\n.stage.dark {{ {dark} }}"


_SCRIPTS = ("hub.js", "record.js", "marks.js", "views.js", "why.js", "stage.js")
_HTML = f"const HTML = {json.dumps(_read('stage.html'))};\n"


def _scene(name: str, kind: str, *more: str) -> Any:
    """Make a component of the class that draws it, and of what it needs besides the stage."""
    css = _css("stage.css", *(each for each in more if each.endswith(".css")))
    js = _read(*_SCRIPTS, *(each for each in more if each.endswith(".js")))
    script = f"{_HTML}{js}\nconst Scene = {kind};"
    return st.components.v2.component(name, css=css, js=script, isolate_styles=False)


_stage = _scene("stage", "Stage")
_lanes = _scene("stage-lanes", "Lanes", "lanes.css", "lanes.js")
_words = _scene(
    *("stage-words", "Reader", "lanes.css", "lanes.js", "transcript.css", "transcript.js")
)
_ear = st.components.v2.component("stage-ear", js=_read("hub.js", "ear.js"), isolate_styles=False)


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
