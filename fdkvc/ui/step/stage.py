"""The stage of one run: what it shows, what it is told, and what it asks."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import streamlit as st

from fdkvc.explain.counterfactual import Change, counterfactual, nearest_first
from fdkvc.parameters import written
from fdkvc.stage.moments import told
from fdkvc.ui.kit.jobs import Job, Jobs, Report
from fdkvc.ui.kit.lru import ByteLRU
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.stage.component import listen, said, show_stage
from fdkvc.ui.stage.follow import follow as take_over
from fdkvc.ui.stage.payload import name_of, payload
from fdkvc.words import percent


def show(page: str, run: Run) -> None:
    """Show the run as the stage, which steps through it by itself."""
    show_stage(f"{page}/stage", payload(run))


def follow(page: str, run: Run) -> int:
    """Take over what the stage has come to, and tell it why the entry is where it is."""
    return take_over(page, name_of(run), run.dialogs, lambda turn, token: told(run, turn, token))


# ------------------------------------------------------------------------------- what it asks

SEARCHES = 1
"""Searches at work at once: each runs a dialog some thousand times."""

_found: ByteLRU[list[Change]] = ByteLRU(4_000_000)


@st.cache_resource(show_spinner=False)
def _searches() -> Jobs:
    return Jobs(running=SEARCHES, waiting=16, kept=16)


def answer(page: str, run: Run) -> None:
    """Tell the stage what would have decided otherwise on the entry that it asks for.

    The search goes on in the background, and the stage asks again until it is found.
    """
    key = f"{page}/stage-answer"
    question = said(key)
    found: dict[str, Any] = {"run": name_of(run), "done": False}
    if question and question["run"] == name_of(run):
        turn, token = int(question["turn"]), int(question["entry"])
        found |= {"turn": turn, "entry": token, **_search(page, run, turn, token)}
    listen(key, "answer", found)


def _search(page: str, run: Run, turn: int, token: int) -> Mapping[str, Any]:
    """Return what was found, or start looking for it and for nothing else."""
    if not run.choice.dialog.alone:
        return {"done": True, "words": "This cache is one of several that decide together."}
    question = (name_of(run), turn, token)
    found = _found.find(question)
    if found is not None:
        return {"done": True, "changes": [_described(change) for change in found]}
    key = f"{page}/stage-search"
    asked, name = st.session_state.get(key, (None, None))
    job = _searches().find(name)
    if asked != question or job is None:
        if job is not None:
            job.cancel()
        try:
            st.session_state[key] = question, _start(run, turn, token, question).name
        except ValueError as error:
            return {"done": False, "problem": str(error)}
    elif job.problem:
        return {"done": True, "words": job.problem}
    return {"done": False}


def _start(run: Run, turn: int, token: int, question: tuple[str, int, int]) -> Job:
    trace, dialogs = run.trace, run.dialogs

    def work(report: Report, cancelled: threading.Event) -> None:
        changes = counterfactual(trace, dialogs, 0, turn, token, cancelled.is_set)
        if not cancelled.is_set():
            _found.keep(question, nearest_first(changes))

    return _searches().start(work)


def _described(change: Change) -> Mapping[str, Any]:
    return {
        "label": change.label,
        "before": written(change.before),
        "after": "" if change.after is None else written(change.after),
        "share": "" if change.share is None else percent(change.share, 1),
        "words": change.words,
        "exhaustive": isinstance(change.before, int) and change.step == 1,
    }
