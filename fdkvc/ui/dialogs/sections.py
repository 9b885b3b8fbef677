"""The stage in its views, and its files."""

import streamlit as st

from fdkvc.corpora.recordings import Recording
from fdkvc.ui.compare import scenes
from fdkvc.ui.dialogs.choices import FIELDS, FILE, OWN
from fdkvc.ui.dialogs.transcript import show_transcript
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.step import scene


def show_view(
    page: str, view: str, recording: Recording, lanes: tuple[Lane, ...], lane: Lane
) -> None:
    """Show the dialog on the stage."""
    write = fields.link_writer(page, FIELDS)
    if view == "words":
        show_transcript(page, recording, lanes, lane, write)
    elif view == "lanes":
        scenes.show(page, lanes, write)
    elif not lane.run.long:
        scene.show(page, lane, write)
    else:
        note = lane.run.long_note("One cache, with its order by score,")
        st.info(plain(note), icon=":material/info:")
        write()


def show_downloads(page: str, view: str, lanes: tuple[Lane, ...], lane: Lane) -> None:
    """Offer the shown view as files."""
    uploaded = held(page, FILE) == OWN
    if view == "cache" and not lane.run.long:
        scene.show_downloads(page, lane.run, uploaded=uploaded)
    else:
        scenes.show_downloads(page, lanes, uploaded=uploaded)
