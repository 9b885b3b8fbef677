"""A hyperparameter swept: curves, a heat map of two, and what one metric costs in another."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    FD_KVC,
    Spec,
    Theme,
    built_once,
    layered,
    mark_at,
    mean_tips,
    panel_title,
    policy_scale,
    policy_tints,
    shape_scale,
    single,
    with_data,
)

PICK = "pick"
"""Name of the selection by which a person picks a setting."""

_PICKABLE = "pickable"


@built_once
def curve_spec(
    title: str,
    parameter: str,
    values: tuple[float, float],
    range_: tuple[float, float],
    default: float,
    theme: Theme,
    published: bool = True,
    policy: str = FD_KVC,
) -> Spec:
    """Build the spec of one metric over one hyperparameter of a policy; its default is marked.

    For data ``curve`` (setting, value, mean, ci_low, ci_high, published, which may be missing);
    `values` and `range_` are the ends of the axes.
    """
    base = alt.Chart(alt.NamedData("curve"))
    room = 0.04 * (values[1] - values[0]) or 0.5
    x_scale = alt.Scale(domain=[values[0] - room, values[1] + room], nice=False)
    x_axis = alt.Axis(title=parameter, format="~g", grid=False, tickCount=5)
    y_scale = alt.Scale(domain=list(range_), nice=False)
    y_axis = alt.Axis(title=None, format="~g", tickCount=5)
    x = alt.X("value:Q", scale=x_scale, axis=x_axis)
    y = alt.Y("mean:Q", scale=y_scale, axis=y_axis)
    published_tip = alt.Tooltip("published:Q", format=".4f")
    tooltip = [alt.Tooltip("setting:N"), *mean_tips(".4f"), published_tip]
    (colour,) = policy_tints([policy], theme)
    mark = (
        mark_at(default=default)
        .mark_rule(color=theme.ink, strokeDash=[4, 3], opacity=0.7, aria=False)
        .encode(x=alt.X("default:Q", scale=x_scale, axis=x_axis))
    )
    band = base.mark_area(color=colour, opacity=0.25, aria=False).encode(
        x=x, y=alt.Y("ci_low:Q", scale=y_scale, axis=y_axis), y2=alt.Y2("ci_high:Q")
    )
    line = base.mark_line(color=colour, strokeWidth=2, aria=False).encode(x=x, y=y)
    points = (
        alt.Chart(alt.NamedData("curve"), name=_PICKABLE)
        .mark_point(filled=True, color=colour, size=70, opacity=1, cursor="pointer")
        .encode(x=x, y=y, tooltip=tooltip)
    )
    printed = (
        base.transform_filter("isValid(datum.published)")
        .mark_point(shape="diamond", color=theme.ink, size=170, strokeWidth=1.5, opacity=1)
        .encode(x=x, y=alt.Y("published:Q", scale=y_scale, axis=y_axis), tooltip=tooltip)
    )
    layers = [mark, band, line, *([printed] if published else []), points]
    words = f"dashed: the default, {default:g}{' · ◇ published' * published}"
    chart = layered(*layers, height=230, title=panel_title(title, words))
    return single(chart, theme, params=[_picking()])


def curve_range(table: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Return the y axis of a metric's curve: one for all metrics of a sweep within -1 and 1."""
    ends = table.groupby("metric")[["ci_low", "ci_high", "published"]].agg(["min", "max"])
    lows, highs = ends.min(axis=1).clip(upper=0.0), ends.max(axis=1).clip(lower=1.0)
    shared = (lows >= -1) & (highs <= 1.01)
    same = shared if shared[metric] else shared.index == metric
    return float(lows[same].min()), float(highs[same].max())


