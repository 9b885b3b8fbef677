"""The paper's figures, and charts of any other quantity over the turns."""

import streamlit as st

from fdkvc.core.limits import MAX_DRAWN_POLICIES
from fdkvc.paper.replication.tables import series_table
from fdkvc.paper.report.figures import quantity_label, series_chart, titled_charts
from fdkvc.paper.study import Study
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import pick, segments
from fdkvc.ui.frame import page_theme, panel, side_by_side
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

OTHER = "Any other quantity"

charts_of, turns_of = cached(titled_charts), cached(series_table)
"""The paper's figures of a study, and the means of every turn, made once."""


@st.fragment
def show_figures(page: str, study: Study) -> None:
    """Show one of the paper's figures, or any quantity over the turns of any scenario."""
    figures = {figure[0]: figure[1:] for figure in charts_of(study, page_theme())}
    name = segments(f"{page}/shown-figure", "Figure", {title: title for title in (*figures, OTHER)})
    measured = len(study.results.benchmark.policies)
    if measured > MAX_DRAWN_POLICIES:
        st.caption(
            plain(f"The first {MAX_DRAWN_POLICIES} of {measured} policies; series.csv has all.")
        )
    if name == OTHER:
        _any_other(page, study)
        return
    words, charts = figures[name]
    st.markdown(plain(words))
    with side_by_side("figure"):
        for key, chart in charts.items():
            with panel(f"figure-{key}"):
                show_chart(page, f"figure/{key}", chart)


def _any_other(page: str, study: Study) -> None:
    table = turns_of(study.results)
    scenarios = {scenario.key: scenario.label for scenario in study.results.benchmark.scenarios}
    quantities = {name: quantity_label(name) for name in table.quantity.unique()}
    with st.container(horizontal=True):
        scenario = pick(f"{page}/other/scenario", "Scenario", scenarios)
        quantity = pick(f"{page}/other/quantity", "Quantity over the turns", quantities)
    chart = series_chart(study, table, scenario, quantity, page_theme())
    if chart is None:
        st.info(plain(f"{quantity_label(quantity)} was not measured for these policies."))
    else:
        show_chart(page, "other", chart)
