"""Benchmark: the paper's tables, figures and claims, measured beside published."""

import streamlit as st

from fdkvc.ui import benchmark_settings, benchmark_view, repeat_view
from fdkvc.ui.frame import enter_page, heading
from fdkvc.ui.run_panel import run_panel
from fdkvc.ui.work import study_work

PAGE = "benchmark"

enter_page()

heading(
    "Benchmark",
    "Every policy runs on the same dialogs; what comes out stands beside what the paper prints, "
    "with its 95 % interval and a verdict. The paper's own 600 dialogs a scenario take seconds.",
)
st.page_link("pages/dialogs.py", label="Run the dialogs of a file instead", icon=":material/forum:")
with st.sidebar:
    benchmark = benchmark_settings.choose_benchmark(PAGE)

study = run_panel(PAGE, "Run", study_work(benchmark))
repeat_view.choose_record(PAGE)

if study is not None:
    benchmark_view.about_run(study, benchmark)
    repeat_view.tell_repeated(PAGE, study)
    benchmark_view.show_sections(PAGE, study)
