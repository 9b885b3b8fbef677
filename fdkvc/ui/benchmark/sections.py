"""The results of a benchmark, section by section."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from fdkvc.experiments.benchmark import Benchmark
from fdkvc.experiments.study import Study
from fdkvc.ui.benchmark.alignment import show_alignment
from fdkvc.ui.benchmark.claims import show_claims, show_scorecard
from fdkvc.ui.benchmark.cost import show_cost
from fdkvc.ui.benchmark.figures import show_figures
from fdkvc.ui.benchmark.pair import show_comparison
from fdkvc.ui.benchmark.tables import show_tables
from fdkvc.ui.kit.files import show_files
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.past import Past, about
from fdkvc.words import count

SECTIONS: dict[str, Callable[[str, Study], None]] = {
    "Claims": show_claims,
    "Tables": show_tables,
    "Alignment": show_alignment,
    "Figures": show_figures,
    "Compare two": show_comparison,
    "Time and memory": show_cost,
    "Files": show_files,
}


def about_run(past: Past, chosen: Benchmark) -> None:
    """Say which run is shown, and whether the settings have changed since."""
    results = past.result.results
    ran = results.benchmark
    finished = min(results.dialogs(scenario.key) for scenario in ran.scenarios)
    words = (
        f"{count(finished, 'dialog')} a scenario, seed {ran.seed}, budget {ran.budget}, "
        f"{count(len(ran.policies), 'policy', 'policies')}, {results.seconds:.1f} s"
    )
    about(past, words, (finished, ran.dialogs), chosen)


def show_sections(page: str, study: Study) -> None:
    """Show the section that is open; the others cost nothing."""
    if not any(study.results.measured.values()):
        st.info("The run was cancelled before anything was finished.")
        return
    show_scorecard(page, study)
    tabs = st.tabs([plain(name) for name in SECTIONS], key=f"{page}/sections", on_change="rerun")
    for tab, show in zip(tabs, SECTIONS.values(), strict=True):
        if tab.open:
            with tab:
                show(page, study)
