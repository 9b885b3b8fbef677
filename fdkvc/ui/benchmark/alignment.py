"""Alignment under three projections, the dialogs behind the means, and the conclusion."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fdkvc.charts.dots import dots_chart
from fdkvc.charts.spread import spread_chart
from fdkvc.experiments.benchmark import matches_paper
from fdkvc.experiments.statistics import holm
from fdkvc.experiments.study import Study
from fdkvc.paper.tables import ABLATED_POLICY, BASELINE
from fdkvc.policies import read_policy
from fdkvc.replication.cells import scenario_label
from fdkvc.replication.projections import (
    PROJECTIONS,
    PUBLISHED,
    alignments_table,
    differences_table,
)
from fdkvc.ui.benchmark.figures import choose_drawn
from fdkvc.ui.benchmark.pair import show_differences
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.words import decimal, listed

_NAMES = {
    "value": "Topic projected by the value matrix W_V",
    "key": "Topic projected by the key matrix W_K",
    "query": "Topic projected by the query matrix W_Q",
    PUBLISHED: "Published (Table 1)",
}
_ZOOM = 0.08


def show_alignment(page: str, study: Study) -> None:
    """Show the alignments, their distribution, the paired differences and the conclusion."""
    results = study.results
    table = alignments_table(results)
    if table.empty or not matches_paper(results.benchmark):
        st.info(
            "This section needs late metrics at the paper's budget of 56: choose a scenario "
            "besides the adaptation run, and run again."
        )
        return
    st.header("1. The question", anchor=False)
    st.markdown(
        "Alignment is the cosine of the attention output with the current topic, “projected”. The "
        "output is a weighted mean of **values**, so it lives in the space of $W_V$; the paper "
        "does not say which matrix projects the topic, and prints alignments near 0.02 where "
        "aligned vectors would give 1. Here are the same outputs against the same topics, "
        "projected three ways, and beside them what the paper prints."
    )
    drawn = choose_drawn(f"{page}/alignment", study)
    policies = {p.name: p.title for p in results.benchmark.policies if p.name in drawn}
    with side_by_side("projections"):
        for projection, name in _NAMES.items():
            rows = table[(table.projection == projection) & table.policy.isin(policies)]
            if not rows.empty:
                with panel(f"projection-{projection}"):
                    _levels(page, projection, name, rows, policies)
    _levels_in_words(table[table.policy.isin(policies)])

    st.header("2. The dialogs behind a mean", anchor=False)
    _dialogs(page, study, policies)

    differences = differences_table(results)
    if differences.empty:
        return
    ablated, baseline = read_policy(ABLATED_POLICY).title, read_policy(BASELINE).title
    st.header(plain(f"3. {ablated} − {baseline}, paired by dialog"), anchor=False)
    st.markdown(
        "Both policies run on the same dialogs, so differences are paired. Lines: 95 % intervals; "
        "the published ones follow from the paper's own t-tests "
        "(Section 5.6: t = 1.31, 0.57 and 0.87 on Shift, Mixed and Gradual; elsewhere from the "
        "spread that these imply)."
    )
    with side_by_side("projected-differences"):
        for projection, name in _NAMES.items():
            rows = differences[differences.projection == projection]
            if not rows.empty:
                with panel(f"difference-{projection}"):
                    _differences(page, projection, name, rows)

    st.header("4. What follows", anchor=False)
    st.markdown(plain(conclusion(table, differences)))


def _levels(
    page: str, projection: str, name: str, rows: pd.DataFrame, policies: dict[str, str]
) -> None:
    dots = rows.assign(
        row=rows.scenario.map(scenario_label),
        name=rows.policy.map(policies),
        words=[
            f"{n} dialogs, standard deviation {sd:.3f}"
            for n, sd in zip(rows.n, rows.sd, strict=True)
        ],
    )
    ends, scale = (-_ZOOM, _ZOOM), f"zoomed to ± {_ZOOM:g}"
    if projection == "value":
        ends, scale = (min(0.0, float(rows.ci_low.min())), 1.02), "from 0 to 1"
    subtitle = f"late alignment with its 95 % interval, {scale}"
    chart = dots_chart(dots, name, subtitle, page_theme(), ends=ends)
    st.vega_lite_chart(chart, key=f"{page}/levels/{projection}", width="stretch")


def _levels_in_words(table: pd.DataFrame) -> None:
    value = table[table.projection == "value"]
    other = table[table.projection.isin(["key", "query"])]
    inside = ((other.ci_low <= 0) & (other.ci_high >= 0)).mean()
    st.markdown(
        Markdown(
            "With $W_V$ the alignments run from {} to {}. With $W_K$ or $W_Q$ output and "
            "topic are unrelated vectors of 16 numbers: every mean is within {:.3f} of zero, "
            "{:.0%} of the intervals contain zero, and one dialog scatters by about {:.2f} "
            "(1/√16 = 0.25). The published column has that size."
        ).format(
            *(decimal(value["mean"].min()), decimal(value["mean"].max())),
            other["mean"].abs().max(),
            *(inside, other.sd.median()),
        )
    )


@st.fragment
def _dialogs(page: str, study: Study, policies: dict[str, str]) -> None:
    scenarios = {key: scenario_label(key) for key in study.results.reported}
    with st.container(horizontal=True):
        policy = pick(f"{page}/alignment/policy", "Policy", policies, list(policies)[-1])
        scenario = pick(f"{page}/alignment/scenario", "Scenario", scenarios)
    found = {
        f"{projection} matrix": study.results.values(scenario, policy, metric)
        for projection, metric in PROJECTIONS.items()
    }
    values = {name: row for name, row in found.items() if row is not None}
    if not values:
        return
    title = f"{policies[policy]} on {scenario_label(scenario)}"
    subtitle = "late alignment of each dialog · line: the mean"
    chart = spread_chart(values, title, subtitle, page_theme(), least=1)
    st.vega_lite_chart(chart, key=f"{page}/alignment/spread", width="stretch")


def _differences(page: str, projection: str, name: str, rows: pd.DataFrame) -> None:
    shown = rows.assign(words=[f"t = {decimal(t, 2)}" for t in rows.t])
    least = 0.42 if projection == "value" else 0.06
    show_differences(f"{page}/difference/{projection}", name, shown, least)


def conclusion(table: pd.DataFrame, differences: pd.DataFrame) -> Markdown:
    """Return the conclusion, with the numbers of this run."""
    measured = differences[differences.projection == "value"].set_index("scenario")
    published = differences[differences.projection == PUBLISHED]
    sure = measured[holm(measured.p) < 0.05]
    above, below = (
        list(map(str, sure.index[side])) for side in (sure.mean_diff > 0, sure.mean_diff < 0)
    )
    lines = [
        Markdown(
            "- **The published differences are indistinguishable from zero**: the largest |t| "
            "is {:.2f}, and 1.96 is needed."
        ).format(published.t.abs().max())
        if len(published)
        else "",
        Markdown(
            "- **With the value matrix they are not**: |t| is between {:.0f} and {:.0f}."
        ).format(measured.t.abs().min(), measured.t.abs().max()),
        Markdown("- **FD-KVC is above H2O** on {}.").format(_names(above)) if above else "",
        Markdown("- **FD-KVC is below H2O** on {}.").format(_names(below)) if below else "",
        _leaders(table),
    ]
    return Markdown("\n").join(line for line in lines if line)


def _leaders(table: pd.DataFrame) -> str:
    """Name the policies ahead of FD-KVC on composite alignment, measured and published."""
    composite = table[table.scenario == "composite"]
    parts = []
    for projection, word in (("value", "measured"), (PUBLISHED, "published")):
        means = composite[composite.projection == projection].set_index("policy")["mean"]
        if ABLATED_POLICY in means:
            ahead = means[means > means[ABLATED_POLICY]].sort_values(ascending=False)
            if len(ahead):
                leaders = [
                    f"{read_policy(str(name)).title} {decimal(mean, 4)}"
                    for name, mean in ahead.items()
                ]
                parts.append(
                    f"{word}: {', '.join(leaders)}, FD-KVC {decimal(means[ABLATED_POLICY], 4)}"
                )
    if not parts:
        return ""
    return Markdown(
        "- **FD-KVC does not lead the composite**: simple heuristics that keep the newest tokens "
        "are ahead of it ({}), so it is not better than coarse heuristics, in the printed table "
        "either."
    ).format("; ".join(parts))


def _names(scenarios: list[str]) -> str:
    return listed([scenario_label(scenario) for scenario in scenarios])
