"""Metrics over the turns of one run or of several."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.parts import (
    Panel,
    axis_between,
    column,
    layered,
    panel_title,
    policy_legend,
    policy_lines,
    tips,
    unchecked,
)
from fdkvc.charts.theme import Spec, Theme, policy_tints
from fdkvc.core.words import decimal, percent

_INSIDE = {
    "labelAlign": "left",
    "labelPadding": -2,
    "labelBaseline": "line-bottom",
    "ticks": False,
    "domain": False,
    "tickCount": 3,
}
"""Options of a y axis with its labels inside the plot, so that the plot fits any width."""

MOST_POINTS = 120
"""Most points on a line: more would overlap, and each slows down every step of the stage above."""


@dataclass(frozen=True)
class Line:
    """A line over the turns, with its axis and its format."""

    field: str
    """The column of its values."""
    label: str
    """Its title."""
    low: float
    """Where its axis begins."""
    high: float
    """Where its axis ends."""
    start: float | None = None
    """A level to mark."""
    percent: bool = False
    """Whether values are fractions, written as percentages."""
    digits: int = 3
    """Decimals of a value that is not a percentage."""

    def words(self, value: float) -> str:
        """Write a value for people to read; a dash if it is missing."""
        if math.isnan(value):
            return "–"
        return percent(value, 1) if self.percent else decimal(value, self.digits)


@lru_cache(maxsize=64)
@unchecked
def lines_spec(
    turns: int, lanes: tuple[str, ...], own_ink: bool, lines: tuple[Line, ...], theme: Theme
) -> Spec:
    """Build the spec of the metrics over the turns: a panel each, with a line for each lane.

    It is built once and filled with data: ``lines``, ``changes`` of topic, and ``cursor``, a frame
    around the turn. With `own_ink`, the last lane is a fork, drawn in ink over the others.
    """
    colours = policy_tints(lanes, theme)
    if own_ink:
        colours[-1] = theme.ink
    tints = alt.Scale(domain=list(lanes), range=colours)
    left = _turn_axis(turns, "left")
    looks: dict[str, Any] = {"stroke": theme.ink, "aria": False}
    changes = alt.Chart(alt.NamedData("changes")).encode(x=left)
    changes = changes.mark_rule(strokeDash=[2, 3], opacity=0.6, **looks)
    cursor = alt.Chart(alt.NamedData("cursor")).encode(x=left)
    cursor = cursor.mark_rect(fillOpacity=0, strokeWidth=2, **looks).encode(x2="right")
    panels: list[Panel] = []
    for line in lines:
        form = ".0%" if line.percent else ".1f"
        y = axis_between(alt.Y, line.field, (line.low, line.high), **_INSIDE, format=form)
        run, turn = alt.Tooltip("lane:N", title="run"), alt.Tooltip("turn:Q")
        tooltip = [run, turn, *tips(".3f", **{line.field: line.label})]
        base = alt.Chart(alt.NamedData("lines")).encode(x=_turn_axis(turns), y=y)
        # One legend for all panels, above the first.
        legend = None if panels or len(lanes) == 1 else policy_legend(lanes, offset=12)
        drawn, points = policy_lines(base, lanes, tints, tooltip, 36, legend, "lane")
        if turns > MOST_POINTS:
            points = points.transform_filter(f"datum.turn % {math.ceil(turns / MOST_POINTS)} == 0")
        title = panel_title(line.label)
        panels.append(layered(changes, drawn, points, cursor, height=104, title=title))
    return column(panels, theme)


def _turn_axis(turns: int, field: str = "middle") -> alt.X:
    """Return the x axis, with room at its left for the labels of the y axis."""
    return axis_between(
        alt.X,
        field,
        (-0.075 * turns, turns),
        values=[turn + 0.5 for turn in range(0, turns, max(1, turns // 20))],
        labelExpr="format(floor(datum.value), 'd')",  # ticks are at the middle of a turn
        ticks=False,
        domain=False,
        grid=False,
    )


def placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add columns with the start, middle and end of each turn on the x axis."""
    start = frame["turn"].astype(float)
    return frame.assign(left=start, middle=start + 0.5, right=start + 1)
