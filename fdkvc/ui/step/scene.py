"""One run, turn by turn: the views of the step page."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from fdkvc.charts import timeline
from fdkvc.charts.theme import with_data
from fdkvc.charts.timeline import Line
from fdkvc.files.export import trace_files
from fdkvc.run.metrics import cache_bytes, default_metrics
from fdkvc.ui.kit.downloads import (
    download_files,
    download_pictures,
    show_chart,
    shown_charts,
    tell_address,
)
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.lanes import Lane, changes
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.runs import Run
from fdkvc.ui.stage.lane_stage import follow_lanes, show_lanes
from fdkvc.ui.stage.payload import payload
from fdkvc.ui.stage.save import save_scene
from fdkvc.ui.step import stage, story

FILES = ["entries.csv", "turns.csv"]

METRICS_ALT = "The metrics over the turns; the values of this turn are above"


def show(
    page: str, run: Run, write: Callable[[], None], beside: Sequence[Lane] = ()
) -> Callable[[], None]:
    """Show a run on the stage, and below it what follows it.

    Parameters
    ----------
    page : str
    run : Run
    write : function
        Writes the address, once the server knows the turn and entry of the stage.
    beside : sequence of Lane
        Lanes to show instead, if any.

    Returns
    -------
    function
        The fragment that follows the stage; call it once the page is drawn.
    """
    above = st.container(key="turn-figures").empty()
    if beside:
        show_lanes(page, beside)
    else:
        stage.show(page, run)
        st.fragment(stage.answer)(page, run)
    below = st.container()
    show_glossary((*default_metrics(), *run.choice.asked), [run.choice.policy])
    steps = story.algorithm(run)

    @st.fragment
    def following() -> None:
        turn = follow_lanes(page, beside) if beside else stage.follow(page, run)
        above.html(figures(run, turn))
        metrics(page, run, turn)
        story.inside_turn(run, turn, steps)
        write()

    def follow() -> None:
        with below:
            following()

    return follow


def metrics(page: str, run: Run, turn: int) -> None:
    """Show the metrics over the turns."""
    spec = timeline.metrics_spec(run.dialogs.turns, run.metrics, page_theme())
    data = {"metrics": _metrics_data(run), "changes": changes(run)}
    chart = with_data(spec, {**data, "cursor": timeline.cursor_data(turn)})
    show_chart(page, "metrics", chart, alt=METRICS_ALT)


@cached
def _metrics_data(run: Run) -> pd.DataFrame:
    return timeline.metrics_data(run.turns, run.metrics)


def figures(run: Run, turn: int) -> str:
    """Return the numbers of the turn, with their change from the last, as HTML."""
    now = run.turns.iloc[turn]
    before = run.turns.iloc[turn - 1] if turn else None
    shown = []
    lines = [*run.metrics, *run.states]
    for line in lines:
        value = float(now[line.field])
        change = "" if before is None else _change(line, value - float(before[line.field]))
        shown.append((line.label, line.words(value), change))
    bytes_ = cache_bytes(run.trace, run.dialogs, turn)
    note = f"of {_kib(bytes_.full_cache)} in all; scores {_kib(bytes_.scores)}"
    shown.append(("Keys and values", _kib(bytes_.keys + bytes_.values), note))
    cells = "".join(
        f"<div><small>{name}</small><b>{value}</b> <i>{note}</i></div>"
        for name, value, note in shown
    )
    where = f"Turn {turn} of {run.dialogs.turns - 1}"
    return f'<div class="figures" role="status" aria-label="{where}">{cells}</div>'


def _change(line: Line, difference: float) -> str:
    if math.isnan(difference):
        return ""
    words, nothing = (line.words(each).replace("%", "pp") for each in (abs(difference), 0.0))
    return "±0" if words == nothing else f"{'▲' if difference > 0 else '▼'} {words}"


def _kib(count: int) -> str:
    return f"{count / 1024:.1f} KiB"


def downloads(page: str, run: Run, *, own: bool = False) -> None:
    """Offer the run as CSV and its chart as a picture, as of the click.

    Parameters
    ----------
    own : bool
        Whether the dialog comes from the user's own file.
    """
    with st.popover("Download", icon=":material/download:"):
        tell_address(own)
        title = f"{run.trace.policy.title} on {run.choice.dialog.title}"
        save_scene(page, title, lambda: ("one", payload(run)), [run])
        download_files(page, lambda: trace_files(run.trace, run.dialogs, run.choice.asked), FILES)
        download_pictures(page, shown_charts(page), {"metrics": "metrics"})
