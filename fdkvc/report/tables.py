"""Tables as HTML, plain or with published figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from fdkvc.charts.theme import TINTS, hue_of
from fdkvc.replication.cells import MeasuredTable, figure_words, sign_of, unit_of
from fdkvc.replication.judge import Fact
from fdkvc.replication.rules import RULES
from fdkvc.report.page import css
from fdkvc.words import minus, signed

STYLE = css("tables") + "".join(
    f".grid .{rule.verdict.replace(' ', '-')} {{ background: {TINTS[rule.tone]}; }}\n"
    for rule in RULES
)


def measured_html(table: MeasuredTable) -> str:
    """Return a table of the paper: measured figures above published ones, with verdict signs."""
    columns = [table.corner, *table.columns.values()]
    rows = [
        [f"<th scope='row'{hue_of(label)}>{escape(label)}</th>"]
        + [_cell(table.cells.get((row, column))) for column in table.columns]
        for row, label in table.rows.items()
        if any((row, column) in table.cells for column in table.columns)
    ]
    return _grid(columns, rows, f"{table.heading}, measured and published")


def _cell(fact: Fact | None) -> str:
    if fact is None:
        return "<td></td>"
    name = (fact.verdict or "").replace(" ", "-")
    printed = f"<small>{escape(published_words(fact))}</small>" if fact.is_published else ""
    return f"<td class='{name}'>{escape(figure_words(fact))}{printed}</td>"


def published_words(fact: Fact) -> str:
    """Return the verdict's sign, the published figure, and the difference from it."""
    if not fact.is_published:
        return ""
    unit = unit_of(fact)
    difference = signed(unit.scale * fact.difference, unit.digits)
    return f"{sign_of(fact)} {minus(fact.printed)} ({difference})".strip()


def plain_html(columns: Mapping[str, Sequence[str]], caption: str, words: int = 1) -> str:
    """Return a table of texts, the first `words` columns aligned left."""
    rows = [
        [
            f"<td class='words'{hue_of(cell)}>{escape(cell)}</td>"
            if at < words
            else f"<td>{escape(cell)}</td>"
            for at, cell in enumerate(row)
        ]
        for row in zip(*columns.values(), strict=True)
    ]
    return _grid(list(columns), rows, caption, words)


def _grid(
    columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str, words: int = 1
) -> str:
    names = "".join(
        f"<th scope='col'{' class=words' if at < words else ''}>{escape(name)}</th>"
        for at, name in enumerate(columns)
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f"<div class='grid' tabindex='0' role='region' aria-label='{escape(caption, quote=True)}'>"
        f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table></div>"
    )
