"""The results of a benchmark, section by section."""

from collections.abc import Callable
from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.conversations.sources import Sources
from fdkvc.paper.page.alignment import show_alignment
from fdkvc.paper.page.choices import kind_of
from fdkvc.paper.page.claims import show_answer, show_claims
from fdkvc.paper.page.figures import show_figures
from fdkvc.paper.page.pair import show_comparison
from fdkvc.paper.page.tables import show_cost, show_tables
from fdkvc.paper.report.document import papers_report, study_report
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from fdkvc.ui.downloads import files_of, report_button, show_files
from fdkvc.ui.frame import open_tab
from fdkvc.ui.past import open_run


def report_of(study: Study) -> str:
    """Return a study as a report, with a failed call out of the project's own dialogs."""
    recordings, _ = Sources().read_recordings()
    if study is papers_run().study:
        return papers_report(recordings)
    return study_report(study, recordings)


SECTIONS: dict[str, Callable[[str, Study], None]] = {
    "Claims": show_claims,
    "Tables": show_tables,
    "Alignment": show_alignment,
    "Figures": show_figures,
    "Compare two": show_comparison,
    "Time and memory": show_cost,
}

TABLES = (
    "summary adaptation paired comparison latency cost cells claims series alignments "
    "alignment_differences dialogs"
)
FILES = ("run.json", *(f"{name}.csv" for name in TABLES.split()), "tables.md", "tables.tex")
"""The files of a study, in the order in which they are offered."""


def show(page: str, place: DeltaGenerator) -> None:
    """Show the results, and at a place the runs and their files."""
    answer = st.container(key="page-answer")
    shown = open_run(kind_of(page), place)
    if shown is None:
        return
    run, study = shown.result, shown.result.study
    what = "Claims, tables, figures and three interactive examples"
    swept = [f"ablation_{parameter}.csv" for parameter in study.sweeps]
    files = partial(files_of, run)
    with place, st.popover("Download", icon=":material/download:"):
        report_button(page, lambda: report_of(study), what)
        show_files(page, files, [*FILES, *swept], "fdkvc-run.zip")
    with answer:
        show_answer(study)
    name, tab = open_tab(page, {name: name for name in SECTIONS}, "Claims")
    with tab:
        SECTIONS[name](page, study)
