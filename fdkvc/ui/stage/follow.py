"""Where a stage opens, and what it has come to, taken over by the page that it stands on."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import streamlit as st

from fdkvc.stage.moments import nearly_kept as nearly_kept
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.ui.kit.fields import held, hold, key_of
from fdkvc.ui.kit.sidebar import ENTRY, ORDER, TURN
from fdkvc.ui.stage.component import listen, said

_HEARD = "stage/heard"


def open_on(
    page: str,
    link: Mapping[str, str],
    moment: Callable[[], tuple[int, int | None]],
    dialog: Hashable = None,
) -> None:
    """Open on a moment, unless a link or what was looked at before says more.

    Parameters
    ----------
    page : str
    link : mapping of str to str
        From `fields.arriving_link`; empty where no link was followed.
    moment : function
        Gives a turn and an entry.
    dialog : hashable
        What they are of: of another than before, nothing was looked at yet.
    """
    opened = f"{page}/opened"
    another = st.session_state.get(opened, dialog) != dialog
    st.session_state[opened] = dialog
    fresh = bool(link) or another or key_of(page, TURN) not in st.session_state
    if not fresh or TURN.name in link:
        return
    turn, token = moment()
    hold(page, TURN, turn)
    if ENTRY.name not in link:
        hold(page, ENTRY, token)


def open_as_linked(page: str, link: Mapping[str, str]) -> None:
    """Let the turn of a link stand, although its dialog may have to be brought first."""
    if TURN.name in link:
        st.session_state.pop(f"{page}/opened", None)


def standing(page: str) -> dict[str, Any]:
    """Return where a page keeps what its stage has come to; the same in every run.

    It is for what is made outside of the session's script, where nothing of it can be asked for.
    """
    stands: dict[str, Any] = st.session_state.setdefault(f"{page}/stands", {})
    return stands


def follow(page: str, name: str, dialogs: DialogBatch, tell: Callable[[int, int], Any]) -> int:
    """Take over what the stage has come to, tell it what the server shows; return the turn.

    The stage goes on while the server catches up: what it is told counts only once the server has
    heard the last that was done there.

    Parameters
    ----------
    page : str
    name : str
        Of what the stage shows.
    dialogs : DialogBatch
        One row.
    tell : function
        Says of a turn and a token why it is where it is.
    """
    key = f"{page}/stage-view"
    session = st.session_state.setdefault(_HEARD, {"session": name, "heard": 0})
    news = said(key)
    if news and news["session"] == session["session"] and news["asked"] > session["heard"]:
        session["heard"] = int(news["asked"])
        hold(page, TURN, min(max(int(news["turn"]), 0), dialogs.turns - 1))
        hold(page, ENTRY, _token(dialogs, news["entry"]))
        hold(page, ORDER, news["order"] if news["order"] in ORDER.choices else ORDER.default)
    turn, token = int(held(page, TURN)), held(page, ENTRY)
    standing(page).update(turn=turn, entry=token, order=held(page, ORDER))
    listen(
        key,
        "view",
        {
            **session,
            "run": name,
            "turn": turn,
            "entry": token,
            "order": held(page, ORDER),
            "sentences": [] if token is None else tell(turn, token),
        },
    )
    return turn


def _token(dialogs: DialogBatch, entry: Any) -> int | None:
    return None if entry is None or not 0 <= entry < dialogs.bounds[0, -1] else int(entry)
