"""Picking an entry: by a click on its mark in a chart, or from a list."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import streamlit as st

from fdkvc.dialogs.batch import DialogBatch
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.memory import kept
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.kit.sidebar import ENTRY


def take_click(page: str, key: str) -> None:
    """Take the entry whose mark was clicked in a chart; a second click on it picks it again."""
    before_key = f"{key}/before"
    selection = st.session_state[key].selection
    clicked = {point["token"] for name in selection for point in selection[name]}
    changed = clicked ^ st.session_state.get(before_key, set())
    st.session_state[before_key] = clicked
    if changed:
        hold(page, ENTRY, int(max(changed)))


def choose_entry(page: str, run: Run, width: Literal["stretch"] | int = "stretch") -> int | None:
    """Let a person choose one of the dialog's tokens, and return it.

    The choices are the same in every turn, so that a step need not send them again.
    """
    token: int | None = fields.choice(
        page,
        replace(ENTRY, help="", choices=_labels(run.dialogs, run.choice.dialog.words)),
        index=None,
        placeholder="Click an entry in a chart, or choose one here",
        label_visibility="collapsed",
        width=width,
    )
    return token


def rerun_if_picked(page: str, known: int | None) -> None:
    """Run the whole page again if its fragment has picked another entry than the page knows."""
    if held(page, ENTRY) != known:
        st.rerun()


@kept
def _labels(dialogs: DialogBatch, words: tuple[str, ...]) -> dict[int, str]:
    born = dialogs.born[0, : dialogs.bounds[0, -1]]
    said = [f"“{word}” · " for word in words] or [""] * len(born)
    return {
        token: f"{said[token]}token {token} · {dialogs.topic_label(topic)} · from turn {turn}"
        for token, (turn, topic) in enumerate(zip(born, dialogs.current[0, born], strict=True))
    }
