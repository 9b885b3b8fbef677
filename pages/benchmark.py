"""Benchmark: the paper's tables, figures and claims, measured beside published."""

import streamlit as st

from fdkvc.ui.benchmark import choices, repeat, sections
from fdkvc.ui.kit.frame import enter_page, heading
from fdkvc.ui.kit.run_panel import run_panel
from fdkvc.ui.kit.work import study_work

PAGE = "benchmark"

enter_page()

heading(
    "Benchmark",
    "Every policy runs on the same dialogs; what comes out stands beside what the paper prints, "
    "with its 95 % interval and a verdict. The paper's own 600 dialogs a scenario take seconds.",
)
st.page_link("pages/dialogs.py", label="Run the dialogs of a file instead", icon=":material/forum:")
with st.sidebar:
    benchmark = choices.choose_benchmark(PAGE)

study = run_panel(PAGE, "Run", study_work(benchmark))
repeat.choose_record(PAGE)

if study is not None:
    sections.about_run(study, benchmark)
    repeat.tell_repeated(PAGE, study)
    sections.show_sections(PAGE, study)
