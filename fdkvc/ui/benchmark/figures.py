"""The paper's figures, and charts of any other quantity over the turns."""

import streamlit as st

from fdkvc.experiments.study import Study
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.limits import MAX_DRAWN_POLICIES
from fdkvc.replication.tables import series_table
from fdkvc.report.figures import (
    ABLATIONS_TITLE,
    ABLATIONS_WORDS,
    FIGURES,
    ablation_charts,
    drawn_first,
    quantity_label,
    series_chart,
)
from fdkvc.ui.kit.fields import pick, segments
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain

OTHER = "Any other quantity"


@st.fragment
def show_figures(page: str, run: StudyRun) -> None:
    """Show one of the paper's figures, or any quantity over the turns of any scenario."""
    study = run.study
    scenarios = {scenario.key for scenario in study.results.benchmark.scenarios}
    figures = {
        title: (words, shown)
        for title, words, panels in FIGURES
        if (shown := [panel for panel in panels if panel[0] in scenarios])
    }
    names = [*figures, *([ABLATIONS_TITLE] if study.sweeps else []), OTHER]
    name = segments(f"{page}/shown-figure", "Figure", {title: title for title in names})
    if name == ABLATIONS_TITLE:
        _ablations(page, study)
        return
    drawn = choose_drawn(page, study)
    if name == OTHER:
        _any_other(page, study, drawn)
        return
    words, panels = figures[name]
    st.markdown(plain(words))
    with side_by_side("figure"):
        for scenario, quantity in panels:
            with panel(f"figure-{scenario}-{quantity}"):
                _chart(page, study, scenario, quantity, drawn)


def choose_drawn(page: str, study: Study) -> tuple[str, ...]:
    """Return the policies to draw: all, or a choice if there are many."""
    policies = study.results.benchmark.policies
    if len(policies) <= MAX_DRAWN_POLICIES:
        return tuple(policy.name for policy in policies)
    titles = {policy.name: policy.title for policy in policies}
    chosen = st.multiselect(
        plain(f"Policies in the charts (at most {MAX_DRAWN_POLICIES} of {len(policies)})"),
        list(titles),
        default=list(drawn_first(policies)),
        format_func=titles.__getitem__,
        max_selections=MAX_DRAWN_POLICIES,
        key=f"{page}/drawn",
    )
    return tuple(chosen) or drawn_first(policies)


turns_of = cached(series_table)
"""Returns the means of every turn, made once."""


def _chart(page: str, study: Study, scenario: str, quantity: str, drawn: tuple[str, ...]) -> None:
    chart = series_chart(study, turns_of(study.results), scenario, quantity, page_theme(), drawn)
    if chart is None:
        st.info(plain(f"{quantity_label(quantity)} was not measured for these policies."))
    else:
        st.vega_lite_chart(chart, key=f"{page}/series/{scenario}/{quantity}", width="stretch")


def _ablations(page: str, study: Study) -> None:
    st.markdown(plain(ABLATIONS_WORDS))
    for parameter, charts in ablation_charts(study, page_theme()).items():
        with side_by_side(f"ablation-{parameter}"):
            for metric, chart in charts.items():
                with panel(f"ablation-{parameter}-{metric}"):
                    key = f"{page}/curve/{parameter}/{metric}"
                    st.vega_lite_chart(chart, key=key, width="stretch")


def _any_other(page: str, study: Study, drawn: tuple[str, ...]) -> None:
    scenarios = {scenario.key: scenario.label for scenario in study.results.benchmark.scenarios}
    quantities = {name: quantity_label(name) for name in turns_of(study.results).quantity.unique()}
    with st.container(horizontal=True):
        scenario = pick(f"{page}/other/scenario", "Scenario", scenarios)
        quantity = pick(f"{page}/other/quantity", "Quantity over the turns", quantities)
    _chart(page, study, scenario, quantity, drawn)
