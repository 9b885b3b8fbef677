"""Measured results: over budgets, turns or a swept hyperparameter, and by policy."""

from collections.abc import Collection, Sequence
from typing import Any

import altair as alt
import pandas as pd

from fdkvc.charts.parts import (
    Panel,
    axis_between,
    between,
    dashed_rule,
    ends_of,
    look_scale,
    mean_band,
    mean_tips,
    panel_title,
    policy_legend,
    policy_scale,
    single,
    top_legend,
)
from fdkvc.charts.theme import FD_KVC, Spec, Theme, policy_tints

DOT_HEIGHT = 27
"""Pixels of a policy in a chart of dots."""


def budgets_chart(
    table: pd.DataFrame,
    title: str,
    theme: Theme,
    *,
    policies: Collection[str],
    marks: pd.DataFrame,
    readings: pd.DataFrame,
) -> Spec:
    """Return a chart of a share over rising budgets, with its data.

    `table` has columns policy, budget, n, mean, ci_low and ci_high; `policies` are in the order of
    the legend, as `looks` takes them. `marks` are points to ring (label, policy, budget, mean), and
    `readings` what a model measured (policy, budget, mean, ci_low, ci_high).
    """
    table = table[["policy", "budget", "n", "mean", "ci_low", "ci_high"]].reset_index(
        drop=True
    )
    budgets = sorted({*table.budget, *marks.budget, *readings.budget}) or [1]
    base = alt.Chart(alt.NamedData("budgets")).encode(x=_budget_axis(budgets))
    means = [table["mean"], marks["mean"], readings["mean"], readings.ci_low]
    lowest, _ = ends_of(pd.concat(means), 1.0)
    # Of high shares the upper half shows the differences.
    domain = (0.5 if lowest >= 0.5 else 0, 1)
    y = axis_between(alt.Y, "mean", domain, tickCount=5, format=".0%")
    kind = "policy:N"
    legend = policy_legend(policies)
    color = alt.Color(kind, scale=policy_scale(policies, theme), legend=legend)
    dash = alt.StrokeDash(kind, scale=look_scale(policies, "dash"), legend=legend)
    shape = alt.Shape(kind, scale=look_scale(policies, "shape"), legend=legend)
    words: list[str | alt.Tooltip] = [kind]
    words.append(alt.Tooltip("budget:Q", title="tokens", format=",d"))
    tooltip = [*words, *mean_tips(".1%"), alt.Tooltip("n:Q", title="values")]
    curves = base.encode(y=y, color=color)
    points = curves.mark_point(filled=True, size=40, opacity=1)
    layers = [
        curves.mark_line(strokeWidth=2, aria=False).encode(strokeDash=dash),
        points.encode(shape=shape, tooltip=tooltip),
    ]
    # A screen reader would announce a layer without points as a symbol without a name.
    if len(readings):
        read = base.properties(data=alt.NamedData("readings")).encode(color=color)
        ends = {"y": alt.Y("ci_low:Q", scale=between(domain)), "y2": "ci_high"}
        layers.append(read.mark_rule(strokeWidth=2, aria=False).encode(**ends))
        square = read.mark_point(shape="square", size=130, filled=True, opacity=1)
        has_ends = not readings.ci_low.hasnans
        layers.append(square.encode(y=y, tooltip=[*words, *mean_tips(".1%", has_ends)]))
    marked = base.properties(data=alt.NamedData("marks"))
    if len(marks):
        ring = marked.mark_point(size=260, strokeWidth=3, color=theme.ink, opacity=1)
        layers.append(ring.encode(y=y, tooltip=["label:N", *words, *mean_tips(".1%", False)]))
    middle = (budgets[0] * budgets[-1]) ** 0.5
    highest = marks["mean"][::-1].idxmax() if len(marks) else 0
    for mark in marks.itertuples():
        label = marked.transform_filter(alt.datum.label == mark.label)
        side: Any = "left" if mark.budget < middle else "right"
        above = -18 if mark.Index == highest else 18  # away from each other
        place: Any = {"align": side, "dy": above, "fontWeight": "bold", "fontSize": 12}
        # Lines that the label crosses do not run through its letters.
        halo = label.mark_text(**place, stroke=theme.paper, strokeWidth=5, aria=False)
        text = label.mark_text(**place, color=theme.ink)
        layers += [part.encode(y=y, text="label:N") for part in (halo, text)]
    subtitle = "of all that calls need" + "; squares: read by a model" * bool(len(readings))
    data = {"budgets": table, "readings": readings, "marks": marks}
    return single(theme, data, *layers, height=280, title=panel_title(title, subtitle))


