"""Alignment under three projections, the paired differences, and the conclusion."""

import pandas as pd
import streamlit as st

from fdkvc.core.words import decimal
from fdkvc.paper.benchmark import matches_paper
from fdkvc.paper.published import ABLATED_POLICY
from fdkvc.paper.replication.cells import scenario_label
from fdkvc.paper.replication.finding import size_of_alignments
from fdkvc.paper.replication.tables import PUBLISHED, alignments_table, differences_table
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, read_policy
from fdkvc.runs.grid import figures, pivot
from fdkvc.ui.fields import pick
from fdkvc.ui.frame import show_grid
from fdkvc.ui.markdown import Markdown, plain

_NAMES = {
    "value": "projected by the value matrix",
    "key": "by the key matrix",
    "query": "by the query matrix",
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
        "Alignment is the cosine of the attention output and the “projected” current topic. The "
        "output is a weighted mean of **values**, so it lies in the value matrix's space. The "
        "paper does not say which matrix projects the topic, and prints alignments near 0.02, "
        "where aligned vectors would give 1."
    )
    scenarios = {key: scenario_label(key) for key in results.reported}
    scenario = pick(f"{page}/alignment/scenario", "Scenario", scenarios, "composite")
    titles = {policy.name: policy.title for policy in results.benchmark.policies}
    rows = table[table.scenario == scenario].replace({"policy": titles})
    rows = rows.assign(metric="late_alignment")  # `figures` writes numbers as their metric does
    grid = pivot(rows, figures(rows), column="projection", label=_NAMES.__getitem__)
    show_grid(grid, "Late alignment by projection")
    st.markdown(plain(size_of_alignments(results)))

    differences = differences_table(results)
    if differences.empty:
        return
    ablated, baseline = read_policy(ABLATED_POLICY).title, read_policy(BASELINE).title
    st.header(plain(f"{ablated} − {baseline}, paired by dialog"), anchor=False)
    st.markdown(
        "With 95 % intervals. The published ones follow from the paper's t-tests on Shift, Mixed "
        "and Gradual (Section 5.6: t = 1.31, 0.57 and 0.87), and elsewhere from the spread that "
        "these imply."
    )
    rows = differences.assign(metric="late_alignment", scenario=differences.scenario.map(scenarios))
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
            "- **The published differences are indistinguishable from zero**: the largest |t| "
            "is {:.2f}, below 1.96."
        )
        lines.append(words.format(published.t.abs().max()))
    words = Markdown(
        "- **With the topic in the space of the output, |t| is between {:.0f} and {:.0f}.**"
    )
    lines.append(words.format(measured.t.abs().min(), measured.t.abs().max()))
    return Markdown("\n").join(lines)
