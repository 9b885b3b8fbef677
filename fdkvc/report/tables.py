"""Tables as HTML, plain or with published figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from fdkvc.charts.theme import TINTS, hue_of
from fdkvc.files.text import INTERVAL
from fdkvc.replication.cells import MeasuredTable, figure_words, sign_of, unit_of
from fdkvc.replication.judge import Fact
from fdkvc.replication.rules import RULES
from fdkvc.report.page import css
from fdkvc.run.metrics import Metric
from fdkvc.words import decimal, minus, ranged, signed

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
        for row, label in measured_rows(table).items()
    ]
    return rows_html(columns, rows, f"{table.heading}, measured and published")


def measured_rows(table: MeasuredTable) -> dict[str, str]:
    """Return the labels of the rows that have a measured cell."""
    measured = {row for row, _ in table.cells}
    return {row: label for row, label in table.rows.items() if row in measured}


def _cell(fact: Fact | None) -> str:
    if fact is None:
        return "<td></td>"
    name = (fact.verdict or "").replace(" ", "-")
    printed = ""
    if fact.is_published:
        unit = unit_of(fact)
        difference = signed(unit.scale * fact.difference, unit.digits)
        words = f"{sign_of(fact)} {minus(fact.printed)} ({difference})".strip()
        printed = f"<small>{escape(words)}</small>"
    return f"<td class='{name}'>{escape(figure_words(fact))}{printed}</td>"


def figures(table: pd.DataFrame, metric: Metric) -> list[str]:
    """Write the mean and the interval of each row."""
    return [metric.figure(*row) for row in table[list(INTERVAL)].to_numpy(float).tolist()]


def interval_words(
    table: pd.DataFrame,
    scale: float = 1,
    digits: int = 3,
    write: Callable[..., str] = decimal,
    names: Sequence[str] = INTERVAL,
) -> list[str]:
    """Write the mean and the interval of each row, times `scale`; `names` are their columns."""
    figures = scale * table[list(names)].to_numpy(float)
    return [ranged(mean, low, high, digits, write) for mean, low, high in figures.tolist()]


def wide_columns(
    table: pd.DataFrame,
    words: Sequence[str],
    rows: Sequence[str] = ("policy",),
    column: str = "budget",
    label: Callable[[Any], str] = "budget {}".format,
    missing: str = "",
) -> dict[str, list[str]]:
    """Return the words of a table's rows by `rows` and a column for each value of `column`.

    Both are in the order of the table; `label` is the heading of a column.
    """
    cells = table.assign(words=words).set_index([*rows, column]).words
    wide = cells.unstack(sort=False, fill_value=missing)
    names = {name: wide.index.get_level_values(name).tolist() for name in rows}
    return {**names, **{label(each): wide[each].tolist() for each in wide}}


def table_html(columns: Mapping[str, Sequence[str]], caption: str, kind: str = "grid") -> str:
    """Return a table of texts; `kind` and `caption` as for `rows_html`."""
    rows = [
        [f"<td{hue_of(first)}>{escape(first)}</td>", *(f"<td>{escape(word)}</td>" for word in row)]
        for first, *row in zip(*columns.values(), strict=True)
    ]
    return rows_html(list(columns), rows, caption, kind)


def rows_html(
    names: Sequence[str], rows: Sequence[Sequence[str]], caption: str, kind: str = "grid"
) -> str:
    """Return a table of columns with these names and of cells in HTML, which scrolls.

    `kind` is its class in CSS: ``grid``, ``grid words`` with all columns aligned left, or
    ``scrolls`` on a page. `caption` is read aloud.
    """
    heads = "".join(
        f'<th scope="col"{hue_of(name)}>{escape(name)}</th>' if name else "<td></td>"
        for name in names
    )
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
