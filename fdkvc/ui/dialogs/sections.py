"""The stage in its views, and its files."""

from collections.abc import Callable

import streamlit as st

from fdkvc.ui.compare import scenes
from fdkvc.ui.dialogs.choices import FIELDS, FILE, OWN, Chosen
from fdkvc.ui.dialogs.transcript import show_transcript
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.sidebar import MOVING
from fdkvc.ui.step import scene


def show_view(
    page: str, view: str, chosen: Chosen, lanes: tuple[Lane, ...], lane: Lane
) -> Callable[[], None]:
    """Show the dialog on the stage; return the fragment to call after the page is drawn."""
    write = fields.link_writer(page, FIELDS, MOVING)
    if view == "cache" and lane.run.long:
        st.info(
            plain(lane.run.long_note("One cache, with its order by score,")), icon=":material/info:"
        )
        return write
    if view == "words":
        return show_transcript(page, chosen.head.recording, lanes, lane, write)
    return scenes.show(page, lanes, write) if view == "lanes" else scene.show(page, lane.run, write)


def show_downloads(page: str, view: str, lanes: tuple[Lane, ...], lane: Lane) -> None:
    """Offer the shown view as files."""
    uploaded = held(page, FILE) == OWN
    if view == "cache" and not lane.run.long:
        scene.show_downloads(page, lane.run, uploaded=uploaded)
    else:
        scenes.show_downloads(page, lanes, uploaded=uploaded)
