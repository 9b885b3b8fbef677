"""Policies: which to use, and how each decides."""

import streamlit as st

from fdkvc.tour import policies
from fdkvc.ui.frame import page

with page(
    "policies",
    "A policy decides which tokens leave a full cache. Which one should you use, and how does each "
    "decide?",
) as shown:
    policies.show_judged(shown.name)
    st.header("How each decides", anchor=False)
    policies.show_each(shown.name)
