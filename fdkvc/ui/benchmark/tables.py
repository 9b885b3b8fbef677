"""The paper's tables, measured and published, the distribution behind a clicked cell, and costs."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.charts.results import spread_chart
from fdkvc.charts.theme import TINTS
from fdkvc.experiments.study import Study
from fdkvc.kinds.benchmark import StudyRun
from fdkvc.replication.cells import (
    MeasuredTable,
    figure_words,
    measured_tables,
    reproduced_sentence,
    unit_of,
    verdicts_of,
)
from fdkvc.replication.judge import Fact, values_behind
from fdkvc.replication.rules import LEGEND, POWER, RULES
from fdkvc.replication.tables import cost_table
from fdkvc.report.tables import STYLE, measured_html, measured_rows
from fdkvc.ui.benchmark.claims import EVERY, choose_verdict
from fdkvc.ui.kit.fields import segments
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.glossary import show_chance, show_glossary
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.words import decimal, minus, signed

_TINTS = {rule.verdict: f"background-color: {TINTS[rule.tone]}" for rule in RULES}

EXPECTED = (
    "Open is not evidence against a figure: if the paper's 600 dialogs and 600 of ours come from "
    f"one population, only {POWER} % of the varying figures are expected to be reproduced."
)

LAYOUTS = {"printed": "As printed", "sorted": "Sortable"}


def show_tables(page: str, run: StudyRun) -> None:
    """Show every table of the paper."""
    study = run.study
    _show_all(page, study, measured_tables(study))
    if any(policy.key == "random" for policy in study.results.benchmark.policies):
        show_chance()
    else:
        st.caption("To compare with random eviction, add the policy Random and run again.")
    show_glossary(study.results.benchmark.metrics)


@st.fragment
def _show_all(page: str, study: Study, tables: list[MeasuredTable]) -> None:
    """Show the tables in one layout, with all cells or those of one verdict."""
    counts = verdicts_of(tables)
    verdict = EVERY
    with st.container(horizontal=True, vertical_alignment="center", key="table-choices"):
        layout = segments(f"{page}/layout", "Layout", LAYOUTS)
        if any(counts.values()):
            verdict = choose_verdict(page, "Tables", counts)
        with st.popover("Verdicts", icon=":material/help:"):
            st.markdown(Markdown("1. " + "\n1. ".join(LEGEND)))
            st.markdown(plain(f"{reproduced_sentence(tables)} {EXPECTED}"))
    if layout == "printed":
        st.caption(
            "Measured ± half of its 95 % interval; below it the verdict, the published figure and "
            "(measured − published)."
        )
        st.html(f"<style>{STYLE}</style>")
    else:
        st.caption(
            "Measured figures, coloured by verdict. Click a heading to sort, or a cell to see its "
            "distribution over the dialogs."
        )
    if verdict != EVERY:
        tables = [shown for table in tables if (shown := table.of_verdict(verdict)).cells]
    for table in tables:
        st.header(plain(table.heading), anchor=False)
        if layout == "printed":
            st.html(measured_html(table))
        else:
            # A selection is a position, which means another cell once the table is filtered.
            _show_table(page if verdict == EVERY else f"{page}/{verdict}", study, table)


@st.fragment
def _show_table(page: str, study: Study, table: MeasuredTable) -> None:
    figures, tints = frames(table)
    formats: dict[str, str | Callable[[object], str] | None] = {
        label: partial(sortable_words, digits=unit_of(fact).digits)  # numbers, to sort by
        for (_, column), fact in table.cells.items()
        for label in [table.columns[column]]
    }
    event = st.dataframe(
        figures.style.apply(lambda _: tints, axis=None).format(formats, na_rep=""),
        key=f"{page}/table/{table.number}",
        hide_index=True,
        height="content",
        on_select="rerun",
        selection_mode="single-cell",
        alt=f"{table.heading}, measured",
    )
    picked = event.selection.cells
    if picked:
        place, label = picked[0]
        row = [*measured_rows(table)][place]
        column = {label: column for column, label in table.columns.items()}.get(label, "")
        if (row, column) in table.cells:
            _show_cell(page, study, table, row, column)


def frames(table: MeasuredTable) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the measured figures of a table, in the units shown, and the styles of its cells."""
    header = [table.corner, *table.columns.values()]
    figures, tints = [], []
    for row, label in measured_rows(table).items():
        cells = [table.cells.get((row, column)) for column in table.columns]
        means = [
            None if cell is None else math.inf if cell.never else unit_of(cell).scale * cell.mean
            for cell in cells
        ]
        styles = [_TINTS.get(cell.verdict or "", "") if cell else "" for cell in cells]
        figures.append([label, *means])
        tints.append(["", *styles])
    return pd.DataFrame(figures, columns=header), pd.DataFrame(tints, columns=header)


