"""The paper's figures."""

import streamlit as st

from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.paper.report.figures import titled_charts
from fdkvc.paper.study import Study
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import segments
from fdkvc.ui.frame import page_theme, panel, side_by_side
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

charts_of = cached(titled_charts)
"""The paper's figures of a study, made once."""


@st.fragment
def show_figures(page: str, study: Study) -> None:
    """Show one of the paper's figures."""
    figures = {figure[0]: figure[1:] for figure in charts_of(study, page_theme())}
    name = segments(f"{page}/shown-figure", "Figure", {title: title for title in figures})
    measured = len(study.results.benchmark.policies)
    if measured > MAX_DRAWN_POLICIES:
        st.caption(
            plain(f"The first {MAX_DRAWN_POLICIES} of {measured} policies; series.csv has all.")
        )
    words, charts = figures[name]
    st.markdown(plain(words))
    with side_by_side("figure"):
        for key, chart in charts.items():
            with panel(f"figure-{key}"):
                show_chart(page, f"figure/{key}", chart)
