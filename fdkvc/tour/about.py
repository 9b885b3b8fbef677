"""What this project does not show, the method, its limitations, and how to cite it."""

from pathlib import Path

import streamlit as st

from fdkvc.policies import policy_named
from fdkvc.ui.frame import panel, side_by_side
from fdkvc.ui.markdown import Markdown, plain, sections

SYMBOLS = (
    "Of an entry i: key k, embedding e, attention a or w, cumulative score c, recency ρ, "
    "similarity s, relevance r, score h. Of a turn t: mean query q̄, mean embedding ē, ownership "
    "loss ℒ, learning rate α. The cache 𝒞 holds B entries, d is the length of a key, and a hat "
    "on c, h and ρ divides by the largest. Table 7 on Benchmark names γ, α₀, μ, w, τ and β."
)
"""What the symbols of the equations mean."""


def show_text() -> None:
    """Show what this project does not show, one turn of the method, and the rest once opened."""
    (title, limits), *others = sections(Path(__file__).with_name("about.md"))
    st.header(plain(title), anchor=False)
    st.markdown(plain(limits))
    st.header("The method: one turn", anchor=False)
    _show_method()
    for title, body in others:
        with st.expander(plain(title)):
            st.markdown(plain(body))


def _show_method() -> None:
    """Show one turn of FD-KVC in its equations."""
    policy = policy_named("fd-kvc")
    st.markdown(Markdown("{} :gray[{}.]").format(policy.idea, policy.source))
    with side_by_side("method"):
        for number, step in enumerate(policy.steps, 1):
            with panel(f"method-{number}"):
                title = Markdown("**{}. {}** :gray[({})]").format(
                    number, step.name, step.source
                )
                st.markdown(plain(title))
                st.latex(step.equation)
    st.caption(plain(SYMBOLS))