def sortable_words(value: float, digits: int) -> str:
    """Write a figure of the sortable table, in which infinity is an adaptation that never came."""
    return "never" if math.isinf(value) else decimal(value, digits)


def _show_cell(page: str, study: Study, table: MeasuredTable, row: str, column: str) -> None:
    """Show a cell in words, and the distribution of its column for all rows."""
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
    title = f"{table.columns[column]}, distribution over the dialogs"
    chart = spread_chart(values, title, f"{table.title} · line: mean", page_theme())
    st.vega_lite_chart(chart, key=f"{page}/spread/{table.number}", width="stretch")


def cell_sentence(fact: Fact) -> Markdown:
    """Describe a cell: measured, published, difference, verdict."""
    unit = unit_of(fact)
    name = f" {unit.name}" if unit.name else ""
    parts = [f"measured {figure_words(fact)}{name}"]
    if fact.n:
        parts[0] += f" over {fact.n:,} dialogs"
    if (printed := fact.published) is not None:
        parts.append(f"published {minus(printed.printed)} ({printed.source})")
        difference = signed(unit.scale * fact.difference, unit.digits + 1)
        parts.append(f"difference {difference}{name}")
    else:
        parts.append("not in the paper")
    if fact.verdict is not None:
        parts.append(Markdown("**{}**").format(fact.verdict))
    if fact.chance and fact.rule == "alignment":
        parts.append("the published figure is indistinguishable from zero")
    return Markdown("{}.").format(Markdown("; ").join(parts))


# ------------------------------------------------------------------------------- time and memory


def show_cost(page: str, run: StudyRun) -> None:
    """Show latency and memory."""
    study = run.study
    if not study.latencies:
        st.info("The run was cancelled before latency and memory were measured.")
        return
    budget = study.results.benchmark.budget
    titles = {policy.name: policy.title for policy in study.results.benchmark.policies}
    table = cost_table(study)
    table = table.assign(policy=table.policy.map(lambda name: titles.get(name, name)))
    st.header("Time per turn", anchor=False)
    st.markdown(
        "Median time to score, evict and compute the output, after a warm-up. Policies alternate, "
        "so other load slows all of them alike. Times are of this machine; the ratio to FIFO is "
        "easier to compare (3.9 for FD-KVC in the paper). Batched: 100 dialogs at once."
    )
    _show_columns(
        f"{page}/latency",
        table,
        ms_per_turn=("ms, one dialog", "%.3f"),
        published_ms=("published ms", "%.3f"),
        ratio_to_fifo=("× FIFO", "%.2f"),
        published_ratio=("published × FIFO", "%.2f"),
        ms_per_turn_batched=("ms per dialog, batched", "%.4f"),
        batched_ratio_to_fifo=("× FIFO, batched", "%.2f"),
    )
    st.header("Memory and reads", anchor=False)
    st.markdown(
        plain(
            f"Bytes of a cache of {budget} entries, and of all keys and values of a Mixed 3-Topic "
            "dialog without eviction. The paper counts 8 bytes of scores per entry for FD-KVC "
            "(Appendix B). Neither count includes the embeddings that relevance needs."
        )
    )
    _show_columns(
        f"{page}/memory",
        table[table.key_bytes > 0],
        key_bytes=("keys", "%d"),
        value_bytes=("values", "%d"),
        score_bytes=("scores", "%d"),
        score_bytes_per_entry=("scores per entry", "%g"),
        full_cache_bytes=("full cache", "%d"),
        read_bytes=("read per turn", "%d"),
    )


def _show_columns(key: str, table: pd.DataFrame, **columns: tuple[str, str]) -> None:
    """Show these columns with their labels and formats; empty ones are left out."""
    labels = {"policy": "policy"} | {name: label for name, (label, _) in columns.items()}
    shown = table[[*labels]].dropna(axis="columns", how="all").rename(columns=labels)
    formats: dict[str, Any] = {label: form.__mod__ for label, form in columns.values()}
    style = shown.style.format({name: formats[name] for name in shown.columns[1:]}, na_rep="")
    st.dataframe(style, hide_index=True, key=key, height="content")
