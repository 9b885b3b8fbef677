"""A hyperparameter swept: curves, a heat map of two, and what one metric costs in another."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    FD_KVC,
    SHAPES,
    Spec,
    Theme,
    axis_between,
    cycled,
    dashed_rule,
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
_LETTER, _LINE, _DOT, _ASIDE = 5.9, 13, 5, 9
"""Pixels: of a letter, of a line, of half a point, and from a point to its name."""

_PLACES = tuple((side, up) for up in (8, -9, 16, -17) for side in (1, -1))
"""Where a name may stand: right or left of its point, and so many pixels above it."""

_ALONE = 20
"""Pixels between a name that is a line above or below its point and the next point there."""

_NARROW, _USUAL = 450, 700
"""Pixels of a small and of a usual plot: names that fit cross as few intervals as possible."""

_NEVER = 1e9

Box = tuple[float, float, float, float]
"""Of a name or a point: x as a share of the width, y in pixels, and from where to where in pixels
around x."""


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
            shape=alt.Shape("group:N", scale=cycled(groups, SHAPES), legend=None),
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
            dy=alt.expr("datum.dy"),
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
    """Add where the name of each point stands (align, dx, dy), and how wide a plot it needs (fits).

    At that width in pixels neither the edge, nor the name of a point before it, nor another point
    is in the way. For a point on the front, points are not.
    """
    place = points.assign(
        **{
            f"{axis}{end}": (points[f"{axis}{end}"] - low) / (high - low)
            for axis, (low, high) in (("x", x_range), ("y", y_range))
            for end in ("", "_low", "_high")
        }
    ).to_dict("records")
    dots = [(point["x"], point["y"] * TRADEOFF_HEIGHT, -_DOT, _DOT) for point in place]
    written: list[Box] = []
    labels = []
    for point, (x, level, *_) in zip(place, dots, strict=True):
        length = _ASIDE + len(point["name"]) * _LETTER
        near = [dot for dot in dots if dot[0] != x]
        choices: list[tuple[Any, ...]] = []
        for side, up in _PLACES:
            start, end = sorted((side * _ASIDE, side * length))
            box = (x, level + up, start, end)
            ends = _parted(0, 0, x, start), _parted(x, end, 1, 0)
            needed = max(*ends, *(_width(box, name) for name in written))
            beyond = side * _ALONE * (abs(up) > _LINE)
            clear = (x, level + up, min(start, start + beyond), max(end, end + beyond))
            apart = max(needed, *(_width(clear, dot) for dot in near))
            crossed = sum(_crosses(box, interval) for interval in place)
            rank = max(needed, _NARROW), max(apart, _USUAL), crossed, len(choices)
            choices.append((rank, needed if point["front"] else apart, box, side, up))
        _, fits, box, side, up = min(choices)
        labels.append(("left" if side > 0 else "right", side * _ASIDE, -up, fits))
        if point["name"] and fits < _NEVER:
            written.append(box)
    return points.assign(
        **pd.DataFrame(labels, columns=["align", "dx", "dy", "fits"]).set_index(points.index)
    )


def _crosses(box: Box, point: Mapping[Hashable, Any]) -> bool:
    """Whether an interval of a point crosses a name in a plot of the usual width."""
    x, level, start, end = box
    left, right = x * _USUAL + start, x * _USUAL + end
    bottom, top = level - _LINE / 2, level + _LINE / 2
    low, middle, high = (TRADEOFF_HEIGHT * point[name] for name in ("y_low", "y", "y_high"))
    along = left < point["x"] * _USUAL < right and low < top and high > bottom
    across = point["x_low"] * _USUAL < right and point["x_high"] * _USUAL > left
    return bool(along or (across and bottom < middle < top))


def _width(one: Box, other: Box) -> float:
    """Return the least width at which two boxes do not overlap."""
    if abs(one[1] - other[1]) >= _LINE:
        return 0.0
    left, right = sorted((one, other))
    return _parted(left[0], left[3], right[0], right[2])


def _parted(left: float, end: float, right: float, start: float) -> float:
    """Return the least width at which what ends at one point is left of what starts at another."""
    if end <= start:
        return 0.0
    return min((end - start) / (right - left), _NEVER) if right > left else _NEVER
