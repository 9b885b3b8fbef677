"""The paper's tables, measured beside published; the dialogs behind any cell that is clicked."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from fdkvc.charts.spread import bars_data, means_data, spread_range, spread_spec
from fdkvc.charts.theme import with_data
from fdkvc.judged.cells import (
    MeasuredTable,
    figure_words,
    measured_tables,
    sign_of,
    unit_of,
    verdicts_of,
)
from fdkvc.judged.chance import behind_chance, has_chance
from fdkvc.judged.judge import Fact, values_behind
from fdkvc.judged.rules import LEGEND, RULES, SIGNS
from fdkvc.measured.study import Study
from fdkvc.ui.kit.chance import say_chance
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.markdown import Markdown, plain

_TINTS = {rule.verdict: f"background-color: {rule.tint}" for rule in RULES}


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
        st.markdown(Markdown("1. " + "\n1. ".join(LEGEND)))
    show_glossary(study.results.benchmark.metrics)
    for table in tables:
        _show_table(page, study, table)


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
def _show_table(page: str, study: Study, table: MeasuredTable) -> None:
    """Show one table; a click in it runs nothing else again."""
    st.header(plain(table.heading), anchor=False)
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
        column = by_label.get(label, "")
        if (row, column) in table.cells:
            _show_cell(page, study, table, row, column)


def _frames(table: MeasuredTable) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the texts of a table's cells, and their styles: a row measured, the next published.

    A table of which the paper prints nothing has no published rows.
    """
    texts, tints = [], []
    for row, row_label in table.rows.items():
        tint = ["", *table.texts(row, lambda fact: _TINTS.get(fact.verdict or "", ""))]
        texts.append([row_label, *table.texts(row, figure_words)])
        tints.append(tint)
        if _printed(table):
            texts.append(["published", *table.texts(row, _published)])
            tints.append(tint)
    header = [table.corner, *table.columns.values()]
    return pd.DataFrame(texts, columns=header), pd.DataFrame(tints, columns=header)


def _printed(table: MeasuredTable) -> bool:
    """Whether the paper prints any of a table's figures."""
    return any(fact.is_published for fact in table.cells.values())


def _published(fact: Fact) -> str:
    """Write the sign of the verdict, the published figure, and the difference from it."""
    if not fact.is_published:
        return ""
    unit = unit_of(fact)
    difference = f"{unit.scale * fact.difference:+.{unit.digits}f}"
    return f"{sign_of(fact)} {fact.printed} ({difference})".strip()


def _show_cell(page: str, study: Study, table: MeasuredTable, row: str, column: str) -> None:
    """Show what stands behind a cell: its sentence, and the dialogs of all rows."""
    st.markdown(
        Markdown("**{}, {}**: {}").format(
            table.rows[row], table.columns[column], cell_sentence(table.cells[row, column])
        )
    )
    values = {
        label: values * unit_of(fact).scale
        for key, label in table.rows.items()
        if (fact := table.cells.get((key, column))) is not None
        and (values := values_behind(study, fact)) is not None
    }
    if table.rows[row] not in values:
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


def cell_sentence(fact: Fact) -> Markdown:
    """Say what a cell holds."""
    unit = unit_of(fact)
    name = f" {unit.name}" if unit.name else ""
    parts = [f"measured {figure_words(fact)}{name}"]
    if fact.n:
        parts[0] += f" over {fact.n:,} dialogs"
    if fact.is_published:
        parts.append(f"published {fact.printed} ({fact.printed_in})")
        difference = f"{unit.scale * fact.difference:+.{unit.digits + 1}f}"
        parts.append(f"difference {difference}{name}")
    else:
        parts.append("the paper prints nothing")
    if fact.verdict is not None:
        parts.append(Markdown("**{}**").format(fact.verdict))
    return Markdown("{}.").format(Markdown("; ").join(parts))
