"""Tables to read: one pivot of measured rows, rendered as text, HTML and Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import pandas as pd

from fdkvc.charts.theme import hue_of
from fdkvc.core.words import clipped
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.summary import CASE, FIRST, INTERVAL, TIED

DIFFERS = "≠"
"""Marks a figure that differs significantly from the baseline's."""

EQUIVALENT = "≈"
"""Marks a figure that is equivalent to the baseline's; see `fdkvc.engine.summary.verdict_on`."""

PLACES = f"{FIRST} best of its column, {TIED} tied for best"
"""What the marks of first places mean."""


def marks_sentence(baseline: str, places: object = True) -> str:
    """Explain the marks of a table, including those of first places if it has any."""
    differs = f"{DIFFERS} differs significantly from {baseline}, {EQUIVALENT} is equivalent"
    return f"{PLACES}; {differs}" if places else differs


@dataclass(frozen=True)
class Grid:
    """A table of texts: headings, and rows whose first cells name the row.

    Examples
    --------
    >>> print(Grid(["policy", "turns"], [["fifo", "2"], ["h2o", "16"]]).text())
    policy  turns
    fifo        2
    h2o        16
    """

    heads: Sequence[str]
    """The heading of each column."""
    rows: Sequence[Sequence[str]]
    """The cells of each row."""
    names: int = 1
    """How many of the first columns name a row; these are aligned left."""

    @staticmethod
    def of(columns: Mapping[str, Sequence[str]]) -> Grid:
        """Return a grid of named columns."""
        return Grid([*columns], [*zip(*columns.values(), strict=True)])

    def beside(self, columns: Mapping[str, Sequence[str]]) -> Grid:
        """Return the grid with more columns on its right."""
        rows = [
            [*row, *added] for row, *added in zip(self.rows, *columns.values(), strict=True)
        ]
        return Grid([*self.heads, *columns], rows, self.names)

    def without_same(self, expected: Mapping[str, str]) -> Grid:
        """Return the grid without those of the named columns in which each cell is the expected.

        Examples
        --------
        >>> Grid(["way", "again"], [["fifo", "–"], ["h2o", "–"]]).without_same({"again": "–"})
        Grid(heads=['way'], rows=[['fifo'], ['h2o']], names=1)
        """
        places = []
        for place, name in enumerate(self.heads):
            cells = {row[place] for row in self.rows}
            if name not in expected or not cells <= {expected[name]}:
                places.append(place)
        rows = [[row[place] for place in places] for row in self.rows]
        return Grid([self.heads[place] for place in places], rows, self.names)

    @property
    def _widths(self) -> list[int]:
        """Characters of the widest cell of each column."""
        return [max(map(len, column)) for column in zip(self.heads, *self.rows, strict=True)]

    def within(self, width: int) -> Grid:
        """Return the grid cut to a width in characters: in its last column, then in its first."""
        widths = self._widths
        # Two spaces between columns.
        excess_width = sum(widths) + 2 * (len(widths) - 1) - width
        if excess_width <= 0:
            return self
        last = max(widths[-1] - excess_width, min(widths[-1], 16))
        first = widths[0] - max(excess_width - (widths[-1] - last), 0)
        rows = []
        for begin, *middle, end in self.rows:
            rows.append([clipped(begin, first), *middle, clipped(end, last)])
        return Grid(self.heads, rows, self.names)

    def text(self, *, grouped: bool = False) -> str:
        """Align the cells for a terminal.

        If `grouped`, rows with the same first cell form a block that shows it once.
        """
        widths = self._widths

        def line(cells: Sequence[str]) -> str:
            aligned = [*map(str.ljust, cells[: self.names], widths)]
            aligned += map(str.rjust, cells[self.names :], widths[self.names :])
            return "  ".join(aligned).rstrip()

        lines = [line(self.heads)]
        group = None
        for first, *cells in self.rows:
            if grouped and first != group:
                lines.append("")
            lines.append(line(["" if grouped and first == group else first, *cells]))
            group = first
        return "\n".join(lines)

    def html(self, caption: str) -> str:
        """Return the table as HTML; `caption` as for `html_table`."""
        rows = []
        for first, *words in self.rows:
            cells = [f"<td>{escape(word)}</td>" for word in words]
            rows.append([f"<td{hue_of(first)}>{escape(first)}</td>", *cells])
        return html_table(self.heads, rows, caption)

    def markdown(self) -> str:
        """Return the table as Markdown."""
        rows = [self.heads, ["---"] * len(self.heads), *self.rows]
        return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


def pivot(
    table: pd.DataFrame,
    words: Sequence[str],
    rows: Sequence[str] = ("policy",),
    column: str = "budget",
    label: Callable[[Any], str] = str,
    missing: str = "",
) -> Grid:
    """Arrange words, one for each row of a table, by `rows` and a column for each `column` value.

    Both are in the order of the table; `label` returns the heading of a column.
    """
    cells: dict[tuple[str, ...], dict[Any, str]] = {}
    keys = table[[*rows, column]].itertuples(index=False, name=None)
    for (*names, value), word in zip(keys, words, strict=True):
        cells.setdefault(tuple(map(str, names)), {})[value] = word
    columns = list(dict.fromkeys(table[column]))
    heads = [*rows, *map(label, columns)]
    body = []
    for place, row in cells.items():
        body.append([*place, *(row.get(value, missing) for value in columns)])
    return Grid(heads, body, len(rows))


def figures(
    table: pd.DataFrame, interval_columns: Sequence[str] = INTERVAL, *, signs: bool = False
) -> list[str]:
    """Write the mean and the interval of each row, in these columns, as its metric writes them."""
    numbers = table[list(interval_columns)].to_numpy(float).tolist()
    words = []
    for name, row in zip(table.metric, numbers, strict=True):
        words.append(late_metric(name).figure(*row, signs=signs))
    return words


def marked(
    table: pd.DataFrame, paired: pd.DataFrame, places: Mapping[tuple[Any, ...], str]
) -> list[str]:
    """Return the `figures` of a table with their marks; see `marks_sentence`.

    `paired` are differences from the baseline, and `places` the `first_places`.
    """
    case = [name for name in CASE if name in paired]
    marks = {"better": DIFFERS, "worse": DIFFERS, "equivalent": EQUIVALENT, "open": " "}
    compared_cases = paired[case].itertuples(index=False, name=None)
    compared = dict(zip(compared_cases, paired.verdict.map(marks), strict=True))
    cases = table[case].itertuples(index=False, name=None)
    # An equal margin keeps the figures of a column aligned.
    margin = " " if places else ""
    words = []
    for word, place in zip(figures(table), cases, strict=True):
        signs = places.get(place, margin) + compared.get(place, " ")
        words.append(f"{word} {signs}")
    return words


def html_table(
    names: Sequence[str], rows: Sequence[Sequence[str]], caption: str, kind: str = "scrolls"
) -> str:
    """Return a table of columns with these names and of cells in HTML, which scrolls.

    `kind` is its class in CSS; `caption` is read aloud.
    """
    heads = ""
    for name in names:
        heads += f'<th scope="col"{hue_of(name)}>{escape(name)}</th>' if name else "<td></td>"
    body = "".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )
