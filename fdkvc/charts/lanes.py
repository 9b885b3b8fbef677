"""Several runs over the turns: a line for each, and the overlap of two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from fdkvc.charts.theme import (
    DASHES,
    SHAPES,
    Panel,
    Spec,
    Theme,
    built_once,
    column,
    inside_axis,
    layered,
    panel_title,
    policy_tints,
    top_legend,
)
from fdkvc.charts.timeline import Line, changes_panel, cursor_panel, turn_axis

LINE_HEIGHT = 104
OVERLAP_HEIGHT = 90


@built_once
def lines_spec(
    turns: int, lanes: tuple[str, ...], own_ink: bool, lines: tuple[Line, ...], theme: Theme
) -> Spec:
    """Build the spec of the metrics over the turns: a panel for each, and in it a line for a lane.

    For data ``lines``, ``changes`` and ``cursor``.

    Parameters
    ----------
    lanes : tuple of str
        Their labels.
    own_ink : bool
        Whether the last lane is drawn in ink, over the others: it is a fork of one of them.
    lines : tuple of Line
        The metrics.
    """
    count = len(lanes)
    colours = policy_tints(lanes, theme)
    if own_ink:
        colours[-1] = theme.ink
    ranges: dict[str, Sequence[Any]] = {
        "color": colours,
        "dash": [list(DASHES[position % len(DASHES)]) for position in range(count)],
        "shape": [SHAPES[position % len(SHAPES)] for position in range(count)],
    }
    panels = [
        _line_panel(turns, lanes, ranges, line, number == 0, theme)
        for number, line in enumerate(lines)
    ]
    return column(panels, theme)


def _line_panel(
    turns: int,
    lanes: Sequence[str],
    ranges: Mapping[str, Sequence[Any]],
    line: Line,
    legend: bool,
    theme: Theme,
) -> Panel:
    def scale(channel: str) -> dict[str, Any]:
        # One legend of all channels: its symbols have no stroke, so that no dash is seen in it.
        shown = top_legend(symbolStrokeWidth=0, symbolSize=70, labelLimit=260, columns=2, offset=12)
        return {
            "field": "lane",
            "type": "nominal",
            "scale": alt.Scale(domain=list(lanes), range=list(ranges[channel])),
            "legend": shown if legend else None,
        }

    x = turn_axis(turns, at="middle")
    y = alt.Y(
        f"{line.field}:Q",
        scale=alt.Scale(domain=[line.low, line.high], nice=False),
        axis=inside_axis(format=".0%" if line.percent else ".1f"),
    )
    base = alt.Chart(alt.NamedData("lines")).encode(x=x, y=y, color=alt.Color(**scale("color")))
    drawn = base.mark_line(strokeWidth=2).encode(strokeDash=alt.StrokeDash(**scale("dash")))
    points = base.mark_point(filled=True, size=36, opacity=1).encode(
        shape=alt.Shape(**scale("shape")),
        tooltip=[
            alt.Tooltip("lane:N", title="run"),
            alt.Tooltip("turn:Q"),
            alt.Tooltip(f"{line.field}:Q", title=line.label, format=".3f"),
        ],
    )
    layers = [
        changes_panel(turns, theme),
        drawn,
        points,
        cursor_panel(turns, theme),
    ]
    return layered(*layers, height=LINE_HEIGHT, title=panel_title(line.label))


@built_once
def overlap_spec(turns: int, theme: Theme) -> Spec:
    """Build the spec of how far two caches overlap, turn by turn.

    For data ``overlap``, ``changes``, ``parting`` and ``cursor``.
    """
    y = alt.Y(
        "jaccard:Q",
        scale=alt.Scale(domain=[0, 1], nice=False),
        axis=inside_axis(values=[0, 0.5, 1], format=".0%"),
    )
    drawn = (
        alt.Chart(alt.NamedData("overlap"))
        .mark_line(stroke=theme.ink, point=alt.OverlayMarkDef(fill=theme.ink, size=28))
        .encode(
            x=turn_axis(turns, at="middle"),
            y=y,
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip("shared:Q", title="in both"),
                alt.Tooltip("only_one:Q", title="only in the first"),
                alt.Tooltip("only_other:Q", title="only in the second"),
                alt.Tooltip("jaccard:Q", title="overlap", format=".1%"),
            ],
        )
    )
    parting = (
        alt.Chart(alt.NamedData("parting"))
        .mark_text(text="▼ caches diverge", align="left", baseline="bottom", dx=-5, fill=theme.ink)
        .encode(x=alt.X("middle:Q"), y=alt.value(-3))
    )
    layers = [
        changes_panel(turns, theme),
        drawn,
        parting,
        cursor_panel(turns, theme),
    ]
    title = panel_title(
        "Overlap of the two caches", "entries in both, as a share of entries in either"
    )
    return column([layered(*layers, height=OVERLAP_HEIGHT, title=title)], theme)
