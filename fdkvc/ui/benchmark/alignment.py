"""Alignment under three projections, the dialogs behind the means, and the conclusion."""

from collections.abc import Iterator

import pandas as pd
import streamlit as st

from fdkvc.charts.results import dots_chart, spread_chart
from fdkvc.experiments.benchmark import matches_paper
from fdkvc.experiments.statistics import holm
from fdkvc.experiments.study import Study
from fdkvc.kinds.benchmark import StudyRun
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
    "value": "Projected by the matrix of the values",
    "key": "Projected by the matrix of the keys",
    "query": "Projected by the matrix of the queries",
    PUBLISHED: "Published (Table 1)",
}
_ZOOM = 0.08


def show_alignment(page: str, run: StudyRun) -> None:
    """Show the alignments, their distribution, the paired differences and the conclusion."""
    study = run.study
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
        "Alignment is the cosine of the attention output and the “projected” current topic. The "
        "output is a weighted mean of **values**, so it lies in the space of their matrix. The "
        "paper does not say which matrix projects the topic, and prints alignments near 0.02, "
        "where aligned vectors would give 1. The charts compare the same outputs with the same "
        "topics, projected in three ways, and show the published alignments."
    )
    drawn = choose_drawn(f"{page}/alignment", study)
    policies = {p.name: p.title for p in results.benchmark.policies if p.name in drawn}
    drawn_rows = table[table.policy.isin(policies)]
    for projection, rows in _side_by_side("projection", drawn_rows):
        _levels(page, projection, rows, policies)
    _levels_in_words(drawn_rows)

    st.header("2. The dialogs behind a mean", anchor=False)
    _dialogs(page, study, policies)

    differences = differences_table(results)
    if differences.empty:
        return
    ablated, baseline = read_policy(ABLATED_POLICY).title, read_policy(BASELINE).title
    st.header(plain(f"3. {ablated} − {baseline}, paired by dialog"), anchor=False)
    st.markdown(
        "Both policies run on the same dialogs, so differences are paired. Lines are 95 % "
        "intervals. The published ones follow from the paper's t-tests on Shift, Mixed and Gradual "
        "(Section 5.6: t = 1.31, 0.57 and 0.87), and elsewhere from the spread that these imply."
    )
    for projection, rows in _side_by_side("difference", differences):
        shown = rows.assign(words=[f"t = {decimal(t, 2)}" for t in rows.t])
        least = 0.42 if projection == "value" else 0.06
        key = f"{page}/difference/{projection}"
        show_differences(key, _NAMES[projection], shown, least)

    st.header("4. What follows", anchor=False)
    st.markdown(plain(conclusion(table, differences)))


def _side_by_side(kind: str, table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Open a panel for each projection in turn; yield its name and its rows."""
    with side_by_side(f"{kind}s"):
        for projection in _NAMES:
            rows = table[table.projection == projection]
            if not rows.empty:
                with panel(f"{kind}-{projection}"):
                    yield projection, rows


def _levels(page: str, projection: str, rows: pd.DataFrame, policies: dict[str, str]) -> None:
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
    chart = dots_chart(dots, _NAMES[projection], subtitle, page_theme(), ends=ends)
    st.vega_lite_chart(chart, key=f"{page}/levels/{projection}", width="stretch")


def _levels_in_words(table: pd.DataFrame) -> None:
    value = table[table.projection == "value"]
    other = table[table.projection.isin(["key", "query"])]
    inside = ((other.ci_low <= 0) & (other.ci_high >= 0)).mean()
    st.markdown(
        Markdown(
            "By the matrix of the values, alignments are {} to {}. By the others, output and topic "
            "are unrelated vectors of 16 numbers: every mean is within {:.3f} of zero, {:.0%} of "
            "the intervals contain zero, and the standard deviation over dialogs is about {:.2f} "
            "(1/√16 = 0.25). The published alignments are of that size."
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
    values = {
        f"{projection} matrix": row
        for projection, metric in PROJECTIONS.items()
        if (row := study.results.values(scenario, policy, metric)) is not None
    }
    if not values:
        return
    title = f"{policies[policy]} on {scenario_label(scenario)}"
    subtitle = "late alignment of each dialog · line: the mean"
    chart = spread_chart(values, title, subtitle, page_theme(), least=1)
    st.vega_lite_chart(chart, key=f"{page}/alignment/spread", width="stretch")


def conclusion(table: pd.DataFrame, differences: pd.DataFrame) -> Markdown:
    """Return the conclusion, with the numbers of this run."""
    measured = differences[differences.projection == "value"].set_index("scenario")
    published = differences[differences.projection == PUBLISHED]
    sure = measured[holm(measured.p) < 0.05]
    lines = []
    if len(published):
        words = Markdown(
            "- **The published differences are indistinguishable from zero**: the largest |t| "
            "is {:.2f}, below 1.96."
        )
        lines.append(words.format(published.t.abs().max()))
    words = Markdown(
        "- **With the topic in the space of the output, |t| is between {:.0f} and {:.0f}.**"
    )
    lines.append(words.format(measured.t.abs().min(), measured.t.abs().max()))
    for place, side in (("above", sure.mean_diff > 0), ("below", sure.mean_diff < 0)):
        if side.any():
            names = listed([scenario_label(str(scenario)) for scenario in sure.index[side]])
            lines.append(Markdown("- **FD-KVC is {} H2O** on {}.").format(place, names))
    return Markdown("\n").join([*lines, _leaders(table)])


def _leaders(table: pd.DataFrame) -> str:
    """Name the policies ahead of FD-KVC on composite alignment, measured and published."""
    composite = table[table.scenario == "composite"]
    parts = []
    for projection, word in (("value", "measured"), (PUBLISHED, "published")):
        means = composite[composite.projection == projection].set_index("policy")["mean"]
        if ABLATED_POLICY in means:
            first = means[means >= means[ABLATED_POLICY]].sort_values(ascending=False)
            named = [f"{read_policy(str(key)).title} {decimal(x, 4)}" for key, x in first.items()]
            if len(named) > 1:
                parts.append(f"{word}: {', '.join(named)}")
    if not parts:
        return ""
    return Markdown(
        "- **FD-KVC does not lead the composite**: simple heuristics that keep the newest tokens "
        "have higher means ({}), also in the published table."
    ).format("; ".join(parts))
