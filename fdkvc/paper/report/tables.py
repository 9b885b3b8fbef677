"""The paper's tables as HTML, with published figures and verdicts."""

from html import escape

from fdkvc.charts.theme import TINTS, hue_of
from fdkvc.core.words import signed
from fdkvc.paper.replication.cells import MeasuredTable, marked_words, sign_of, unit_named
from fdkvc.paper.replication.facts import Fact
from fdkvc.paper.replication.rules import RULES
from fdkvc.runs.grid import html_table
from fdkvc.runs.page import css

STYLE = css("tables") + "".join(
    f".grid .{rule.verdict.replace(' ', '-')} {{ background: {TINTS[rule.tone]}; }}\n"
    for rule in RULES
)


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
    return html_table(columns, rows, f"{table.heading}, measured and published")


def _cell(fact: Fact | None) -> str:
    if fact is None:
        return "<td></td>"
    name = (fact.verdict or "").replace(" ", "-")
    printed = ""
    if fact.published is not None:
        unit = unit_named(fact.metric)
        difference = signed(unit.scale * fact.difference, unit.digits)
        words = f"{sign_of(fact)} {fact.published.words} ({difference})".strip()
        printed = f"<small>{escape(words)}</small>"
    return f"<td class='{name}'>{escape(marked_words(fact))}{printed}</td>"
