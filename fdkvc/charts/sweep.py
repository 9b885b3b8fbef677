"""A hyperparameter swept: curves, a heat map of two, and what one metric costs in another."""

from __future__ import annotations

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    Spec,
    Theme,
    built_once,
    layered,
    mark_at,
    panel_title,
    policy_scale,
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
) -> Spec:
    """Build the spec of one metric over one hyperparameter.

    For data ``curve`` (setting, value, mean, ci_low, ci_high, published, which may be missing).

    Parameters
    ----------
    title : str
        The metric.
    parameter : str
        The hyperparameter, on the x axis.
    values, range_ : tuple of two floats
        What the axes show.
    default : float
        The paper's value, which is marked.
    published : bool
        Whether the paper prints anything of this metric.
    """
    base = alt.Chart(alt.NamedData("curve"))
    room = 0.04 * (values[1] - values[0]) or 0.5
    x_scale = alt.Scale(domain=[values[0] - room, values[1] + room], nice=False)
    x_axis = alt.Axis(title=parameter, format="~g", grid=False, tickCount=8)
    y_scale = alt.Scale(domain=list(range_), nice=False)
    y_axis = alt.Axis(title=None, format="~g", tickCount=5)
    x = alt.X("value:Q", scale=x_scale, axis=x_axis)
    y = alt.Y("mean:Q", scale=y_scale, axis=y_axis)
    tooltip = [
        alt.Tooltip("setting:N"),
        alt.Tooltip("mean:Q", format=".4f"),
        alt.Tooltip("ci_low:Q", title="interval from", format=".4f"),
        alt.Tooltip("ci_high:Q", title="to", format=".4f"),
        alt.Tooltip("published:Q", format=".4f"),
    ]
    colour = theme.terms[1]
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


@built_once
def heat_spec(
    title: str,
    parameters: tuple[str, str],
    sizes: tuple[int, int],
    range_: tuple[float, float],
    theme: Theme,
) -> Spec:
    """Build the spec of one metric over two hyperparameters.

    For data ``cells`` (setting, x, y, mean, ci_low, ci_high, label, default, dark).

    Parameters
    ----------
    title : str
        The metric.
    parameters : tuple of two str
        On the x and on the y axis.
    sizes : tuple of two int
        How many values each has.
    range_ : tuple of two floats
        What the colours show.
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
            tooltip=[
                alt.Tooltip("setting:N"),
                alt.Tooltip("mean:Q", format=".4f"),
                alt.Tooltip("ci_low:Q", title="interval from", format=".4f"),
                alt.Tooltip("ci_high:Q", title="to", format=".4f"),
            ],
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

_PLACES = ((1, 8), (1, -9), (-1, 8), (-1, -9))
"""Where a name may stand: right or left of its point, and so many pixels above it."""

_NEVER = 1e9


def tradeoff_chart(
    points: pd.DataFrame,
    titles: tuple[str, str],
    groups: tuple[str, ...],
    lower_is_better: tuple[bool, bool],
    theme: Theme,
) -> Spec:
    """Return one metric against another with its data, the front drawn as a line.

    Parameters
    ----------
    points : DataFrame
        Columns setting, group, name, x, y, their intervals and front. Where two names would stand
        on each other, the one that comes first is written.
    titles, groups, lower_is_better, theme
        As `tradeoff_spec` takes them.
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
    """Say where the name of each point is to stand, and how wide a plot must be for it.

    Returns
    -------
    DataFrame
        The same with columns place, one of four around the point, and fits: the least pixels at
        which neither the edge, nor the name of a point before it, nor another point is in the
        way. On the front, points are not.
    """
    x, y = (
        (points[axis] - low) / (high - low)
        for axis, (low, high) in (("x", x_range), ("y", y_range))
    )
    dots = [*zip(x, y * TRADEOFF_HEIGHT, [-_DOT] * len(x), [_DOT] * len(x), strict=True)]
    written: list[tuple[float, float, float, float]] = []
    found = []
    for (own, level, *_), name, front in zip(dots, points.name, points.front, strict=True):
        length = _ASIDE + len(name) * _LETTER
        places = [
            (own, level + up, *sorted((side * _ASIDE, side * length))) for side, up in _PLACES
        ]
        near = [] if front else [each for each in dots if each[0] != own]
        widths = [
            max(
                _parted(0, 0, own, place[2]),
                _parted(own, place[3], 1, 0),
                *(_width(place, other) for other in (*written, *near)),
            )
            for place in places
        ]
        best = min(range(len(places)), key=widths.__getitem__)
        found.append((best, widths[best]))
        if name and widths[best] < _NEVER:
            written.append(places[best])
    return points.assign(place=[place for place, _ in found], fits=[width for _, width in found])


def _width(
    one: tuple[float, float, float, float], other: tuple[float, float, float, float]
) -> float:
    """Return the width from which on two things stand apart: at x, at y, from, to."""
    if abs(one[1] - other[1]) >= _LINE:
        return 0.0
    left, right = sorted((one, other))
    return _parted(left[0], left[3], right[0], right[2])


def _parted(left: float, end: float, right: float, start: float) -> float:
    """Return the width from which on what ends at one point and what starts at another part."""
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
    """Build the spec of one metric against another, with the Pareto front.

    For data ``points`` (setting, group, name, x, y, their intervals, front, and what `with_room`
    says) and ``front`` (x, y).

    Parameters
    ----------
    x_range, y_range : tuple of two floats
        What the axes show.
    groups : tuple of str
        What a point may be, such as the sweep or a policy, in the order of their colours.
    lower_is_better : tuple of two bool
        Of each axis; an arrow points to where it is better.
    has_front : bool
        Whether the front has several points, and is drawn as a line.
    """
    subtitle = "dashed: the Pareto front" if has_front else "no front: at most one is best in both"
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
    names = [
        base.transform_filter(f"datum.place == {place}")
        .mark_text(
            align="left" if side > 0 else "right",
            baseline="middle",
            dx=side * _ASIDE,
            dy=-up,
            fontSize=10.5,
            color=theme.ink,
            aria=False,
        )
        .encode(x=x, y=y, text=alt.condition("datum.fits <= width", "name:N", alt.value("")))
        for place, (side, up) in enumerate(_PLACES)
    ]
    chart = layered(
        *(front, across, along, points, *names),
        height=TRADEOFF_HEIGHT,
        title=panel_title(
            f"{y_title} against {x_title.lower()}",
            subtitle,
        ),
    )
    return single(chart, theme, params=[_picking()])
