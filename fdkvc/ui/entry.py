"""Picking an entry: by a click on its mark in a chart, or from a list."""

from __future__ import annotations

import streamlit as st

from fdkvc.dialogs import DialogBatch
from fdkvc.ui.fields import Field
from fdkvc.ui.settings import entry_field


def take_click(page: str, key: str) -> None:
    """Take the entry whose mark was clicked in a chart; a second click on it picks it again."""
    before_key = f"{key}/before"
    selection = st.session_state[key].selection
    clicked = {point["token"] for name in selection for point in selection[name]}
    changed = clicked ^ st.session_state.get(before_key, set())
    st.session_state[before_key] = clicked
    if changed:
        entry_field(page).set(int(max(changed)))


def choose_entry(dialogs: DialogBatch, tokens: int, entry: Field) -> int | None:
    """Let a person choose one of the dialog's first tokens, and return it."""
    entry.set(entry.value if entry.value is None or entry.value < tokens else None)
    topics = [dialogs.topic_label(topic) for topic in dialogs.current[0, dialogs.born[0]]]
    token: int | None = st.selectbox(
        "Entry",
        range(tokens),
        index=None,
        key=entry.key,
        format_func=lambda token: (
            f"token {token} · {topics[token]} · from turn {dialogs.born[0, token]}"
        ),
        placeholder="Click an entry in a chart, or choose one here",
        label_visibility="collapsed",
        persist_state="session",
    )
    return token
