"""The dialog from left to right: schedule, cache river, row states, metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    DASHES,
    Panel,
    Spec,
    Theme,
    built_once,
    column,
    edge_scale,
    inside_axis,
    layered,
    letter_scale,
    panel_title,
    pattern_scale,
    top_legend,
    topic_scale,
)
from fdkvc.words import decimal, percent

OWN_COLOURS = alt.Resolve(scale=alt.ScaleResolveMap(color="independent"))
RIVER_TITLE = panel_title("Cache river", "kept entries by age, the oldest at the bottom")
LETTER_ROOM = 5  # the least height, in slots, of a river run that carries its letter


@dataclass(frozen=True)
class Line:
    """A line over the turns.

    Attributes
    ----------
    low, high : float
        The range that its axis shows.
    start : float, optional
        A level to mark, with its label.
    percent : bool
        Whether people read it as a percentage.
    digits : int
        How many they read behind the point.
    """

    field: str
    label: str
    low: float
    high: float
    start: float | None = None
    percent: bool = False
    digits: int = 3

    def words(self, value: float) -> str:
        """Write a value as people read it."""
        if math.isnan(value):
            return "–"
        return percent(value, 1) if self.percent else decimal(value, self.digits)


@built_once
def timeline_spec(
    turns: int,
    budget: int,
    topics: tuple[str, ...],
    states: tuple[Line, ...],
    metrics: tuple[Line, ...],
    theme: Theme,
) -> Spec:
    """Build the spec of the timeline.

    For data ``ribbon``, ``river``, ``path``, ``turns``, ``metrics``, ``changes``, ``cursor``.

    Parameters
    ----------
    states : tuple of Line
        A panel each.
    metrics : tuple of Line
        Together in one panel.
    """
    panels = [_ribbon(turns, topics, theme), river_panel(turns, budget, topics, theme)]
    panels += [_state(turns, line, theme) for line in states]
    panels.append(_metrics(turns, metrics, theme))
    return column(panels, theme)


@built_once
def metrics_spec(turns: int, metrics: tuple[Line, ...], theme: Theme) -> Spec:
    """Build the spec of the metrics alone, for data ``metrics``, ``changes`` and ``cursor``."""
    return column([_metrics(turns, metrics, theme, labels=True)], theme)


def turn_axis(turns: int, labels: bool = False, at: str = "left") -> alt.X:
    """Return the x axis, with room at its left for the labels of the y axis."""
    step = max(1, turns // 20)
    axis = alt.Axis(
        title=None,
        values=[turn + 0.5 for turn in range(0, turns, step)],
        labelExpr="format(floor(datum.value), 'd')",
        labels=labels,
        ticks=False,
        domain=False,
        grid=False,
    )
    domain = [-0.075 * turns, turns]
    return alt.X(f"{at}:Q", scale=alt.Scale(domain=domain, nice=False), axis=axis)


def cursor_panel(turns: int, theme: Theme, labels: bool = False) -> Panel:
    """Draw a frame around the current turn."""
    return (
        alt.Chart(alt.NamedData("cursor"))
        .mark_rect(fillOpacity=0, stroke=theme.ink, strokeWidth=2, aria=False)
        .encode(x=turn_axis(turns, labels), x2=alt.X2("right:Q"))
    )


def changes_panel(turns: int, theme: Theme, labels: bool = False) -> Panel:
    """Draw a line wherever the topic changes."""
    return (
        alt.Chart(alt.NamedData("changes"))
        .mark_rule(stroke=theme.ink, strokeDash=[2, 3], opacity=0.6, aria=False)
        .encode(x=turn_axis(turns, labels))
    )


def _ribbon(turns: int, topics: Sequence[str], theme: Theme) -> Panel:
    base = alt.Chart(alt.NamedData("ribbon"))
    blocks = base.mark_rect(stroke=theme.paper, strokeWidth=1, cornerRadius=3).encode(
        x=turn_axis(turns, labels=True),
        x2=alt.X2("right:Q"),
        color=alt.Color("topic:N", scale=topic_scale(topics), legend=None),
        tooltip=[alt.Tooltip("turn:Q"), alt.Tooltip("topic:N"), alt.Tooltip("tokens:Q")],
    )
    letters = base.mark_text(fontSize=12, fontWeight="bold", aria=False).encode(
        x=alt.X("middle:Q"),
        text=alt.Text("topic:N"),
        color=alt.Color("topic:N", scale=letter_scale(topics), legend=None),
    )
    return layered(
        blocks,
        letters,
        cursor_panel(turns, theme, labels=True),
        resolve=OWN_COLOURS,
        height=26,
        title=panel_title("Dialog", "topic of each turn"),
    )


def river_panel(
    turns: int,
    budget: int,
    topics: Sequence[str],
    theme: Theme,
    height: int = 230,
    title: alt.TitleParams | None = None,
) -> Panel:
    """Draw the kept entries of every turn by age, from data ``river``, ``path`` and ``cursor``."""
    y = alt.Y(
        "low:Q",
        scale=alt.Scale(domain=[0, budget], nice=False),
        axis=inside_axis(values=[0, budget // 2, budget]),
    )
    base = alt.Chart(alt.NamedData("river"))
    runs = base.mark_rect(strokeWidth=0.7).encode(
        x=turn_axis(turns),
        x2=alt.X2("right:Q"),
        y=y,
        y2=alt.Y2("high:Q"),
        fill=alt.Fill("topic:N", scale=topic_scale(topics), legend=None),
        stroke=alt.Stroke("topic:N", scale=edge_scale(topics, theme), legend=None),
        strokeDash=alt.StrokeDash("topic:N", scale=pattern_scale(topics), legend=None),
        tooltip=[
            alt.Tooltip("turn:Q"),
            alt.Tooltip("topic:N"),
            alt.Tooltip("entries:Q"),
            alt.Tooltip("oldest:Q", title="oldest from turn"),
            alt.Tooltip("newest:Q", title="newest from turn"),
        ],
    )
    letters = (
        base.transform_filter(alt.datum.entries >= LETTER_ROOM * budget / 56)
        .mark_text(fontSize=11, aria=False)
        .encode(
            x=alt.X("middle:Q"),
            y=alt.Y("centre:Q"),
            text=alt.Text("topic:N"),
            color=alt.Color("topic:N", scale=letter_scale(topics), legend=None),
        )
    )
    path = (
        alt.Chart(alt.NamedData("path"))
        .mark_line(
            stroke=theme.ink,
            strokeWidth=2,
            point=alt.OverlayMarkDef(fill=theme.ink, size=28, aria=False),
            aria=False,  # without an entry it is empty, and there is nothing to be said of it
        )
        .encode(x=alt.X("middle:Q"), y=alt.Y("slot:Q"))
    )
    return layered(
        runs,
        letters,
        path,
        cursor_panel(turns, theme),
        resolve=OWN_COLOURS,
        height=height,
        title=title or RIVER_TITLE,
    )


def _state(turns: int, line: Line, theme: Theme) -> Panel:
    """Draw one row state, its axis zoomed to its movement."""
    y = alt.Y(
        f"{line.field}:Q",
        scale=alt.Scale(domain=[line.low, line.high], nice=False, zero=False),
        axis=inside_axis(format=".3~f"),
    )
    drawn = (
        alt.Chart(alt.NamedData("turns"))
        .mark_line(stroke=theme.terms[1], point=alt.OverlayMarkDef(fill=theme.terms[1], size=24))
        .encode(
            x=turn_axis(turns, at="middle"),
            y=y,
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip(f"{line.field}:Q", title=line.label, format=".4f"),
            ],
        )
    )
    layers: list[Panel] = [changes_panel(turns, theme), drawn]
    subtitle = ""
    if line.start is not None:
        subtitle = f"dashed: its start, {line.start:g}"
        layers.append(
            alt.Chart(alt.NamedData("cursor"))
            .mark_rule(stroke=theme.ink, strokeDash=[5, 3], opacity=0.7, aria=False)
            .encode(y=alt.YDatum(line.start))
        )
    layers.append(cursor_panel(turns, theme))
    return layered(*layers, height=64, title=panel_title(line.label, subtitle))


def _metrics(turns: int, lines: Sequence[Line], theme: Theme, labels: bool = False) -> Panel:
    names = [line.label for line in lines]
    colours = [theme.terms[position % len(theme.terms)] for position in range(len(lines))]
    dashes = [list(DASHES[position % len(DASHES)]) for position in range(len(lines))]
    low, high = min(line.low for line in lines), max(line.high for line in lines)
    legend = top_legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=250, offset=12)
    drawn = (
        alt.Chart(alt.NamedData("metrics"))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=22))
        .encode(
            x=turn_axis(turns, labels, at="middle"),
            y=alt.Y(
                "value:Q",
                scale=alt.Scale(domain=[low, high], nice=False),
                axis=inside_axis(values=[0, 0.5, 1]),
            ),
            color=alt.Color(
                "metric:N", scale=alt.Scale(domain=names, range=colours), legend=legend
            ),
            strokeDash=alt.StrokeDash("metric:N", scale=alt.Scale(domain=names, range=dashes)),
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip("metric:N"),
                alt.Tooltip("value:Q", format=".3f"),
            ],
        )
    )
    layers = [
        changes_panel(turns, theme, labels),
        drawn,
        cursor_panel(turns, theme, labels),
    ]
    return layered(*layers, height=120, title=panel_title("Metrics"))


# ------------------------------------------------------------------------------------ data


def placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add where a turn's mark begins, is centred and ends on the x axis."""
    start = frame["turn"].astype(float)
    return frame.assign(left=start, middle=start + 0.5, right=start + 1)


@lru_cache(maxsize=256)
def cursor_data(turn: int) -> pd.DataFrame:
    """Return the frame around a turn."""
    return pd.DataFrame({"left": [turn + 0.0], "middle": [turn + 0.5], "right": [turn + 1.0]})


def metrics_data(turns: pd.DataFrame, lines: Sequence[Line]) -> pd.DataFrame:
    """Return one row for each turn and metric, from a table with a row for each turn."""
    named = {line.field: line.label for line in lines}
    wide = turns[["turn", *named]].rename(columns=named)
    return placed(wide.melt("turn", var_name="metric", value_name="value"))
