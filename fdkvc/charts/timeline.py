"""Metrics over the turns of one run or of several, and the overlap of two caches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    DASHES,
    Panel,
    Spec,
    Theme,
    axis_between,
    built_once,
    column,
    cycled,
    layered,
    panel_title,
    policy_legend,
    policy_lines,
    policy_tints,
    tips,
    top_legend,
)
from fdkvc.words import decimal, percent

_INSIDE = {
    "labelAlign": "left",
    "labelPadding": -2,
    "labelBaseline": "line-bottom",
    "ticks": False,
    "domain": False,
    "tickCount": 3,
}
"""Of a y axis whose labels stand inside the plot, which therefore fits any width."""

MOST_POINTS = 120
"""Points on a line: more overlap, and each slows down every step of the stage above."""


@dataclass(frozen=True)
class Line:
    """A line over the turns: the ends of its axis, a `start` level to mark, and its format."""

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
def metrics_spec(turns: int, metrics: tuple[Line, ...], theme: Theme) -> Spec:
    """Build the spec of the metrics, for data ``metrics``, ``changes`` and ``cursor``."""
    names = [line.label for line in metrics]
    low, high = min(line.low for line in metrics), max(line.high for line in metrics)
    legend = top_legend(symbolType="stroke", symbolStrokeWidth=2, symbolSize=250, offset=12)
    drawn = (
        alt.Chart(alt.NamedData("metrics"))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=22))
        .encode(
            x=_turn_axis(turns),
            y=axis_between(alt.Y, "value", (low, high), **_INSIDE, values=[0, 0.5, 1]),
            color=alt.Color("metric:N", scale=cycled(names, theme.terms), legend=legend),
            strokeDash=alt.StrokeDash("metric:N", scale=cycled(names, DASHES)),
            tooltip=["turn:Q", "metric:N", alt.Tooltip("value:Q", format=".3f")],
        )
    )
    return column([_panel(turns, theme, drawn, height=120, title=panel_title("Metrics"))], theme)


@built_once
def lines_spec(
    turns: int, lanes: tuple[str, ...], own_ink: bool, lines: tuple[Line, ...], theme: Theme
) -> Spec:
    """Build the spec of the metrics over the turns: a panel each, with a line for each lane.

    For data ``lines``, ``changes`` and ``cursor``. With `own_ink`, the last lane is a fork, drawn
    in ink over the others.
    """
    colours = policy_tints(lanes, theme)
    if own_ink:
        colours[-1] = theme.ink
    tints = alt.Scale(domain=list(lanes), range=colours)
    panels: list[Panel] = []
    for line in lines:
        form = ".0%" if line.percent else ".1f"
        y = axis_between(alt.Y, line.field, (line.low, line.high), **_INSIDE, format=form)
        run, at = alt.Tooltip("lane:N", title="run"), alt.Tooltip("turn:Q")
        tooltip = [run, at, *tips(".3f", **{line.field: line.label})]
        base = alt.Chart(alt.NamedData("lines")).encode(x=_turn_axis(turns), y=y)
        legend = None if panels else policy_legend(lanes, offset=12)
        drawn, points = policy_lines(base, lanes, tints, tooltip, 36, legend, "lane")
        if turns > MOST_POINTS:
            points = points.transform_filter(f"datum.turn % {math.ceil(turns / MOST_POINTS)} == 0")
        title = panel_title(line.label)
        panels.append(_panel(turns, theme, drawn, points, height=104, title=title))
    return column(panels, theme)


@built_once
def overlap_spec(turns: int, theme: Theme) -> Spec:
    """Build the spec of how far two caches overlap, turn by turn.

    For data ``overlap``, ``changes``, ``parting`` and ``cursor``.
    """
    drawn = (
        alt.Chart(alt.NamedData("overlap"))
        .mark_line(stroke=theme.ink, point=alt.OverlayMarkDef(fill=theme.ink, size=28))
        .encode(
            x=_turn_axis(turns),
            y=axis_between(alt.Y, "jaccard", (0, 1), **_INSIDE, values=[0, 0.5, 1], format=".0%"),
            tooltip=[
                "turn:Q",
                alt.Tooltip("shared:Q", title="in both"),
                alt.Tooltip("only_one:Q", title="only in the first"),
                alt.Tooltip("only_other:Q", title="only in the second"),
                *tips(".1%", jaccard="overlap"),
            ],
        )
    )
    parting = (
        alt.Chart(alt.NamedData("parting"))
        .mark_text(text="▼ caches diverge", align="left", baseline="bottom", dx=-5, fill=theme.ink)
        .encode(x="middle:Q", y=alt.value(-3))
    )
    title = panel_title(
        "Overlap of the two caches", "entries in both, as a share of entries in either"
    )
    return column([_panel(turns, theme, drawn, parting, height=90, title=title)], theme)


def _turn_axis(turns: int, at: str = "middle") -> alt.X:
    """Return the x axis, with room at its left for the labels of the y axis."""
    return axis_between(
        alt.X,
        at,
        (-0.075 * turns, turns),
        values=[turn + 0.5 for turn in range(0, turns, max(1, turns // 20))],
        labelExpr="format(floor(datum.value), 'd')",
        ticks=False,
        domain=False,
        grid=False,
    )


def _panel(turns: int, theme: Theme, *marks: Panel, **options: Any) -> Panel:
    """Layer marks, with a line wherever the topic changes and a frame around the current turn."""
    left = _turn_axis(turns, "left")
    changes, cursor = (
        alt.Chart(alt.NamedData(name)).encode(x=left) for name in ("changes", "cursor")
    )
    return layered(
        changes.mark_rule(stroke=theme.ink, strokeDash=[2, 3], opacity=0.6, aria=False),
        *marks,
        cursor.mark_rect(fillOpacity=0, stroke=theme.ink, strokeWidth=2, aria=False).encode(
            x2="right"
        ),
        **options,
    )


def placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add where a turn's mark begins, is centred and ends on the x axis."""
    start = frame["turn"].astype(float)
    return frame.assign(left=start, middle=start + 0.5, right=start + 1)


def cursor_data(turn: int) -> pd.DataFrame:
    """Return the frame around a turn."""
    return placed(pd.DataFrame({"turn": [turn]}))


def metrics_data(turns: pd.DataFrame, lines: Sequence[Line]) -> pd.DataFrame:
    """Return one row for each turn and metric, from a table with a row for each turn."""
    named = {line.field: line.label for line in lines}
    wide = turns[["turn", *named]].rename(columns=named)
    return placed(wide.melt("turn", var_name="metric", value_name="value"))