@built_once
def heat_spec(
    title: str,
    parameters: tuple[str, str],
    sizes: tuple[int, int],
    range_: tuple[float, float],
    theme: Theme,
) -> Spec:
    """Build the spec of one metric over two hyperparameters, with colours over `range_`.

    For data ``cells`` (setting, x, y, mean, ci_low, ci_high, label, default, dark); `sizes` counts
    the values of each.
    """
    base = alt.Chart(alt.NamedData("cells"))
    x = alt.X("x:O", axis=alt.Axis(title=parameters[0], labelAngle=0, format="~g"))
    y = alt.Y("y:O", sort="descending", axis=alt.Axis(title=parameters[1], format="~g"))
    blocks = (
        alt.Chart(alt.NamedData("cells"), name=_PICKABLE)
        .mark_rect(cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "mean:Q",
                scale=alt.Scale(domain=list(range_), scheme="cividis"),
                legend=alt.Legend(title=None, format="~g"),
            ),
            stroke=alt.condition(alt.datum.default, alt.value(theme.ink), alt.value(theme.paper)),
            strokeWidth=alt.condition(alt.datum.default, alt.value(3), alt.value(0.5)),
            tooltip=[alt.Tooltip("setting:N"), *mean_tips(".4f")],
        )
    )
    figures = base.mark_text(fontSize=11, aria=False).encode(
        x=x,
        y=y,
        text=alt.Text("label:N"),
        color=alt.condition(alt.datum.dark, alt.value("#ffffff"), alt.value("#000000")),
    )
    heading = panel_title(title, "outlined: nearest to the default")
    chart = layered(blocks, figures, height=max(160, 34 * sizes[1]), title=heading)
    return single(chart, theme, params=[_picking()])


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
"""Pixels beyond a name to the next point on its line, if its own is a line above or below."""

_NARROW, _USUAL = 450, 700
"""Pixels of a small and of a usual plot: names that fit cross as few intervals as possible."""

_NEVER = 1e9

Box = tuple[float, float, float, float]
"""Of a name or a point: x as a share of the width, y in pixels, and from where to where in pixels
around x."""


