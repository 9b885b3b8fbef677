"""Benchmark: the paper's tables, figures and claims, measured beside published."""

import streamlit as st

from fdkvc.ui.benchmark import choices, sections
from fdkvc.ui.kit.frame import page

with page(
    "benchmark",
    "Benchmark",
    "Every policy runs on the same dialogs: see each result beside the figure that the paper "
    "prints, with its 95 % interval and a verdict.",
    choices.FIELDS,
) as shown:
    st.page_link(
        "pages/dialogs.py", label="Run the dialogs of a file instead", icon=":material/forum:"
    )
    with st.sidebar:
        benchmark = choices.choose_benchmark(shown.name)
    sections.run(shown.name, benchmark)
