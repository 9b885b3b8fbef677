"""Alignment under three projections, the paired differences, and the conclusion."""

import pandas as pd
import streamlit as st

from fdkvc.core.words import decimal
from fdkvc.paper.benchmark import matches_paper
from fdkvc.paper.published import ABLATED_POLICY
from fdkvc.paper.replication.cells import scenario_labels
from fdkvc.paper.replication.finding import size_of_alignments
from fdkvc.paper.replication.tables import PUBLISHED, alignments_table, differences_table
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, read_policy
from fdkvc.runs.grid import figures, pivot
from fdkvc.ui.fields import pick
from fdkvc.ui.frame import show_grid
from fdkvc.ui.markdown import Markdown, plain

_NAMES = {
    "value": "with the value matrix",
    "key": "with the key matrix",
    "query": "with the query matrix",
    PUBLISHED: "published (Table 1)",
}


@st.fragment
def show_alignment(page: str, study: Study) -> None:
    """Show the alignments of a scenario, the paired differences and the conclusion."""
    results = study.results
    table = alignments_table(results)
    if table.empty or not matches_paper(results.benchmark):
        st.info(
            "This section needs late metrics at the paper's budget of 56: choose a scenario "
            "besides the adaptation run, and run again."
        )
        return
    st.header("The question", anchor=False)
    st.markdown(
        "Alignment says how well the output of attention points at the current topic: 1 perfectly, "
        "0 not at all. To compare them, the topic is multiplied by a matrix, and the paper does "
        "not say which. The output is a mean of **values**, so only the value matrix can give 1. "
        "The paper prints about 0.02."
    )
    scenarios = scenario_labels(results)
    scenario = pick(f"{page}/alignment/scenario", "Scenario", scenarios, "composite")
    titles = {policy.name: policy.title for policy in results.benchmark.policies}
    rows = table[table.scenario == scenario].replace({"policy": titles})
    # `figures` writes numbers as their metric does.
    rows = rows.assign(metric="late_alignment")
    grid = pivot(rows, figures(rows), column="projection", label=_NAMES.__getitem__)
    show_grid(grid, "Late alignment by projection")
    st.markdown(plain(size_of_alignments(results)))

    differences = differences_table(results)
    if differences.empty:
        return
    ablated = read_policy(ABLATED_POLICY).title
    baseline = read_policy(BASELINE).title
    st.header(plain(f"{ablated} − {baseline}, paired by dialog"), anchor=False)
    st.markdown(
        "With 95 % intervals; a difference is clear where t is above 1.96 or below −1.96. The "
        "published t are the paper's on Shift, Mixed and Gradual (Section 5.6), and elsewhere "
        "follow from the spread of unrelated vectors."
    )
    rows = differences.assign(
        metric="late_alignment", scenario=differences.scenario.map(scenarios)
    )
    apart = figures(rows, ("mean_diff", "ci_low", "ci_high"), signs=True)
    words = [f"{word}, t = {decimal(t, 2)}" for word, t in zip(apart, rows.t, strict=True)]
    grid = pivot(rows, words, ["scenario"], "projection", _NAMES.__getitem__)
    show_grid(grid, "Differences in late alignment")

    st.header("What follows", anchor=False)
    st.markdown(plain(conclusion(differences)))


def conclusion(differences: pd.DataFrame) -> Markdown:
    """Return the conclusion, with the numbers of this run."""
    measured = differences[differences.projection == "value"].set_index("scenario")
    published = differences[differences.projection == PUBLISHED]
    lines = []
    if len(published):
        words = Markdown(
            "- **In single scenarios the published differences are indistinguishable from zero**: "
            "the largest |t| is {:.2f}, and a clear difference needs 1.96."
        )
        lines.append(words.format(published.t.abs().max()))
    words = Markdown("- **With the value matrix, |t| is between {:.0f} and {:.0f}.**")
    lines.append(words.format(measured.t.abs().min(), measured.t.abs().max()))
    return Markdown("\n").join(lines)
