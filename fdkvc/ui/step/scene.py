"""One run, turn by turn: the views of the step page."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from fdkvc.charts import timeline
from fdkvc.charts import turn as turn_charts
from fdkvc.charts.theme import Spec, Theme, with_data
from fdkvc.charts.timeline import Line
from fdkvc.files.export import trace_files
from fdkvc.run.metrics import cache_bytes, usual_metrics
from fdkvc.ui.kit.downloads import (
    download_files,
    download_pictures,
    keep_pictured,
    pictured,
    show_chart,
    tell_address,
)
from fdkvc.ui.kit.fields import held
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.kit.sidebar import ENTRY, ORDER
from fdkvc.ui.stage.lanes import follow_lanes, show_lanes
from fdkvc.ui.stage.payload import payload
from fdkvc.ui.stage.save import save_scene
from fdkvc.ui.step import stage, story

FILES = ["entries.csv", "turns.csv"]

METRICS_ALT = "The metrics over the turns; their figures of this turn stand above"


def show(
    page: str, run: Run, write: Callable[[], None], beside: Sequence[Lane] = ()
) -> Callable[[], None]:
    """Show a run on the stage, and below it what follows it.

    Parameters
    ----------
    page : str
    run : Run
    write : function
        Writes the address, once the page has heard what the stage has come to.
    beside : sequence of Lane
        What the stage shows instead, if anything.

    Returns
    -------
    function
        To be called once the page is drawn: the fragment that follows the stage.
    """
    if beside:
        show_lanes(page, beside)
    else:
        stage.show(page, run)
        st.fragment(stage.answer)(page, run)
    below = st.container()
    show_glossary((*usual_metrics(), *run.choice.asked), [run.choice.policy])
    steps = story.algorithm(run)

    @st.fragment
    def following() -> None:
        turn = follow_lanes(page, beside) if beside else stage.follow(page, run)
        figures(run, turn)
        metrics(page, run, turn)
        story.inside_turn(run, turn, steps)
        write()

    def follow() -> None:
        with below:
            following()

    return follow


def metrics(page: str, run: Run, turn: int) -> None:
    """Show the metrics over the turns; keep what the stage shows at hand for a picture."""
    theme = page_theme()
    spec = timeline.metrics_spec(run.dialogs.turns, run.metrics, theme)
    data = {name: run.timeline[name] for name in ("metrics", "changes")}
    chart = with_data(spec, {**data, "cursor": timeline.cursor_data(turn)})
    show_chart(page, "metrics", chart, alt=METRICS_ALT)
    picked = held(page, ENTRY)
    keep_pictured(
        page,
        {
            "timeline": partial(timeline_chart, run, turn, picked, theme),
            "cache": partial(moment_chart, run, turn, held(page, ORDER), picked, theme),
        },
    )


def timeline_chart(run: Run, turn: int, picked: int | None, theme: Theme) -> Spec:
    """Join the timeline's spec with its data; only the cursor changes from turn to turn."""
    spec = timeline.timeline_spec(
        run.dialogs.turns,
        run.trace.budget,
        run.dialogs.topic_names,
        run.states,
        run.metrics,
        theme,
    )
    return with_data(
        spec,
        {
            **run.timeline,
            "path": _path_data(run, picked),
            "cursor": timeline.cursor_data(turn),
        },
    )


@cached
def _path_data(run: Run, picked: int | None) -> pd.DataFrame:
    return timeline.placed(run.path(picked))


def moment_chart(run: Run, turn: int, order: str, picked: int | None, theme: Theme) -> Spec:
    """Join the turn's spec with the data of this turn alone, as no other is looked up."""
    entries = run.entries[run.entries["turn"] == turn]
    data = _laid_out(run, entries, order, picked, theme)
    cells, bars = (table.drop(columns="turn") for table in data)
    spec = turn_charts.turn_spec(
        run.trace.budget, run.dialogs.turn_tokens, run.terms, run.scores, run.spans, theme
    )
    return with_data(spec, _turn_tables(run, cells, bars, run.cutoffs[turn]))


def _laid_out(
    run: Run, entries: pd.DataFrame, order: str, picked: int | None, theme: Theme
) -> tuple[pd.DataFrame, pd.DataFrame]:
    topics = run.dialogs.topic_names
    cells = turn_charts.cells_data(
        entries, run.trace.budget, run.terms, topics, order, picked, theme
    )
    return cells, turn_charts.bars_data(cells, run.terms)


def _turn_tables(
    run: Run, cells: pd.DataFrame, bars: pd.DataFrame, cutoff: float | None
) -> Mapping[str, pd.DataFrame]:
    return {
        "cells": cells,
        "bars": bars,
        "cutoff": turn_charts.cutoff_data(cutoff),
        "edge": turn_charts.edge_data(cutoff, run.spans, len(run.terms)),
    }


def figures(run: Run, turn: int) -> None:
    """Show the numbers of the turn, with their change from the last."""
    now = run.turns.iloc[turn]
    before = run.turns.iloc[turn - 1] if turn else None
    shown = [
        ("Turn", f"{turn} of {run.dialogs.turns - 1}", ""),
        ("Topic", run.dialogs.topic_label(run.dialogs.current[0, turn]), ""),
        ("Cached", f"{now['cached']:.0f} of {run.trace.budget}", ""),
        ("Evicted", f"{now['evicted']:.0f}", ""),
    ]
    lines = [*run.metrics, *run.states]
    for line in lines:
        value = float(now[line.field])
        change = "" if before is None else _change(line, value - float(before[line.field]))
        shown.append((line.label, line.words(value), change))
    bytes_ = cache_bytes(run.trace, run.dialogs, turn)
    note = f"of {_kib(bytes_.full_cache)} in all; scores {_kib(bytes_.scores)}"
    shown.append(("Keys and values", _kib(bytes_.keys + bytes_.values), note))
    cells = "".join(
        f"<div><small>{name}</small><b>{value}</b><i>{note}</i></div>"
        for name, value, note in shown
    )
    st.html(f'<div class="figures" role="status">{cells}</div>')


def _change(line: Line, difference: float) -> str:
    if math.isnan(difference):
        return ""
    words, nothing = (line.words(each).replace("%", "points") for each in (abs(difference), 0.0))
    return "±0" if words == nothing else f"{'▲' if difference > 0 else '▼'} {words}"


def _kib(count: int) -> str:
    return f"{count / 1024:.1f} KiB"


def downloads(page: str, run: Run, *, own: bool = False) -> None:
    """Offer the run as CSV and the charts as pictures, as they stand at the click.

    Parameters
    ----------
    own : bool
        Whether the dialog is of a person's own file.
    """
    charts = pictured(page)
    with st.popover("Download", icon=":material/download:"):
        tell_address(own)
        title = f"{run.trace.policy.title} on {run.choice.dialog.title}"
        save_scene(page, title, "Stage", lambda: payload(run), [run])
        download_files(page, lambda: trace_files(run.trace, run.dialogs, run.choice.asked), FILES)
        download_pictures(
            page, {"timeline": lambda: charts["timeline"](), "cache": lambda: charts["cache"]()}
        )
