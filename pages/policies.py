"""Policies: which to use, and how each decides."""

import streamlit as st

from fdkvc.tour import policies
from fdkvc.ui.frame import page

with page(
    "policies",
    "A policy decides which tokens a full cache evicts: see how each performs, what it looks at, "
    "its equations and its code.",
) as shown:
    st.header("Which one should I use?", anchor=False)
    policies.show_judged(shown.name)
    st.page_link(
        "pages/dialogs.py", label="Which one for your conversations", icon=":material/forum:"
    )
    st.header("Policies one by one", anchor=False)
    policies.show_each(shown.name)
