"""Policies: what each of them decides by, and where it stands."""

import streamlit as st

from fdkvc.ui import fields, policies_view
from fdkvc.ui.frame import enter_page, heading, problems

PAGE = "policies"

enter_page()

wrong = policies_view.adopt_link(PAGE, fields.arriving_link())

heading(
    "Policies",
    "Who decides what is evicted: the idea of each policy, its equations, what it looks at, its "
    "parameters and its source. All keep to the same budget, except the full cache.",
)
problems(wrong)

st.header("Side by side", anchor=False)
policies_view.show_overview(policies_view.choose_metrics(PAGE))

st.header("One by one", anchor=False)
policies_view.show_each()
