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
    """Say what each page answers, what is not shown, and one turn of the method."""
    st.markdown(
        "For engineers and researchers who choose a policy. *Policies* says which to use, "
        "*Dialogs* how much room your conversations need, *Step through* why a token left, "
        "and *Benchmark* which of the paper's claims hold."
    )
    (title, limits), *others = sections(Path(__file__).with_name("about.md"))
    st.header(plain(title), anchor=False)
    st.markdown(plain(limits))
    for title, body in others:
        with st.expander(plain(title)):
            st.markdown(plain(body))
    st.header("The method: one turn", anchor=False)
    policy = policy_named("fd-kvc")
    st.markdown(Markdown("{} :gray[{}.]").format(policy.idea, policy.source))
    with side_by_side("method"):
        for number, step in enumerate(policy.steps, 1):
            with panel(f"method-{number}"):
                heading = Markdown("**{}. {}** :gray[({})]").format(
                    number, step.name, step.source
                )
                st.markdown(plain(heading))
                st.latex(step.equation)
    st.caption(plain(SYMBOLS))
