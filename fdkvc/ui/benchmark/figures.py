"""The paper's figures, live, and any other that one asks for."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fdkvc.experiments.study import Study
from fdkvc.limits import MAX_DRAWN_POLICIES
from fdkvc.replication.tables import ablation_table, series_table
from fdkvc.report.figures import (
    ABLATIONS_TITLE,
    ABLATIONS_WORDS,
    FIGURES,
    ablation_chart,
    drawn_first,
    printed_metrics,
    quantity_label,
    series_chart,
)
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain


def show_figures(page: str, study: Study) -> None:
    """Show the paper's figures, then any quantity over the turns of any scenario."""
    table = turns_of(study)
    drawn = choose_drawn(page, study)
    shown = {scenario.key for scenario in study.results.benchmark.scenarios}
    for number, (title, words, panels) in enumerate(FIGURES, 1):
        wanted = [(scenario, quantity) for scenario, quantity in panels if scenario in shown]
        if wanted:
            st.header(plain(title), anchor=False)
            st.markdown(plain(words))
            with side_by_side(f"figure-{number}"):
                for scenario, quantity in wanted:
                    with panel(f"figure-{scenario}-{quantity}"):
                        _chart(page, study, table, scenario, quantity, drawn)
    if study.sweeps:
        _ablations(page, study)
    _any_other(page, study, table, drawn)


def choose_drawn(page: str, study: Study) -> tuple[str, ...]:
    """Return the policies that figures draw: all, or those that a person chooses of many."""
    policies = study.results.benchmark.policies
    if len(policies) <= MAX_DRAWN_POLICIES:
        return tuple(policy.name for policy in policies)
    titles = {policy.name: policy.title for policy in policies}
    chosen = st.multiselect(
        plain(f"Drawn, at most {MAX_DRAWN_POLICIES} of {len(policies)}"),
        list(titles),
        default=list(drawn_first(policies)),
        format_func=titles.__getitem__,
        max_selections=MAX_DRAWN_POLICIES,
        key=f"{page}/drawn",
    )
    return tuple(chosen) or drawn_first(policies)


@cached
def turns_of(study: Study) -> pd.DataFrame:
    """Return the means of every turn, once for all that show them."""
    return series_table(study.results)


def _chart(
    page: str,
    study: Study,
    table: pd.DataFrame,
    scenario: str,
    quantity: str,
    drawn: tuple[str, ...],
    place: str = "",
) -> None:
    chart = series_chart(study, table, scenario, quantity, page_theme(), drawn)
    if chart is None:
        st.info(plain(f"{quantity_label(quantity)} was not measured for these policies."))
    else:
        st.vega_lite_chart(
            chart, key=f"{page}/series/{place}{scenario}/{quantity}", width="stretch"
        )


def _ablations(page: str, study: Study) -> None:
    st.header(plain(ABLATIONS_TITLE), anchor=False)
    st.markdown(plain(ABLATIONS_WORDS))
    for parameter, results in study.sweeps.items():
        table = ablation_table(results, parameter)
        with side_by_side(f"ablation-{parameter}"):
            for metric in printed_metrics(table):
                with panel(f"ablation-{parameter}-{metric}"):
                    st.vega_lite_chart(
                        ablation_chart(table, parameter, metric, page_theme()),
                        key=f"{page}/curve/{parameter}/{metric}",
                        width="stretch",
                    )


@st.fragment
def _any_other(page: str, study: Study, table: pd.DataFrame, drawn: tuple[str, ...]) -> None:
    st.header("Any other", anchor=False)
    scenarios = {each.key: each.label for each in study.results.benchmark.scenarios}
    quantities = {name: quantity_label(name) for name in table.quantity.unique()}
    with st.container(horizontal=True):
        scenario = pick(f"{page}/other/scenario", "Scenario", scenarios)
        quantity = pick(f"{page}/other/quantity", "Over the turns", quantities)
    _chart(page, study, table, scenario, quantity, drawn, "other/")
