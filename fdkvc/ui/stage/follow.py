"""Where a stage opens, and what it has come to, taken over by the page that it stands on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import streamlit as st

from fdkvc.dialogs.batch import DialogBatch
from fdkvc.run.trace import Rule, Status
from fdkvc.told.explain import decision, explain, sentences
from fdkvc.ui.kit.fields import held, hold, key_of
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.kit.sidebar import ENTRY, ORDER, TURN
from fdkvc.ui.stage.component import listen, said

_HEARD = "stage/heard"


def open_on(
    page: str, link: Mapping[str, str], moment: Callable[[], tuple[int, int | None]]
) -> None:
    """Open on a moment, unless a link or what was looked at before says more.

    Parameters
    ----------
    page : str
    link : mapping of str to str
        From `fields.arriving_link`; empty where no link was followed.
    moment : function
        Gives a turn and an entry.
    """
    fresh = bool(link) or key_of(page, TURN) not in st.session_state
    if not fresh or TURN.name in link:
        return
    turn, token = moment()
    hold(page, TURN, turn)
    if ENTRY.name not in link:
        hold(page, ENTRY, token)


def nearly_kept(run: Run) -> tuple[int, int | None]:
    """Return the turn after the first change of topic, and the best entry that it evicted.

    The entry is one that had been there before, if any of those went. Where that turn evicts
    nothing, it is the next one that does, or the last turn and no entry.
    """
    changes = np.flatnonzero(np.diff(run.dialogs.current[0])) + 1
    last = run.dialogs.turns - 1
    first = min(int(changes[0]) + 1, last) if len(changes) else 0
    for turn in range(first, last + 1):
        made = decision(run.trace, run.dialogs, 0, turn)
        gone = np.flatnonzero(made.rule == Rule.budget)
        if len(gone):
            gone = gone[~made.new[gone]] if not made.new[gone].all() else gone
            return turn, int(made.token[gone[np.argmax(made.score[gone])]])
    return last, None


def told(run: Run, turn: int, token: int) -> list[str]:
    """Say why an entry is where it is in a turn; of what has gone before, why it went."""
    own = run.at(turn)
    why = explain(own.trace, own.dialogs, 0, turn, token)
    if why.left is not None and why.left[0] < turn:
        return told(run, why.left[0], token)
    if own.trunk is not None and why.status == Status.empty and why.born < own.trace.first_turn:
        fork = own.trace.first_turn - 1
        if token in own.trunk.at(fork).trace.state_after(fork).cache.token:
            return [f"Token {token} was taken out by the fork, after turn {fork}."]
        return told(own.trunk, fork, token)
    return sentences(why)


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
