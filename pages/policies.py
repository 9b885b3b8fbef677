"""Policies: what each of them decides by, and where it stands."""

import streamlit as st

from fdkvc.ui import policies_view
from fdkvc.ui.frame import enter_page, heading

PAGE = "policies"

enter_page()

heading(
    "Policies",
    "Who decides what is evicted: the idea of each policy, its equations, what it looks at, its "
    "parameters and its source. All keep to the same budget, except the full cache.",
)

st.header("Side by side", anchor=False)
policies_view.show_overview()

st.header("One by one", anchor=False)
policies_view.show_each()
