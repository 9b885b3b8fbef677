"""Files of a run: the same as the command line writes, from the same code."""

from __future__ import annotations

import streamlit as st

from fdkvc import export
from fdkvc.benchmark import Results
from fdkvc.study import Study
from fdkvc.sweep import Sweep, sweep_table, swept_only
from fdkvc.tables import default_baseline


def show_files(page: str, study: Study) -> None:
    """Offer the files."""
    baseline = default_baseline(study.results.benchmark.policies)
    files = export.benchmark_files(study.results, study.latencies, baseline)
    with st.container(horizontal=True):
        for name, text in files.items():
            st.download_button(
                name,
                text,
                name,
                key=f"{page}/file/{name}",
                on_click="ignore",
                icon=":material/download:",
            )


def sweep_files(page: str, sweep: Sweep, results: Results) -> None:
    """Offer the files of a sweep."""
    if not results.dialogs(sweep.scenario.key):
        return
    files = {"sweep.csv": export.csv_text(sweep_table(sweep, results))}
    if len(sweep.axes) == 1:
        only = swept_only(sweep, results)
        files |= export.ablation_files(only, sweep.parameters[0])
    with st.container(horizontal=True):
        for name, text in files.items():
            st.download_button(
                name,
                text,
                name,
                key=f"{page}/file/{name}",
                on_click="ignore",
                icon=":material/download:",
            )