def tradeoff_chart(
    points: pd.DataFrame,
    titles: tuple[str, str],
    groups: tuple[str, ...],
    lower_is_better: tuple[bool, bool],
    theme: Theme,
) -> Spec:
    """Return one metric against another with its data, the front drawn as a line.

    `points` has columns setting, group, name, x, y, their intervals and front. Where names would
    overlap, the first is written.
    """
    ranges = _range(points, "x"), _range(points, "y")
    front = points[points.front].sort_values(["x", "y"]).reset_index(drop=True)
    spec = tradeoff_spec(*titles, *ranges, groups, lower_is_better, theme, len(front) > 1)
    line = front.assign(place=front.index)[["x", "y", "place"]]
    return with_data(spec, {"points": with_room(points, *ranges), "front": line})


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
    dots = [(each["x"], each["y"] * TRADEOFF_HEIGHT, -_DOT, _DOT) for each in place]
    written: list[Box] = []
    found = []
    for each, (own, level, *_) in zip(place, dots, strict=True):
        length = _ASIDE + len(each["name"]) * _LETTER
        near = [other for other in dots if other[0] != own]
        choices: list[tuple[Any, ...]] = []
        for side, up in _PLACES:
            start, end = sorted((side * _ASIDE, side * length))
            box = (own, level + up, start, end)
            ends = _parted(0, 0, own, start), _parted(own, end, 1, 0)
            needed = max(*ends, *(_width(box, other) for other in written))
            beyond = side * _ALONE * (abs(up) > _LINE)
            clear = (own, level + up, min(start, start + beyond), max(end, end + beyond))
            apart = max(needed, *(_width(clear, other) for other in near))
            crossed = sum(_crosses(box, other) for other in place)
            rank = max(needed, _NARROW), max(apart, _USUAL), crossed, len(choices)
            choices.append((rank, needed if each["front"] else apart, box, side, up))
        _, fits, box, side, up = min(choices)
        found.append(("left" if side > 0 else "right", side * _ASIDE, -up, fits))
        if each["name"] and fits < _NEVER:
            written.append(box)
    return points.assign(
        **pd.DataFrame(found, columns=["align", "dx", "dy", "fits"]).set_index(points.index)
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


@built_once
def tradeoff_spec(
    x_title: str,
    y_title: str,
    x_range: tuple[float, float],
    y_range: tuple[float, float],
    groups: tuple[str, ...],
    lower_is_better: tuple[bool, bool],
    theme: Theme,
    has_front: bool = True,
) -> Spec:
    """Build the spec of one metric against another, with the Pareto front if there is one.

    For data ``points`` (setting, group, name, x, y, their intervals, front, and what `with_room`
    adds) and ``front`` (x, y). `groups` are in the order of their colours.
    """
    subtitle = (
        "dashed: the Pareto front" if has_front else "no front: one has the best mean in both"
    )
    base = alt.Chart(alt.NamedData("points"))
    x_scale = alt.Scale(domain=list(x_range), nice=False)
    x_arrow, y_arrow = (
        f"← {title}" if lower else f"{title} →"
        for title, lower in zip((x_title, y_title), lower_is_better, strict=True)
    )
    x_axis = alt.Axis(title=x_arrow, format="~g", titleAnchor="end", tickCount=6)
    y_scale = alt.Scale(domain=list(y_range), nice=False)
    y_axis = alt.Axis(title=y_arrow, format="~g", titleAnchor="end", tickCount=5)
    x = alt.X("x:Q", scale=x_scale, axis=x_axis)
    y = alt.Y("y:Q", scale=y_scale, axis=y_axis)
    color = alt.Color("group:N", scale=policy_scale(groups, theme), legend=None)
    front = (
        alt.Chart(alt.NamedData("front"))
        .mark_line(color=theme.ink, strokeDash=[5, 3], strokeWidth=1.5, aria=False)
        .encode(x=x, y=y, order=alt.Order("place:Q"))
    )
    across = base.mark_rule(opacity=0.6, aria=False).encode(
        x=alt.X("x_low:Q", scale=x_scale, axis=x_axis), x2=alt.X2("x_high:Q"), y=y, color=color
    )
    along = base.mark_rule(opacity=0.6, aria=False).encode(
        x=x, y=alt.Y("y_low:Q", scale=y_scale, axis=y_axis), y2=alt.Y2("y_high:Q"), color=color
    )
    points = (
        alt.Chart(alt.NamedData("points"), name=_PICKABLE)
        .mark_point(filled=True, opacity=1, cursor="pointer")
        .encode(
            x=x,
            y=y,
            color=color,
            shape=alt.Shape("group:N", scale=shape_scale(groups), legend=None),
            size=alt.condition(alt.datum.front, alt.value(130), alt.value(55)),
            stroke=alt.condition(alt.datum.front, alt.value(theme.ink), alt.value(None)),
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("x:Q", title=x_title, format=".4f"),
                alt.Tooltip("y:Q", title=y_title, format=".4f"),
                alt.Tooltip("front:N", title="on the front"),
            ],
        )
    )
    halo, names = (
        base.mark_text(
            align=alt.expr("datum.align"),
            dx=alt.expr("datum.dx"),
            dy=alt.expr("datum.dy"),
            baseline="middle",
            fontSize=10.5,
            aria=False,
            color=fill,
            stroke=stroke,
            strokeWidth=3,
            opacity=opacity,
        ).encode(x=x, y=y, text=alt.condition("datum.fits <= width", "name:N", alt.value("")))
        for fill, stroke, opacity in (
            (theme.paper, theme.paper, 0.8),
            (theme.ink, alt.Undefined, 1),
        )
    )
    chart = layered(
        *(front, across, along, points, halo, names),
        height=TRADEOFF_HEIGHT,
        title=panel_title(f"{y_title}\nagainst {x_title.lower()}", subtitle),
    )
    return single(chart, theme, params=[_picking()])
