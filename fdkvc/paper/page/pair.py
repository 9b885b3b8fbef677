"""Two policies on the same dialogs: paired differences with intervals and tests."""

import pandas as pd
import streamlit as st

from fdkvc.core.words import minus, p_value, short
from fdkvc.engine.metrics import late_metric
from fdkvc.paper.replication.cells import scenario_label
from fdkvc.paper.replication.tables import comparison_table
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE
from fdkvc.runs.grid import figures
from fdkvc.ui.fields import pick
from fdkvc.ui.frame import show_grid
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain

comparison = cached(comparison_table)
"""Compares two policies, once for all that show it."""


@st.fragment
def show_comparison(page: str, study: Study) -> None:
    """Choose two policies, and show how they differ."""
    policies = {policy.name: policy.title for policy in study.results.benchmark.policies}
    if len(policies) < 2:
        st.info("A comparison needs two policies: choose another one and run again.")
        return
    with st.container(horizontal=True):
        policy = pick(f"{page}/compare/one", "Policy", policies, [*policies][-1])
        others = {name: title for name, title in policies.items() if name != policy}
        baseline = pick(f"{page}/compare/other", "Compared with", others, BASELINE)
    table = comparison(study.results, (policy,), baseline)
    if table.empty:
        st.info("Nothing to compare: the adaptation run alone has no late metrics.")
        return
    st.markdown(
        plain(
            f"{policies[policy]} − {policies[baseline]}, paired by dialog. "
            "Intervals are at 95 %. "
            f"p is adjusted for the {int(table.p.notna().sum())} tests of this table (Holm). The "
            "effect size is the mean difference divided by its standard deviation (Cohen's d)."
        )
    )
    with st.container(key="comparison"):
        show_grid(_shown(table), "Differences in every scenario and metric")


def _shown(table: pd.DataFrame) -> dict[str, list[str]]:
    return {
        "scenario": table.scenario.map(scenario_label).tolist(),
        "metric": [late_metric(name).heading() for name in table.metric],
        "dialogs": [f"{n:,}" for n in table.n],
        "difference": figures(table, ("mean_diff", "ci_low", "ci_high"), signs=True),
        "t": [*map(short, table.t)],
        "p": [*map(p_value, table.p)],
        "p, adjusted": [*map(p_value, table.p_holm)],
        "effect size": [*map(short, table.effect_size)],
        "in words": [minus(words).replace("p < ", "p\u00a0<\u00a0") for words in table.words],
    }
