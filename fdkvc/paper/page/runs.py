"""Two runs side by side: which verdicts differ."""

import streamlit as st

from fdkvc.core.words import count
from fdkvc.paper.page.choices import kind
from fdkvc.paper.page.past import listed_runs, title_of
from fdkvc.paper.replication.finding import changed_verdicts
from fdkvc.paper.study import Study
from fdkvc.ui.fields import pick
from fdkvc.ui.frame import show_grid
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

changes = cached(changed_verdicts)


@st.fragment
def show_runs(page: str, study: Study) -> None:
    """Choose another run, and show the verdicts on which the two differ."""
    runs = {
        name: run for name, run in listed_runs(kind()).items() if run.result.study is not study
    }
    titles = {name: title_of(kind(), run) for name, run in runs.items()}
    other_run = pick(f"{page}/other-run", "Compared with", titles)
    grid = changes(study, runs[other_run].result.study)
    if not grid.rows:
        st.markdown("Every figure and claim that both runs have has the same verdict.")
        return
    st.markdown(plain(f"{count(len(grid.rows), 'verdict')} of figures and claims differ."))
    show_grid(grid, "Verdicts that differ")