def _budget_axis(budgets: Sequence[float]) -> alt.X:
    """Return a logarithmic axis, on which factors are as long everywhere, with round labels."""
    low = budgets[0]
    high = budgets[-1]
    # A factor at both ends: 4 % of the length of the axis.
    room = (high / low) ** 0.04 if high > low else 2
    powers = range(len(f"{high:.0f}"))
    values = [digit * 10**power for power in powers for digit in (1, 1.5, 2, 3, 4, 5, 7)]
    scale = alt.Scale(type="log", domain=[low / room, high * room], nice=False)
    axis = alt.Axis(
        title="tokens (logarithmic)",
        values=values,
        grid=False,
        format=",d",
        labelOverlap="greedy",
    )
    return alt.X("budget:Q", scale=scale, axis=axis)


def series_chart(
    table: pd.DataFrame,
    schedule: str,
    title: str,
    subtitle: str,
    policies: Sequence[str],
    domain: tuple[float, float],
    theme: Theme,
) -> Spec:
    """Return a chart of one quantity over the turns of a schedule, with its data.

    The y axis has this `domain`.

    `table` has columns policy, turn, topic, mean, ci_low and ci_high; `policies` are in the order
    of their colours.
    """
    legend = top_legend(
        symbolType="stroke", symbolStrokeWidth=2, symbolOpacity=1, symbolSize=300, offset=18
    )
    base = alt.Chart(alt.NamedData("series")).encode(
        x=_turns("turn", len(schedule)),
        color=alt.Color("policy:N", scale=policy_scale(policies, theme), legend=legend),
    )
    lines = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=26)).encode(
        y=axis_between(alt.Y, "mean", domain, tickCount=5, format="~g"),
        strokeDash=alt.StrokeDash(
            "policy:N", scale=look_scale(policies, "dash"), legend=legend
        ),
        tooltip=["turn:Q", "topic:N", "policy:N", *mean_tips(".4f")],
    )
    layers = *_topics(len(schedule), theme), mean_band(base, domain, opacity=0.25), lines
    data = {"series": table, "topics": topics_data(schedule)}
    return single(theme, data, *layers, height=210, title=panel_title(title, subtitle))


def _turns(field: str, turns: int) -> alt.X:
    axis = {"title": "turn", "format": "d", "tickCount": min(turns, 20), "grid": False}
    # Half a turn at both ends, so that a turn's shade is centred on its point.
    return axis_between(alt.X, field, (-0.5, turns - 0.5), **axis)


def _topics(turns: int, theme: Theme) -> list[Panel]:
    """Shade every other run of a topic, and write its letter at the top."""
    base = alt.Chart(alt.NamedData("topics"))
    shade = base.transform_filter(alt.datum.shaded).mark_rect(
        color=theme.faint, opacity=0.35, aria=False
    )
    letters = base.mark_text(color=theme.ink, opacity=0.8, fontWeight="bold", aria=False)
    return [
        shade.encode(x=_turns("left", turns), x2="right"),
        letters.encode(x=_turns("middle", turns), y=alt.value(-9), text="topic:N"),
    ]


def topics_data(schedule: str) -> pd.DataFrame:
    """Return the runs of turns with the same topic, every other one shaded."""
    turns = pd.DataFrame({"topic": list(schedule), "turn": range(len(schedule))})
    # A run begins where the topic differs from the one before; counting the begins numbers runs.
    run = (turns.topic != turns.topic.shift()).cumsum()
    runs = turns.groupby(run, as_index=False).agg(
        topic=("topic", "first"), left=("turn", "min"), right=("turn", "max")
    )
    runs["left"] -= 0.5
    runs["right"] += 0.5
    middle = (runs["left"] + runs["right"]) / 2
    return runs.assign(middle=middle, shaded=runs.index % 2 == 1)


