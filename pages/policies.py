"""Policies: what each of them decides by, and where it stands."""

import streamlit as st

from fdkvc.ui import policies
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.frame import enter_page, heading, problems

PAGE = "policies"

enter_page()

wrong = policies.adopt_link(PAGE, fields.arriving_link())

heading(
    "Policies",
    "Who decides what is evicted: the idea of each policy, its equations, what it looks at, its "
    "parameters and its source. All keep to the same budget, except the full cache.",
)
problems(wrong)

st.header("Side by side", anchor=False)
policies.show_overview(policies.choose_metrics(PAGE))

st.header("One by one", anchor=False)
policies.show_each()
