"""About: the method in one screen, how to cite it, and what is not shown."""

import streamlit as st

from fdkvc.tour import about
from fdkvc.ui.frame import page

with page(
    "about",
    "A language model remembers a dialog in a cache of limited size. FD-KVC decides what stays in "
    "it; this app shows every decision and checks what its paper claims.",
):
    st.header("The method: one turn", anchor=False)
    about.show_method()
    about.show_text()