def dots_chart(
    table: pd.DataFrame, title: str, subtitle: str, theme: Theme, reference: float = 0.0
) -> Spec:
    """Return a chart with a dot and an interval for each policy, the first on top, and its data.

    `table` has columns policy, idea, mean, ci_low and ci_high. The x axis shows zero, every
    interval, and a dashed line at a reference.
    """
    numbers = table[["mean", "ci_low", "ci_high"]]  # a few dialogs have no intervals
    low, high = ends_of(numbers, 0.0, reference)
    room = 0.04 * (high - low) or 1.0
    domain = (low - room, high + room)
    policies = table.policy.tolist()
    base = alt.Chart(alt.NamedData("dots")).encode(
        y=alt.Y(
            "policy:N",
            scale=alt.Scale(domain=policies, paddingInner=0.25, paddingOuter=0.15),
            axis=alt.Axis(title=None, ticks=False, domain=False, labelLimit=190),
        ),
        color=alt.Color("policy:N", scale=policy_scale(policies, theme), legend=None),
    )
    intervals = base.mark_rule(strokeWidth=2, clip=True, aria=False)
    intervals = intervals.encode(x="ci_low:Q", x2="ci_high")
    dots = base.mark_point(filled=True, size=55, opacity=1, clip=True).encode(
        x=axis_between(alt.X, "mean", domain, format="~f", tickCount=5),
        shape=alt.Shape("policy:N", scale=look_scale(policies, "shape"), legend=None),
        tooltip=["policy:N", "idea:N", *mean_tips(".1f")],
    )
    layers = dashed_rule(reference, domain, theme), intervals, dots
    heading = panel_title(title, subtitle)
    height = DOT_HEIGHT * len(policies)
    return single(theme, {"dots": table}, *layers, height=height, title=heading)


def curve_chart(
    table: pd.DataFrame,
    metric: str,
    title: str,
    parameter: str,
    default: float,
    theme: Theme,
    policy: str = FD_KVC,
    *,
    percent: bool = False,
) -> Spec:
    """Return a chart of one metric over one hyperparameter of a policy, with its data.

    The hyperparameter's default is marked.

    `table` has columns metric, setting, value, mean, ci_low, ci_high and published, which may be
    missing; shares are written in % if `percent`. Metrics of one table share an axis where they
    can.
    """
    rows = table[table.metric == metric]
    low, high = ends_of(rows.value)
    room = 0.04 * (high - low) or 0.5
    x_ends = (low - room, high + room)
    y_ends = curve_range(table, metric)
    axis = {"title": parameter, "format": "~g", "tickCount": 5}
    x = axis_between(alt.X, "value", x_ends, grid=False, **axis)
    y = axis_between(alt.Y, "mean", y_ends, tickCount=5, format=".0%" if percent else "~g")
    digits = ".1%" if percent else ".4f"
    tooltip = ["setting:N", *mean_tips(digits), alt.Tooltip("published:Q", format=digits)]
    (colour,) = policy_tints([policy], theme)
    base = alt.Chart(alt.NamedData("curve")).encode(x=x)
    layers = [
        dashed_rule(default, x_ends, theme),
        mean_band(base, y_ends, color=colour, opacity=0.25),
        base.mark_line(color=colour, strokeWidth=2, aria=False).encode(y=y),
        base.mark_point(filled=True, color=colour, size=70, opacity=1).encode(
            y=y, tooltip=tooltip
        ),
    ]
    words = f"dashed: the default, {default:g}"
    if rows.published.notna().any():
        words += " · ◇ published"
        printed = base.transform_filter("isValid(datum.published)").mark_point(
            shape="diamond", color=theme.ink, size=170, strokeWidth=1.5, opacity=1
        )
        # Below the measured points, which it must not cover.
        layers.insert(3, printed.encode(y="published:Q", tooltip=tooltip))
    heading = panel_title(title, words)
    return single(theme, {"curve": rows}, *layers, height=230, title=heading)


def curve_range(table: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Return the y axis of a metric's curve: one for all metrics of a sweep within -1 and 1."""
    by_metric = table.groupby("metric")[["ci_low", "ci_high", "published"]]
    extremes = by_metric.agg(["min", "max"])
    lows = extremes.min(axis=1).clip(upper=0.0)
    highs = extremes.max(axis=1).clip(lower=1.0)
    shared = (lows >= -1) & (highs <= 1.01)  # a little more than 1, for intervals of shares
    chosen = shared if shared.get(metric, True) else shared.index == metric
    return ends_of(pd.concat([lows[chosen], highs[chosen]]))
