"""Where a stage opens, how its page follows it, how it is saved, and several runs on one stage."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import streamlit as st

from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.words import listed
from fdkvc.engine.metrics import default_metrics
from fdkvc.player.entry_files import file_stem, trace_files
from fdkvc.player.moments import value_sentences
from fdkvc.player.payload import DialogText, LaneHead
from fdkvc.player.run import StageRun
from fdkvc.player.scene import scene_html, sentences_of
from fdkvc.ui.address import scroll_to
from fdkvc.ui.component import draw, lanes_payload, last_message, listen, name_of_all
from fdkvc.ui.downloads import offer_file, show_files
from fdkvc.ui.fields import held, hold, is_new, keep_to, key_of
from fdkvc.ui.frame import Page
from fdkvc.ui.markdown import plain
from fdkvc.ui.sidebar import ENTRY, TURN

_RECEIVED = "stage/received"


def open_on(
    page_view: Page,
    dialogs: DialogBatch,
    moment: Callable[[], tuple[int, int | None]],
    dialog: Hashable = None,
) -> None:
    """Open on a moment, unless a link or an earlier visit sets a turn of these dialogs.

    `moment` returns a turn and an entry. A new `dialog` opens on its own moment.
    """
    page = page_view.name
    link = page_view.link
    if st.session_state.pop(f"{page}/arrived", False):
        scroll_to(".stage", "center")
    new_dialog = is_new(f"{page}/opened", dialog)
    fresh = bool(link) or new_dialog or key_of(page, TURN) not in st.session_state
    if fresh and TURN.name not in link:
        turn, token = moment()
        hold(page, TURN, turn)
        if ENTRY.name not in link:
            hold(page, ENTRY, token)
    last = dialogs.turns - 1
    place_words = " in this dialog"
    entry = replace(ENTRY, high=int(dialogs.bounds[0, -1]) - 1)
    page_view.show_problems(
        keep_to(page, replace(TURN, high=last), link, last, place_words)
        + keep_to(page, entry, link, None, place_words)
    )


def arrive(page: str, dialog: Hashable, scroll: bool) -> None:
    """Let the page open this dialog at the held turn and entry, and `scroll` to the stage."""
    st.session_state[f"{page}/opened"] = dialog
    st.session_state[f"{page}/arrived"] = scroll


def show_stage(page: str) -> None:
    """Bring the stage into view when the page is next drawn."""
    st.session_state[f"{page}/arrived"] = True


def open_as_linked(page: str, link: Mapping[str, str]) -> None:
    """Open at a link's turn, or else at the dialog's moment, even if it must be loaded first."""
    if link:
        st.session_state[f"{page}/opened"] = None
    if TURN.name in link:
        del st.session_state[f"{page}/opened"]


def stage_view(page: str) -> dict[str, Any]:
    """Return the turn and entry of a page's stage; the same dict in every run.

    It is read outside the session's script, where the session state is not available.
    """
    view: dict[str, Any] = st.session_state.setdefault(f"{page}/shown-view", {})
    return view


def follow(
    page: str, name: str, dialogs: DialogBatch, explain: Callable[[int, int], Any]
) -> int:
    """Follow the stage, send it the server's view, and return the turn.

    The stage does not wait for the server: it ignores a view that is older than its last action.
    `name` identifies what the stage shows, and `explain` returns sentences on a token in a turn.
    """
    key = f"{page}/stage-view"
    session = st.session_state.setdefault(_RECEIVED, {"session": name, "received": 0})
    sent = last_message(key)
    # A message is applied once. Its values are checked: they may be of a longer dialog.
    if sent and sent["session"] == session["session"] and sent["action"] > session["received"]:
        session["received"] = int(sent["action"])
        hold(page, TURN, min(max(int(sent["turn"]), 0), dialogs.turns - 1))
        entry = sent["entry"]
        exists = entry is not None and 0 <= entry < dialogs.bounds[0, -1]
        hold(page, ENTRY, int(entry) if exists else None)
    view = {field.name: held(page, field) for field in (TURN, ENTRY)}
    stage_view(page).update(view)
    turn = int(view[TURN.name])
    token = view[ENTRY.name]
    sentences = [] if token is None else explain(turn, token)
    listen(key, "view", {**session, "run": name, **view, "sentences": sentences})
    return turn


def show_downloads(
    page: str,
    lanes: Sequence[StageRun],
    model_file: Callable[[], bytes] | None = None,
    *,
    further_runs: Mapping[str, StageRun] = MappingProxyType({}),
    uploaded: bool = False,
) -> None:
    """Offer runs as tables, and the stage as a file that works without this app.

    `model_file` returns the run packed that is alone on the stage. The tables also have
    `further_runs`, by name.
    """
    # The session is out of reach at the click.
    view = stage_view(page)
    first = lanes[0]
    runs = {lane.policy.name: lane for lane in lanes} | {**further_runs}
    title = f"{listed([lane.policy.title for lane in lanes])} on {first.dialog.title}"
    stem = file_stem(runs)

    def scene() -> bytes:
        sentences = sentences_of(lanes, view["entry"], lanes=model_file is None)
        parts = {name: value for name, value in view.items() if name != "text"}
        packed = shown(view, lanes) if model_file is None else model_file()
        return scene_html(title, packed, sentences=sentences, **parts).encode()

    with st.popover("Download", icon=":material/download:"):
        condition = " once the same file is opened there" if uploaded else ""
        st.caption(plain(f"The address of this page reopens exactly this view{condition}."))
        offer_file(
            f"{page}/download/scene",
            f"{stem}-scene.html",
            scene,
            label="Save this scene",
            icon="theaters",
            help="One HTML file that works offline, with the same controls.",
        )
        names = ["turns.csv"] if first.long else ["entries.csv", "turns.csv"]
        if first.long:
            st.caption(plain(first.long_note("entries.csv")))
        show_files(page, lambda: trace_files(runs), names, stem)


# ------------------------------------------------------------------------------- lanes


def show_lanes(page: str, lanes: Sequence[StageRun], text: DialogText | None = None) -> None:
    """Show each run's river and cache.

    With a `text`, show the transcript, with a line under each word for every run that holds it.
    """
    view = stage_view(page)
    view["text"] = text
    draw(page, shown(view, lanes))


def shown(view: Mapping[str, Any], lanes: Sequence[StageRun]) -> bytes:
    """Return what the stage of a page shows, by `stage_view`: its runs packed."""
    return lanes_payload(tuple(lanes), heads(lanes), view.get("text"))


def follow_lanes(page: str, lanes: Sequence[StageRun]) -> int:
    """Follow the stage, and send it each lane's explanation of its entry, or of its value."""

    def explain(turn: int, token: int) -> list[str]:
        return [" ".join(value_sentences(lane, turn, token)) for lane in lanes]

    return follow(page, name_of_all(lanes), lanes[0].dialogs, explain)


def heads(lanes: Sequence[StageRun]) -> tuple[LaneHead, ...]:
    """Return the labels and figures of each lane.

    The river of a policy with a budget is as high as the largest budget.
    """
    largest = max((lane.trace.budget for lane in lanes if lane.policy.bounded), default=0)
    heads = []
    for lane in lanes:
        bounded = lane.policy.bounded
        turns = lane.turns
        lines = [line for line in lane.metrics if line.field in default_metrics()]
        heads.append(
            LaneHead(
                lane.policy.title,
                largest if bounded else lane.trace.budget,
                "" if bounded else "on its own scale",
                tuple(
                    (line.label, tuple(map(line.words, turns[line.field]))) for line in lines
                ),
            )
        )
    return tuple(heads)
