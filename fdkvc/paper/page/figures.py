"""The paper's figures."""

import streamlit as st

from fdkvc.charts.theme import Spec, Theme
from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.paper.report.figures import titled_charts
from fdkvc.paper.study import Study
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import segments
from fdkvc.ui.frame import page_theme, panel, side_by_side
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain


@cached
def _charts(study: Study, title: str, theme: Theme) -> dict[str, Spec]:
    """Draw one of the paper's figures."""
    return next(draw(theme) for name, _, draw in figures_of(study) if name == title)


figures_of = cached(titled_charts)


@st.fragment
def show_figures(page: str, study: Study) -> None:
    """Show one of the paper's figures."""
    words = {title: description for title, description, _ in figures_of(study)}
    name = segments(f"{page}/shown-figure", "Figure", {title: title for title in words})
    measured = len(study.results.benchmark.policies)
    if measured > MAX_DRAWN_POLICIES:
        st.caption(
            plain(f"The first {MAX_DRAWN_POLICIES} of {measured} policies; series.csv has all.")
        )
    st.markdown(plain(words[name]))
    with side_by_side("figure"):
        for key, chart in _charts(study, name, page_theme()).items():
            with panel(f"figure-{key}"):
                show_chart(page, f"figure/{key}", chart)
