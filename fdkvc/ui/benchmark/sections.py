"""The results of a benchmark, section by section."""

from collections.abc import Callable
from functools import partial

import streamlit as st

from fdkvc.experiments.benchmark import matches_paper
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.ui.benchmark import repeat
from fdkvc.ui.benchmark.alignment import show_alignment
from fdkvc.ui.benchmark.choices import choose_benchmark, runs_of
from fdkvc.ui.benchmark.claims import show_claims, show_scorecard
from fdkvc.ui.benchmark.cost import show_cost
from fdkvc.ui.benchmark.figures import show_figures
from fdkvc.ui.benchmark.pair import show_comparison
from fdkvc.ui.benchmark.tables import show_tables
from fdkvc.ui.kit import past
from fdkvc.ui.kit.files import show_files
from fdkvc.ui.kit.frame import open_tab
from fdkvc.ui.kit.run_panel import run_panel
from fdkvc.ui.kit.variants import warn_no_effect

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
    runs = runs_of(page)
    with st.sidebar:
        above = st.container()
        benchmark = choose_benchmark(page)
        with above:
            job = run_panel(page, "Run", partial(StudyRun.measure, benchmark), content=benchmark)
    warn_no_effect(benchmark.policies)
    shown = past.at_hand(runs, benchmark, job)
    with st.container(horizontal=True, vertical_alignment="center", key="benchmark-runs"):
        past.show_runs(runs, shown)
        repeat.choose_record(page)
        st.page_link(
            "pages/dialogs.py",
            label="Run the dialogs of a file",
            icon=":material/forum:",
            query_params={"section": "all"},
        )
    if shown is None:
        past.offer()
        return
    run, rest = shown.result, ""
    assert isinstance(run, StudyRun)
    study, results = run.study, run.results
    if not study.seconds or (matches_paper(results.benchmark) and study.probes is None):
        rest = "What follows them (ablations, times, memory, probes) is not."
    past.about(runs, shown, benchmark, rest)
    repeat.show_comparison(page, run)
    if not any(results.measured.values()):
        st.info("The run was cancelled before its first dialogs finished.")
        return
    show_scorecard(page, study)
    name, tab = open_tab(page, {name: name for name in SECTIONS}, "Claims")
    with tab:
        SECTIONS[name](page, run)
