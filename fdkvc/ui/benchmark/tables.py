"""The paper's tables, measured beside published; the dialogs behind any cell that is clicked."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fdkvc.charts.spread import bars_data, means_data, spread_range, spread_spec
from fdkvc.charts.theme import with_data
from fdkvc.judged.cells import (
    RULE,
    SIGNS,
    Cell,
    MeasuredTable,
    measured_tables,
    verdicts_of,
)
from fdkvc.judged.chance import behind_chance, has_chance
from fdkvc.measured.statistics import CellVerdict
from fdkvc.measured.study import Study
from fdkvc.ui.kit.chance import say_chance
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.markdown import Markdown, plain

_TINTS: dict[CellVerdict | None, str] = {
    "reproduced": "background-color: #009E7326",
    "differs": "background-color: #D55E0033",
    "cannot be told from zero": "background-color: #99999926",
    None: "",
}


def show_tables(page: str, study: Study) -> None:
    """Show every table of the paper."""
    tables = measured_tables(study)
    counts = verdicts_of(tables)
    st.markdown(
        Markdown(
            "In each cell: measured ± half of its 95 % interval; below it the sign of the verdict, "
            "the figure that the paper prints, and how far ours is from it. Click a cell to see "
            "the dialogs behind it.  \n{}"
        ).format(
            Markdown(" · ").join(
                Markdown("{} {}: **{}**").format(SIGNS[verdict], verdict, n)
                for verdict, n in counts.items()
            )
        )
    )
    _say_chance(study)
    with st.expander("How a cell is judged"):
        st.markdown(Markdown("1. " + "\n1. ".join(RULE)))
    for table in tables:
        _show_table(page, table)


def _say_chance(study: Study) -> None:
    """Say who does no better than chance, if chance was run."""
    if has_chance(study.results.benchmark.policies):
        say_chance(behind_chance(study.results))
    else:
        st.caption(
            "Is a policy better than evicting blindly? Choose Random beside it in the sidebar, and "
            "run again."
        )


@st.fragment
def _show_table(page: str, table: MeasuredTable) -> None:
    """Show one table; a click in it runs nothing else again."""
    st.subheader(plain(table.heading), anchor=False)
    texts, tints = _frames(table)
    event = st.dataframe(
        texts.style.apply(lambda _: tints, axis=None),
        key=f"{page}/table/{table.number}",
        hide_index=True,
        height="content",
        on_select="rerun",
        selection_mode="single-cell",
        alt=f"{table.heading}, measured and published",
    )
    picked = event.selection.cells
    if picked:
        row_place, label = picked[0]
        row = list(table.rows)[row_place // (2 if _printed(table) else 1)]
        by_label = {label: column for column, label in table.columns.items()}
        cell = table.cells.get((row, by_label.get(label, "")))
        if cell is not None:
            _show_cell(page, table, row, by_label[label], cell)


def _frames(table: MeasuredTable) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the texts of a table's cells, and their styles: a row measured, the next published.

    A table of which the paper prints nothing has no published rows.
    """
    texts, tints = [], []
    for row, row_label in table.rows.items():
        cells = [table.cells.get((row, column)) for column in table.columns]
        texts.append([row_label, *("" if cell is None else cell.words() for cell in cells)])
        tint = ["", *("" if cell is None else _TINTS[cell.verdict] for cell in cells)]
        tints.append(tint)
        if _printed(table):
            printed = ["" if cell is None else _published(cell) for cell in cells]
            texts.append(["published", *printed])
            tints.append(tint)
    header = [table.corner, *table.columns.values()]
    return pd.DataFrame(texts, columns=header), pd.DataFrame(tints, columns=header)


def _printed(table: MeasuredTable) -> bool:
    """Whether the paper prints any of a table's figures."""
    return any(cell.published is not None for cell in table.cells.values())


def _published(cell: Cell) -> str:
    """Write the sign of the verdict, the published figure, and the difference from it."""
    if cell.published is None:
        return ""
    printed, difference = cell.published.printed, cell.unit.scale * cell.difference
    return f"{SIGNS[cell.verdict]} {printed} ({difference:+.{cell.unit.digits}f})".strip()


def _show_cell(page: str, table: MeasuredTable, row: str, column: str, cell: Cell) -> None:
    """Show what stands behind a cell: its sentence, and the dialogs of all rows."""
    st.markdown(
        Markdown("**{}, {}**: {}").format(
            table.rows[row], table.columns[column], cell_sentence(cell)
        )
    )
    values = {
        label: each.values * each.unit.scale
        for key, label in table.rows.items()
        if (each := table.cells.get((key, column))) is not None and each.values is not None
    }
    if cell.values is None or not values:
        return
    low, high = spread_range(values)
    spec = spread_spec(
        f"{table.columns[column]}, each dialog",
        f"{table.title} · line: the mean",
        tuple(values),
        low,
        high,
        page_theme(),
    )
    data = {"bars": bars_data(values), "means": means_data(values)}
    st.vega_lite_chart(with_data(spec, data), key=f"{page}/spread/{table.number}", width="stretch")


def cell_sentence(cell: Cell) -> Markdown:
    """Say what a cell holds."""
    unit = f" {cell.unit.name}" if cell.unit.name else ""
    parts = [f"measured {cell.words()}{unit}"]
    if cell.n:
        parts[0] += f" over {cell.n:,} dialogs"
    if cell.published is None:
        parts.append("the paper prints nothing")
    else:
        parts.append(f"published {cell.published.printed} ({cell.published.source})")
        difference = cell.unit.scale * cell.difference
        parts.append(f"difference {difference:+.{cell.unit.digits + 1}f}{unit}")
    if cell.verdict is not None:
        parts.append(Markdown("**{}**").format(cell.verdict))
    return Markdown("{}.").format(Markdown("; ").join(parts))
