"""Explanations below figures: metrics, policies, and random eviction."""

from collections.abc import Iterable

import streamlit as st

from fdkvc.policies import Policy
from fdkvc.run.metrics import METRICS
from fdkvc.ui.kit.markdown import Markdown


def show_glossary(metrics: Iterable[str], policies: Iterable[Policy] = ()) -> None:
    """Explain these metrics and policies behind a click."""
    entries = [(METRICS[key].label, METRICS[key].help) for key in metrics]
    show_entries(entries + [(policy.title, policy.idea) for policy in policies])


def show_entries(entries: Iterable[tuple[str, str]]) -> None:
    """Explain names behind a click."""
    with st.expander("What these figures mean", icon=":material/help:"):
        lines = (Markdown("- **{}:** {}").format(name, words) for name, words in entries)
        st.markdown(Markdown("\n").join(lines))


def show_chance() -> None:
    """Say why random eviction does well in the paper's metrics."""
    st.info(
        "**Random eviction** does well here: the paper's three metrics depend on the topics in the "
        "cache, not on the tokens, so a random sample of the dialog holds much. Attention loss "
        "depends on the tokens that get attention; in synthetic dialogs attention is nearly "
        "uniform, so policies hardly differ. In recorded dialogs they do.",
        icon=":material/casino:",
    )
