"""Who is behind chance, and what that says of a metric."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fdkvc.ui.kit.markdown import Markdown


def say_chance(sentences: Sequence[str]) -> None:
    """Say who is behind chance, and what that says of a metric."""
    if sentences:
        st.info(
            Markdown(
                "**Against chance.** {} The paper's three metrics ask which topics the cache "
                "holds, not which tokens: a blind sample of all that was said does well by them. "
                "Attention loss and regret ask for the tokens that are attended to; in these "
                "dialogs attention is nearly even, so that they hardly tell policies apart. "
                "Recorded dialogs do."
            ).format(" ".join(sentences)),
            icon=":material/casino:",
        )
