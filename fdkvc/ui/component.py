"""The stage as Streamlit components: a run is packed once, and messages name it."""

import time
from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from fdkvc.player.drawn import script, style
from fdkvc.player.payload import DialogText, LaneHead, pack, pack_lanes
from fdkvc.player.run import StageRun
from fdkvc.ui.lru import cached

# Not isolated from the page: `scroll_to` finds the stage by its class.
_stage = st.components.v2.component(
    "stage", css=style(), js=script("stage"), isolate_styles=False
)
_ear = st.components.v2.component("stage-ear", js=script("ear"), isolate_styles=False)


def name_of_all(runs: Iterable[StageRun]) -> str:
    """Return a unique name of these runs together."""
    return " ".join(run.name for run in runs)


@cached
def payload(run: StageRun, shows: str, previous_run: StageRun | None, called: str) -> bytes:
    """Return a run packed for the browser, as `pack` does."""
    return pack(run, run.name, shows, previous_run, called)


@cached
def lanes_payload(
    runs: tuple[StageRun, ...], heads: tuple[LaneHead, ...], text: DialogText | None
) -> bytes:
    """Return runs over one dialog packed for the browser, with its text for a transcript."""
    return pack_lanes(runs, heads, text, name_of_all(runs))


def draw(page: str, packed: bytes) -> None:
    """Draw a packed run, or several that step together."""
    _stage(key=f"{page}/stage", data=packed)


def last_message(key: str) -> Mapping[str, Any]:
    """Return the last message of the stage to a listener; empty if there is none."""
    message: Mapping[str, Any] | None = st.session_state.get(key, {}).get("message")
    return message or {}


def listen(key: str, event: str, data: Mapping[str, Any]) -> None:
    """Send data ("view" or "answer") to the stage; rerun the fragment around it at every answer.

    The stage ignores messages that are older than the one it has.
    """
    _ear(
        key=key,
        data={"what": event, "sent": time.time(), **data},
        on_message_change=lambda: None,
    )
