"""Policies: which to use, and how each decides."""

import streamlit as st

from fdkvc.tour import policies
from fdkvc.ui.frame import page

with page(
    "policies",
    "A policy decides which tokens a full cache evicts: see how each performs, what it looks at, "
    "its equations and its source.",
) as shown:
    st.header("Which one should I use?", anchor=False)
    policies.show_judged(shown.name)
    policies.show_general_card(shown.name)
    policies.open_section(shown.name)
