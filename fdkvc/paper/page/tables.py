"""How much of the paper's tables a run reproduces, and the tables, measured and published."""

from html import escape
from itertools import starmap
from pathlib import Path

import streamlit as st

from fdkvc.charts.theme import TINTS, hue_of
from fdkvc.core.words import signed
from fdkvc.paper.page.claims import EVERY, choose_verdict, finding_of
from fdkvc.paper.replication.cells import (
    MeasuredTable,
    marked_words,
    measured_tables,
    sign_of,
    unit_named,
    verdicts_of,
)
from fdkvc.paper.replication.facts import Fact
from fdkvc.paper.replication.rules import COUNTED, LEGEND, POWER, RULES, SIGNS
from fdkvc.paper.study import Study
from fdkvc.runs.grid import PLACES, html_table
from fdkvc.ui.glossary import show_glossary
from fdkvc.ui.markdown import Markdown, plain

MARKS: dict[str | None, tuple[str, str]] = {
    verdict: (sign, COUNTED[verdict]) for verdict, sign in SIGNS.items()
}
"""The sign of each verdict on figures, and the verdict in words."""

EXPECTED = (
    "Open is not evidence against a figure: if the paper's 600 dialogs and 600 of ours come from "
    f"one population, only {POWER} % of the varying figures are expected to be reproduced."
)

STYLE = Path(__file__).with_name("tables.css").read_text("utf-8") + "".join(
    f".grid .{rule.verdict.replace(' ', '-')} {{ background: {TINTS[rule.tone]}; }}\n"
    for rule in RULES
)


def show_tables(page: str, study: Study) -> None:
    """Show how much is reproduced, and every table of the paper."""
    # Claims have a section of their own.
    details = finding_of(study).details.items()
    shown_details = [item for item in details if item[0] != "Claims"]
    lines = starmap(Markdown("- **{}:** {}").format, shown_details)
    st.markdown(Markdown("\n").join(lines))
    _show_all(page, measured_tables(study))
    if any(policy.key == "random" for policy in study.results.benchmark.policies):
        st.info(
            "**Random eviction** does well here: the paper's three metrics depend on the topics in "
            "the cache, not on the tokens, so a random sample of the dialog holds much. Attention "
            "loss depends on the tokens that get attention; in synthetic dialogs attention is "
            "nearly uniform, so policies hardly differ. In recorded dialogs they do.",
            icon=":material/casino:",
        )
    show_glossary(study.results.benchmark.metrics)


@st.fragment
def _show_all(page: str, tables: list[MeasuredTable]) -> None:
    """Show the tables with all cells or those of one verdict."""
    counts: dict[str | None, int] = dict(verdicts_of(tables).items())
    verdict = EVERY
    with st.container(horizontal=True, vertical_alignment="center", key="table-choices"):
        if any(counts.values()):
            verdict = choose_verdict(page, "Tables", counts, MARKS)
        with st.popover("Verdicts", icon=":material/help:"):
            st.markdown(Markdown("1. " + "\n1. ".join(LEGEND)))
            st.markdown(plain(EXPECTED))
    legend = (
        "Measured ± half-width of its 95 % interval; below it, where the paper prints a figure, "
        "verdict (none on times), that figure and Δ, measured − published. ✓: the same up to "
        "rounding and chance, ≠: different, ?: neither is shown, also where Δ is small but "
        f"uncertain. {PLACES}. A table wider than the window scrolls sideways."
    )
    st.caption(plain(legend))
    st.html(f"<style>{STYLE}</style>")
    if verdict != EVERY:
        tables = [table.of_verdict(verdict) for table in tables]
    for table in filter(lambda table: table.cells, tables):
        st.header(plain(table.heading), anchor=False)
        st.html(measured_html(table))


def measured_html(table: MeasuredTable) -> str:
    """Return a table of the paper: measured figures above published ones, with verdict signs."""
    columns = [table.corner, *table.columns.values()]
    measured = {row for row, _ in table.cells}
    rows = []
    for row, label in table.rows.items():
        if row in measured:
            heading = f"<th scope='row'{hue_of(label)}>{escape(label)}</th>"
            cells = [_cell(table.cells.get((row, column))) for column in table.columns]
            rows.append([heading, *cells])
    return html_table(columns, rows, f"{table.heading}, measured and published", "grid")


def _cell(fact: Fact | None) -> str:
    if fact is None:
        return "<td></td>"
    name = (fact.verdict or "").replace(" ", "-")
    printed = ""
    if fact.published is not None:
        unit = unit_named(fact.metric)
        difference = signed(unit.scale * fact.difference, unit.digits)
        figure = f"paper: {fact.published.words} (Δ {difference.lstrip('±')})"
        words = f"{sign_of(fact)} {figure}".strip()
        printed = f"<small>{escape(words)}</small>"
    return f"<td class='{name}'>{escape(marked_words(fact))}{printed}</td>"
