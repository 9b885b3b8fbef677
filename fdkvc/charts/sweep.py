"""A hyperparameter swept: curves, a heat map of two, and what one metric costs in another."""

from collections.abc import Sequence
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    FD_KVC,
    Spec,
    Theme,
    axis_between,
    dashed_rule,
    look_scale,
    mean_band,
    mean_tips,
    panel_title,
    policy_scale,
    policy_tints,
    single,
    tips,
    unchecked,
)

PICK = "pick"
"""Name of the selection by which a person picks a setting."""

_PICKABLE = "pickable"


@unchecked
def curve_chart(
    table: pd.DataFrame,
    metric: str,
    title: str,
    parameter: str,
    default: float,
    theme: Theme,
    policy: str = FD_KVC,
) -> Spec:
    """Return one metric over one hyperparameter of a policy with its data; its default is marked.

    `table` has columns metric, setting, value, mean, ci_low, ci_high and published, which may be
    missing. Metrics of one table share an axis where they can.
    """
    rows = table[table.metric == metric]
    low, high = float(rows.value.min()), float(rows.value.max())
    room = 0.04 * (high - low) or 0.5
    x_ends, y_ends = (low - room, high + room), curve_range(table, metric)
    axis = {"format": "~g", "tickCount": 5}
    x = axis_between(alt.X, "value", x_ends, title=parameter, grid=False, **axis)
    y = axis_between(alt.Y, "mean", y_ends, **axis)
    tooltip = ["setting:N", *mean_tips(".4f"), alt.Tooltip("published:Q", format=".4f")]
    (colour,) = policy_tints([policy], theme)
    base = alt.Chart(alt.NamedData("curve")).encode(x=x)
    points = alt.Chart(alt.NamedData("curve"), name=_PICKABLE).encode(x=x, y=y, tooltip=tooltip)
    layers = [
        dashed_rule(default, x_ends, theme),
        mean_band(base, y_ends, color=colour, opacity=0.25),
        base.mark_line(color=colour, strokeWidth=2, aria=False).encode(y=y),
        points.mark_point(filled=True, color=colour, size=70, opacity=1, cursor="pointer"),
    ]
    words = f"dashed: the default, {default:g}"
    if rows.published.notna().any():
        words += " · ◇ published"
        printed = base.transform_filter("isValid(datum.published)").mark_point(
            shape="diamond", color=theme.ink, size=170, strokeWidth=1.5, opacity=1
        )
        layers.insert(3, printed.encode(y="published:Q", tooltip=tooltip))
    heading = panel_title(title, words)
    return single(theme, {"curve": rows}, *layers, height=230, title=heading, params=[_picking()])


