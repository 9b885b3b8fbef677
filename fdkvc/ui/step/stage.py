"""The stage of one run, the explanations sent to it, and the searches it requests."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from fdkvc.core.parameters import written
from fdkvc.explain.counterfactual import Change, NotRepeated, counterfactual, nearest_first
from fdkvc.player.moments import why_sentences
from fdkvc.player.run import StageRun
from fdkvc.ui.component import draw, last_message, listen, payload
from fdkvc.ui.follow import follow as follow_stage
from fdkvc.ui.jobs import Jobs, Report
from fdkvc.ui.run_panel import session_job
from fdkvc.ui.step.before import NO_GHOST, Ghost


def show(page: str, run: StageRun, shows: str = "", ghost: Ghost = NO_GHOST) -> None:
    """Show the run as the stage, which steps through it in the browser, or some of its panels."""
    draw(page, payload(run, shows, *ghost))
    st.fragment(_answer)(page, run)


def follow(page: str, run: StageRun) -> int:
    """Follow the stage, and send it the explanation of its entry; return the turn."""
    return follow_stage(
        page, run.name, run.dialogs, lambda turn, token: why_sentences(run, turn, token)
    )


# ------------------------------------------------------------------------------- searches


@st.cache_resource(show_spinner=False)
def _searches() -> Jobs:
    """Return the searches of this process, one at a time: each runs a dialog thousands of times."""
    return Jobs(running=1)


def _answer(page: str, run: StageRun) -> None:
    """Send the stage the changes that would have reversed the decision on its entry.

    The search runs in the background, and the stage polls until it is done.
    """
    key = f"{page}/stage-answer"
    question = last_message(key)
    reply: dict[str, Any] = {"run": run.name, "done": False}
    if question and question["run"] == run.name:
        turn = int(question["turn"])
        token = int(question["entry"])
        reply |= {"turn": turn, "entry": token, **_search(page, run, turn, token)}
    listen(key, "answer", reply)


def _search(page: str, run: StageRun, turn: int, token: int) -> Mapping[str, Any]:
    """Return what was found, or start the search and cancel the session's earlier one."""
    if not run.dialog.alone:
        return _result("Available only for a head that decides by itself.")
    trace = run.trace
    dialogs = run.dialogs

    def work(on_progress: Report, cancelled: threading.Event) -> list[Change] | None:
        changes = counterfactual(trace, dialogs, 0, turn, token, cancelled.is_set)
        return None if cancelled.is_set() else nearest_first(changes)

    question = run.name, turn, token
    job = session_job(f"{page}/stage-search", _searches(), work, question)
    if job.result is not None:
        return _result(_verdict(job.result), job.result)
    return _result(job.problem) if job.problem else {"done": False}


def _result(words: str, changes: Sequence[Change] = ()) -> Mapping[str, Any]:
    return {
        "done": True,
        "words": words,
        "tried": "One setting at a time, nearest value first; no values between two steps. Each "
        "reruns the dialog from its start, so earlier evictions change, too.",
        "changes": [*map(_described, changes)],
    }


def _verdict(changes: Sequence[Change]) -> str:
    """Say what the nearest changes that reverse a decision mean."""
    words = "No single setting, at any value tried, would have reversed the decision."
    if any(change.reversing_value is not None for change in changes):
        words = "Each of these alone is enough."
    nearest = [change.label for change in changes[:3] if change.reversing_value is not None]
    if "(γ)" in " ".join(nearest):
        words += " With a larger γ recency fades more slowly."
    complete = all(
        isinstance(change.current_value, int) and change.step == 1 for change in changes
    )
    return words if complete else f"{words} Not every value was tried."


def _described(change: Change) -> Mapping[str, Any]:
    current_words = "yes"
    new_words = "no"
    if not isinstance(change, NotRepeated):
        current_words = written(change.current_value)
        new_words = "" if change.reversing_value is None else written(change.reversing_value)
    elif change.reversing_value is None:
        new_words = ""
    values = {"before": current_words, "after": new_words}
    return {"label": change.label, **values, "words": change.words}
