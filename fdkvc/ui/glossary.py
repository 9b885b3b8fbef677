"""Explanations below figures: of metrics and policies."""

from collections.abc import Iterable

import streamlit as st

from fdkvc.engine.metrics import METRICS
from fdkvc.policies import Policy
from fdkvc.ui.markdown import Markdown


def show_glossary(metrics: Iterable[str], policies: Iterable[Policy] = ()) -> None:
    """Explain these metrics and policies behind a click."""
    entries = [(METRICS[key].label, METRICS[key].help) for key in metrics]
    show_entries(entries + [(policy.title, policy.idea) for policy in policies])


def show_entries(entries: Iterable[tuple[str, str]]) -> None:
    """Explain names behind a click."""
    with st.expander("What these figures mean", icon=":material/help:"):
        lines = (Markdown("- **{}:** {}").format(name, words) for name, words in entries)
        st.markdown(Markdown("\n").join(lines))
