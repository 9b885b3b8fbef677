"""The results of a benchmark: tables beside the published figures, and files."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from fdkvc import export, tables
from fdkvc.study import Study


def show_tables(study: Study, baseline: str) -> None:
    """Show the four tables of the command line."""
    results = study.results
    st.subheader("Late-turn metrics", anchor=False)
    _frame(tables.summary_table(results))
    st.subheader("Turns to adapt", anchor=False)
    _frame(tables.adaptation_table(results))
    st.subheader(f"Paired differences from {baseline}", anchor=False)
    _frame(tables.paired_table(results, baseline))
    st.subheader("Latency", anchor=False)
    _frame(tables.latency_table(study.latencies, results.benchmark.budget))


def _frame(frame: pd.DataFrame) -> None:
    st.dataframe(frame, hide_index=True)


def show_files(page: str, files: Mapping[str, str]) -> None:
    """Offer files for download."""
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


def benchmark_files(study: Study, baseline: str) -> dict[str, str]:
    """Return the files that the command line writes."""
    return export.benchmark_files(study.results, study.latencies, baseline)
