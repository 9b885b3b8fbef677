"""Policies: what each of them decides by, and where it stands."""

import streamlit as st

from fdkvc.ui import policies
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.frame import enter_page, heading, problems

PAGE = "policies"

enter_page()

wrong = fields.adopt_link(PAGE, [policies.SHOWN], fields.arriving_link())

heading(
    "Policies",
    "Who decides what is evicted: the idea of each policy, its equations, what it looks at, its "
    "parameters and its source. All keep to the same budget, except the full cache.",
)
problems(wrong)

st.header("The map", anchor=False)
policies.show_map(PAGE)

st.header("Side by side", anchor=False)
policies.show_overview(fields.several(PAGE, policies.SHOWN))
fields.write_link(PAGE, [policies.SHOWN])

st.header("What they look at", anchor=False)
policies.show_what_they_look_at()

st.header("One by one", anchor=False)
policies.show_each(PAGE)

st.header("Policies around policies", anchor=False)
policies.show_wrappers(PAGE)

st.header("What page size costs", anchor=False)
policies.show_page_sizes(PAGE)

st.header("What other methods change", anchor=False)
policies.show_others()