def curve_range(table: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Return the y axis of a metric's curve: one for all metrics of a sweep within -1 and 1."""
    ends = table.groupby("metric")[["ci_low", "ci_high", "published"]].agg(["min", "max"])
    lows, highs = ends.min(axis=1).clip(upper=0.0), ends.max(axis=1).clip(lower=1.0)
    shared = (lows >= -1) & (highs <= 1.01)
    same = shared if shared[metric] else shared.index == metric
    return float(lows[same].min()), float(highs[same].max())


@unchecked
def heat_chart(cells: pd.DataFrame, title: str, parameters: tuple[str, str], theme: Theme) -> Spec:
    """Return one metric over two hyperparameters with its data.

    `cells` has columns setting, x, y, mean, ci_low, ci_high, label and default.
    """
    low, high = float(cells["mean"].min()), float(cells["mean"].max())
    if high - low < 0.01:
        low, high = low - 0.005, high + 0.005
    x = alt.X("x:O", axis=alt.Axis(title=parameters[0], labelAngle=0, format="~g"))
    y = alt.Y("y:O", sort="descending", axis=alt.Axis(title=parameters[1], format="~g"))
    blocks = alt.Chart(alt.NamedData("cells"), name=_PICKABLE).mark_rect(cursor="pointer")
    blocks = blocks.encode(
        x=x,
        y=y,
        color=alt.Color(
            "mean:Q",
            scale=alt.Scale(domain=[low, high], scheme="cividis"),
            legend=alt.Legend(title=None, format="~g"),
        ),
        stroke=alt.StrokeValue(theme.paper, condition=_where("default", theme.ink)),
        strokeWidth=alt.StrokeWidthValue(0.5, condition=_where("default", 3)),
        tooltip=["setting:N", *mean_tips(".4f")],
    )
    figures = (
        alt.Chart(alt.NamedData("cells"))
        .mark_text(fontSize=11, aria=False)
        .encode(
            x=x,
            y=y,
            text="label:N",
            color=alt.ColorValue("#000000", condition=_where("dark", "#ffffff")),
        )
    )
    heading = panel_title(title, "outlined: nearest to the default")
    height = max(160, 34 * cells.y.nunique())
    data, params = {"cells": cells.assign(dark=cells["mean"] < (low + high) / 2)}, [_picking()]
    return single(theme, data, blocks, figures, height=height, title=heading, params=params)


def _where(field: str, value: object) -> dict[str, object]:
    """Return the condition of a mark that has this value where a field is true."""
    return {"test": f"datum.{field}", "value": value}


def _picking() -> alt.TopLevelSelectionParameter:
    """Let a person pick a setting by its mark; a page looks for this at the top of a spec."""
    select = alt.PointSelectionConfig(type="point", fields=["setting"])
    return alt.TopLevelSelectionParameter(name=PICK, select=select, views=[_PICKABLE])


TRADEOFF_HEIGHT = 380
_LETTER, _LINE, _ASIDE = 5.9, 13, 9
"""Pixels: of a letter, of a line, and from a point to its name."""


@unchecked
def tradeoff_chart(
    points: pd.DataFrame,
    titles: tuple[str, str],
    groups: Sequence[str],
    lower_is_better: tuple[bool, bool],
    theme: Theme,
) -> Spec:
    """Return one metric against another with its data, the front drawn as a line.

    `points` has columns setting, group, name, x, y, their intervals and front; `groups` are in the
    order of their colours. Where names would overlap, the first is written.
    """
    x_range, y_range = _range(points, "x"), _range(points, "y")
    front = points[points.front].sort_values(["x", "y"]).reset_index(drop=True)
    x_arrow, y_arrow = (
        f"← {title}" if lower else f"{title} →"
        for title, lower in zip(titles, lower_is_better, strict=True)
    )
    axis = {"format": "~g", "titleAnchor": "end"}
    x = axis_between(alt.X, "x", x_range, title=x_arrow, tickCount=6, **axis)
    y = axis_between(alt.Y, "y", y_range, title=y_arrow, tickCount=5, **axis)
    color = alt.Color("group:N", scale=policy_scale(groups, theme), legend=None)
    line = (
        alt.Chart(alt.NamedData("front"))
        .mark_line(color=theme.ink, strokeDash=[5, 3], strokeWidth=1.5, aria=False)
        .encode(x=x, y=y, order="place:Q")
    )
    base = alt.Chart(alt.NamedData("points"))
    rules = base.mark_rule(opacity=0.6, aria=False).encode(color=color)
    across = rules.encode(x="x_low:Q", x2="x_high", y=y)
    along = rules.encode(x=x, y="y_low:Q", y2="y_high")
    marks = (
        alt.Chart(alt.NamedData("points"), name=_PICKABLE)
        .mark_point(filled=True, opacity=1, cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=color,
            shape=alt.Shape("group:N", scale=look_scale(groups, "shape"), legend=None),
            size=alt.SizeValue(55, condition=_where("front", 130)),
            stroke=alt.StrokeValue(None, condition=_where("front", theme.ink)),
            tooltip=[
                "setting:N",
                *tips(".4f", x=titles[0], y=titles[1]),
                alt.Tooltip("front:N", title="on the front"),
            ],
        )
    )
    inks: tuple[dict[str, Any], ...] = (
        {"color": theme.paper, "stroke": theme.paper, "opacity": 0.8},
        {"color": theme.ink},
    )
    halo, names = (
        base.mark_text(
            align=alt.expr("datum.align"),
            dx=alt.expr("datum.dx"),
            baseline="middle",
            fontSize=10.5,
            aria=False,
            strokeWidth=3,
            **ink,
        ).encode(x=x, y=y, text=alt.condition("datum.fits <= width", "name:N", alt.value("")))
        for ink in inks
    )
    subtitle = (
        "dashed: the Pareto front" if len(front) > 1 else "no front: one has the best mean in both"
    )
    data = {
        "points": with_room(points, x_range, y_range),
        "front": front.assign(place=front.index)[["x", "y", "place"]],
    }
    return single(
        theme,
        data,
        *(line, across, along, marks, halo, names),
        height=TRADEOFF_HEIGHT,
        title=panel_title(f"{titles[1]}\nagainst {titles[0].lower()}", subtitle),
        params=[_picking()],
    )


def _range(points: pd.DataFrame, axis: str) -> tuple[float, float]:
    low, high = float(points[f"{axis}_low"].min()), float(points[f"{axis}_high"].max())
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def with_room(
    points: pd.DataFrame, x_range: tuple[float, float], y_range: tuple[float, float]
) -> pd.DataFrame:
    """Add on which side of each point its name stands (align, dx), and how wide a plot it needs.

    That is the side with more room. In a plot of the width `fits`, in pixels, the name is clear of
    the edge and of the names before it.
    """
    labels: list[tuple[str, int, float]] = []
    written: list[tuple[float, float, float, float]] = []
    shares = (
        (points[axis] - ends[0]) / (ends[1] - ends[0])
        for axis, ends in (("x", x_range), ("y", y_range))
    )
    for name, x, y in zip(points.name, *shares, strict=True):
        length = _ASIDE + len(name) * _LETTER
        side, start, end = (1, _ASIDE, length) if x < 0.5 else (-1, -length, -_ASIDE)
        fits = length / max(x, 1 - x)
        for at, level, first, last in written:
            if abs(level - y) * TRADEOFF_HEIGHT < _LINE:
                needed = last - start if at < x else end - first
                fits = max(fits, needed / max(abs(x - at), 1e-9))
        labels.append(("left" if side > 0 else "right", side * _ASIDE, fits))
        if name:
            written.append((x, y, start, end))
    named = pd.DataFrame(labels, columns=["align", "dx", "fits"], index=points.index)
    return points.join(named)
