"""The policies of the registry: how they compare, idea, equations, parameters and code."""

import streamlit as st

from fdkvc.core.parameters import written
from fdkvc.models.judged import judged_sentence
from fdkvc.models.report import judged
from fdkvc.policies import POLICIES, WRAPPERS, Policy, policy_named, wrapped
from fdkvc.tour.about import code_of
from fdkvc.ui import fields
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.frame import page_theme, show_grid
from fdkvc.ui.glossary import WORDS, help_on
from fdkvc.ui.markdown import Markdown, plain


def show_judged(page: str) -> None:
    """Say what each policy costs a pretrained model."""
    words = judged_sentence()
    lead, details = words.split(". ", 1)
    st.markdown(Markdown("**{}.** {}").format(lead, details), help=help_on(words))
    show_chart(page, "judged", judged.judged_chart(page_theme()))
    for title, grid in judged.judged_grids().items():
        with st.expander(plain(title)):
            show_grid(grid, title)
    st.caption(plain(judged.ABOUT), help=help_on(judged.ABOUT))


@st.fragment
def show_each(page: str) -> None:
    """Show the idea of each policy and wrapper; what it consists of once it is opened."""
    for key in POLICIES:
        _show_policy(page, policy_named(key))
    st.header("Wrappers", anchor=False)
    st.caption(plain(WORDS["Wrapper"]))
    for key in WRAPPERS:
        _show_policy(page, wrapped(key, policy_named("fifo")))  # which protects no entries itself


def _show_policy(page: str, policy: Policy) -> None:
    title = Markdown("**{}** · {}").format(type(policy).label, policy.idea)
    expander = st.expander(plain(title), key=f"{page}/{policy.key}", on_change="rerun")
    if not expander.open:
        return
    with expander:
        for step in policy.steps:
            st.markdown(Markdown("**{}** :gray[({})]").format(step.name, step.source))
            st.latex(step.equation)
        if policy.settings:
            st.table(
                [
                    {
                        "Parameter": plain(fields.label(field)),
                        "Default": plain(written(field.default)),
                        "Allowed": plain(field.allowed(field.kind)),
                        "What it does": plain(field.help),
                    }
                    for field in policy.settings.values()
                ]
            )
        looks, remembers = policy.looks_at, map(policy.quantity_name, policy.channels)
        st.markdown(
            Markdown("Looks at: {}. Remembers: {}. Key: `{}`.  \n:gray[Source: {}.]").format(
                ", ".join(looks), ", ".join(remembers) or "nothing", policy.key, policy.source
            )
        )
        st.code(code_of(type(policy)), language="python")
