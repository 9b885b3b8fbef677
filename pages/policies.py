"""Policies: how each decides, and how well it does."""

import streamlit as st

from fdkvc.ui import policies
from fdkvc.ui.kit.frame import page

with page(
    "policies",
    "Policies",
    "A policy decides which tokens a full cache evicts: see what each looks at, its equations and "
    "its source, and how well it does compared with the others.",
    [policies.SHOWN],
) as shown:
    st.header("Which one should I use?", anchor=False)
    policies.show_map(shown.name)

    st.header("Side by side", anchor=False)
    policies.show_overview(shown.name)

    st.header("On agent conversations", anchor=False)
    policies.show_agents(shown.name)

    st.header("What they look at", anchor=False)
    policies.show_what_they_look_at()

    st.header("One by one", anchor=False)
    policies.show_each(shown.name, policies.EVERY)

    st.header("Wrappers", anchor=False)
    policies.show_each(shown.name, policies.WRAPPED)

    st.header("What page size costs", anchor=False)
    policies.show_page_sizes(shown.name)
