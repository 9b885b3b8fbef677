"""The results of a benchmark, section by section."""

from collections.abc import Callable

import streamlit as st

from fdkvc.experiments.benchmark import Benchmark
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.ui.benchmark import repeat
from fdkvc.ui.benchmark.alignment import show_alignment
from fdkvc.ui.benchmark.choices import kind_of
from fdkvc.ui.benchmark.claims import show_claims, show_scorecard
from fdkvc.ui.benchmark.cost import show_cost
from fdkvc.ui.benchmark.figures import show_figures
from fdkvc.ui.benchmark.pair import show_comparison
from fdkvc.ui.benchmark.tables import show_tables
from fdkvc.ui.kit.files import show_files
from fdkvc.ui.kit.frame import open_tab
from fdkvc.ui.kit.past import open_run

SECTIONS: dict[str, Callable[[str, StudyRun], None]] = {
    "Claims": show_claims,
    "Tables": show_tables,
    "Alignment": show_alignment,
    "Figures": show_figures,
    "Compare two": show_comparison,
    "Time and memory": show_cost,
    "Files": show_files,
}


def show(page: str) -> None:
    """Show the choices with the button that runs them, and the results."""

    def beside(benchmark: Benchmark) -> None:
        repeat.choose_record(page)
        st.page_link(
            "pages/dialogs.py",
            label="Run the dialogs of a file",
            icon=":material/forum:",
            query_params={"section": "all"},
        )

    shown = open_run(kind_of(page), beside)
    if shown is None:
        return
    run = shown.result
    repeat.show_comparison(page, run)
    show_scorecard(page, run.study)
    name, tab = open_tab(page, {name: name for name in SECTIONS}, "Claims")
    with tab:
        SECTIONS[name](page, run)
