"""Two policies on the same dialogs: paired differences, each with a verdict."""

import streamlit as st

from fdkvc.core.statistics import cluster_mean, differences
from fdkvc.core.words import p_value
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import verdict_on
from fdkvc.paper.benchmark import Results
from fdkvc.paper.replication.cells import scenario_label
from fdkvc.paper.replication.tables import comparisons
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE
from fdkvc.runs.grid import Grid
from fdkvc.ui.fields import pick
from fdkvc.ui.frame import show_grid
from fdkvc.ui.markdown import plain


@st.fragment
def show_policies(page: str, study: Study) -> None:
    """Choose two policies, and show how they differ."""
    policies = {policy.name: policy.title for policy in study.results.benchmark.policies}
    if len(policies) < 2:
        st.info("A comparison needs two policies: choose another one and run again.")
        return
    with st.container(horizontal=True):
        policy = pick(f"{page}/compare/one", "Policy", policies, [*policies][-1])
        other_policies = {name: title for name, title in policies.items() if name != policy}
        baseline = pick(f"{page}/compare/other", "Compared with", other_policies, BASELINE)
    rows = compared(study.results, policy, baseline)
    if not rows:
        st.info("Nothing to compare: the adaptation run alone has no late metrics.")
        return
    st.markdown(
        plain(
            f"{policies[policy]} − {policies[baseline]}, paired by dialog, with 95 % intervals. "
            "Better or worse: the interval excludes 0; otherwise the comparison is open."
        )
    )
    heads = ["scenario", "metric", "difference", "p", "verdict"]
    show_grid(Grid(heads, rows, 2), "Differences in every scenario and metric")


def compared(results: Results, policy: str, baseline: str) -> list[list[str]]:
    """Return the differences of a policy from a baseline, with verdicts, as rows of texts."""
    rows = []
    for scenario, name, _, test in comparisons(results, baseline, (policy,)):
        pair, metric = results.pair(scenario, name, policy, baseline), late_metric(name)
        if pair is not None:
            mean = cluster_mean(differences(*pair), range(test.n))
            words = metric.figure(test.mean, test.low, test.high, signs=True)
            cells = scenario_label(scenario), metric.heading(), words, p_value(test.p)
            # A difference of 0 in every dialog has no test, but a verdict.
            equal = test.verdict == "same" and not test.mean
            rows.append([*cells, "equal" if equal else verdict_on(mean, metric)])
    return rows
