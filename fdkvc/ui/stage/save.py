"""The stage of a page as one HTML file, as of the click."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import streamlit as st

from fdkvc.report.scene import Scene, scene_html, told_of
from fdkvc.stage.drawn import Kind
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.stage.follow import standing

FILE = "scene.html"


def save_scene(
    page: str, title: str, shown: Callable[[], tuple[Kind, bytes]], runs: Sequence[Run]
) -> None:
    """Offer the stage as a file that works without this app.

    Parameters
    ----------
    shown : function
        Returns the kind of stage, and its runs packed.
    runs : sequence of Run
        The runs, in order.
    """
    stands = standing(page)

    def content() -> bytes:
        entry = stands.get("entry")
        told = told_of(runs, entry)
        turn, order = stands.get("turn", 0), stands.get("order", "age")
        return scene_html(Scene(title, *shown(), turn, entry, order, told)).encode()

    st.download_button(
        "Save this scene",
        content,
        FILE,
        "text/html",
        key=f"{page}/download/{FILE}",
        icon=":material/theaters:",
        on_click="ignore",
        help="One HTML file that opens offline and steps as here.",
    )
