"""Figures of the compared runs, with the first of each column marked."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import pandas as pd
import streamlit as st

from fdkvc.experiments.summary import FIRST, TIED
from fdkvc.explain.overlap import figures_table
from fdkvc.run.metrics import ADAPTED, LATE_TURNS, Metric, default_metrics, metric_named, metrics_of
from fdkvc.stage.run import Run
from fdkvc.ui.kit.frame import show_grid
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.lanes import FORK, Lane
from fdkvc.ui.kit.markdown import plain
from fdkvc.words import percent

SAME = "="

COSTS = tuple(key for key, metric in metrics_of().items() if metric.cost)
"""Metrics of cost, which are always shown: memory and reads."""


def show_figures(lanes: Sequence[Lane]) -> None:
    """Show a row of figures for each run over the whole dialog."""
    st.header("The whole run in figures", anchor=False)
    first, more = lanes[0].run, lanes[0].run.more
    table = figures_table({lane.label: lane.run.turns for lane in lanes}, first.dialogs, more)
    columns = {"run": table["policy"].tolist()}

    def add(title: str, values: pd.Series, words: list[str], highest: bool = False) -> None:
        columns[f"{title.lower()} {'↑' if highest else '↓'}"] = marked(values, words, highest)

    shown = dict.fromkeys((*default_metrics(), *more, *COSTS))
    for metric in map(metric_named, shown):
        if metric.name in table:
            values = table[metric.name]
        else:
            values = pd.Series([fmean(_course(lane.run, metric)) for lane in lanes])
        add(metric.title, values, [*map(metric.with_unit, values)], not metric.lower_is_better)
    adapted = [
        "–" if pd.isna(turns) else f"{'> ' if never else ''}{turns:.0f}"
        for turns, never in zip(table["adaptation"], table["never"], strict=True)
    ]
    # A run that never adapts ranks behind one that adapts in the last turn.
    add("turns to adapt", table["adaptation"] + 0.5 * table["never"], adapted)
    add("evictions", table["evictions"], table["evictions"].astype(str).tolist())
    latency = table["latency_ms"]
    add("latency", latency, [f"{ms:.2f} ms" for ms in latency])
    with st.container(key="whole-run"):
        show_grid(columns, "Figures of the whole run")
    show_glossary(shown, (lane.run.trace.policy for lane in lanes))
    st.caption(
        plain(
            f"↑ higher is better, ↓ lower is better. {FIRST} first, {TIED} tied for first, "
            f"{SAME} equal in every run; the marks hold for this dialog only. Late: "
            f"mean of the last {LATE_TURNS} turns. Turns to adapt: from the first change of topic "
            f"until {percent(ADAPTED)} of the cache is about the new topic; > n: not within the n "
            "turns. Latency: the median turn of this single run, so it varies; the benchmark "
            "repeats it."
            + (" A fork's figures include the turns before it." if lanes[-1].name == FORK else "")
        )
    )


def _course(run: Run, metric: Metric) -> list[float]:
    """Return a metric of every turn, for a fork including those before it."""
    before = [] if run.trunk is None else _course(run.trunk, metric)[: run.trace.first_turn]
    return [*before, *metric.measure(run.trace, run.dialogs)[0].tolist()]


def marked(values: pd.Series[float], words: Sequence[str], highest: bool) -> list[str]:
    """Mark the first of a column; equal text counts as a tie.

    Examples
    --------
    >>> marked(pd.Series([0.5, 0.9, 0.1]), ["0.5", "0.9", "0.1"], highest=True)
    ['0.5', '0.9 ★', '0.1']
    >>> marked(pd.Series([2.0, 2.0, 7.0]), ["2", "2", "> 7"], highest=False)
    ['2 ☆', '2 ☆', '> 7']
    >>> marked(pd.Series([8.0, 8.0]), ["8", "8"], highest=True)
    ['8 =', '8 =']
    """
    if len(words) < 2 or values.isna().any():
        return list(words)
    if len(set(words)) == 1:
        return [f"{word} {SAME}" for word in words]
    first = words[values.tolist().index(values.max() if highest else values.min())]
    mark = FIRST if words.count(first) == 1 else TIED
    return [f"{word} {mark}" if word == first else word for word in words]
