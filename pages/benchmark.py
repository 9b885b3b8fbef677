"""Benchmark: the paper's tables, measured beside published."""

import streamlit as st

from fdkvc.ui import benchmark_settings, benchmark_view
from fdkvc.ui.frame import heading
from fdkvc.ui.run_panel import run_panel
from fdkvc.ui.work import study_work

PAGE = "benchmark"

heading(
    "Benchmark",
    "Every policy runs on the same dialogs, and what comes out stands beside what the paper "
    "printed, with its 95 % interval.",
)
with st.sidebar:
    benchmark, baseline = benchmark_settings.choose_benchmark(PAGE)

study = run_panel(PAGE, "Run", study_work(benchmark))
if study is not None:
    benchmark_view.show_tables(study, baseline)
    benchmark_view.show_files(PAGE, benchmark_view.benchmark_files(study, baseline))
