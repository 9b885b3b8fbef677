"""Means over budgets or turns and the damage over turns, a line for each policy."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from fdkvc.charts.theme import (
    DASHES,
    Spec,
    Theme,
    axis_between,
    between,
    cycled,
    field,
    mark,
    mean_band,
    mean_tips,
    panel_title,
    policy_legend,
    policy_lines,
    policy_scale,
    single,
    tips,
    top_legend,
)


def budgets_chart(
    table: pd.DataFrame,
    title: str,
    theme: Theme,
    *,
    policies: Sequence[str] = (),
    percent: bool = True,
    top: float = 0,
    intervals: bool = True,
) -> Spec:
    """Return one metric over rising budgets with its data, from 0 to `top`.

    `table` has columns policy, budget, n, mean, ci_low and ci_high; `policies` are in the order of
    their colours, by default that of the table.
    """
    table = table[["policy", "budget", "n", "mean", "ci_low", "ci_high"]].reset_index(drop=True)
    if not top:
        highest = float(table[["mean"] if percent else ["mean", "ci_high"]].max().max())
        top = max(1.0, 1.05 * highest) if percent else 1.05 * highest
    budgets = sorted(table.budget.unique().tolist())
    policies = policies or table.policy.unique().tolist()
    intervals = intervals and bool(table.ci_high.notna().any())
    room = (budgets[-1] / budgets[0]) ** 0.04 if len(budgets) > 1 else 2
    # Budgets grow by factors, which this axis spaces evenly.
    scale = {"type": "log", **between((budgets[0] / room, budgets[-1] * room))}
    axis = {"title": "budget", "values": budgets, "grid": False, "format": ",d"}
    ends, form = (0, top), ".0%" if percent else "~f"
    x = field("budget:Q", scale=scale, axis=axis)
    axes = {"x": x, "y": axis_between("mean", ends, tickCount=5, format=form)}
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    means = mean_tips(".1%" if percent else ".2f", intervals)
    tooltip = ["policy:N", "budget:Q", *means, field("n:Q", title="dialogs")]
    layers = policy_lines("budgets", axes, policies, tints, tooltip, 70, legend)
    subtitle = "mean over the dialogs"
    if intervals:
        subtitle += ", with its 95 % interval over clusters"
        colours = {"x": x, "color": field("policy:N", scale=tints, legend=legend)}
        layers.insert(0, mean_band("budgets", colours, ends, opacity=0.2, clip=True))
    heading = panel_title(title, subtitle)
    return single(theme, {"budgets": table}, *layers, height=280, title=heading)


def series_chart(
    table: pd.DataFrame,
    schedule: str,
    title: str,
    subtitle: str,
    policies: Sequence[str],
    ends: tuple[float, float],
    theme: Theme,
) -> Spec:
    """Return one quantity over the turns of a schedule with its data, on a y axis with these ends.

    `table` has columns policy, turn, topic, mean, ci_low and ci_high; `policies` are in the order
    of their colours.
    """
    legend = top_legend(
        symbolType="stroke", symbolStrokeWidth=2, symbolOpacity=1, symbolSize=300, offset=18
    )
    shared = {
        "x": _turns("turn", len(schedule)),
        "color": field("policy:N", scale=policy_scale(policies, theme), legend=legend),
    }
    lines = {
        **shared,
        "y": axis_between("mean", ends, tickCount=5, format="~g"),
        "strokeDash": field("policy:N", scale=cycled(policies, DASHES), legend=legend),
        "tooltip": ["turn:Q", "topic:N", "policy:N", *mean_tips(".4f")],
    }
    return single(
        theme,
        {"series": table, "topics": topics_data(schedule)},
        *_topics(len(schedule), theme),
        mean_band("series", shared, ends, opacity=0.25),
        mark("line", "series", lines, strokeWidth=2, point={"size": 26}),
        height=210,
        title=panel_title(title, subtitle),
    )


def damage_chart(table: pd.DataFrame, policies: Sequence[str], theme: Theme) -> Spec:
    """Return the damage over the turns with its data (policy, turn, writer, tokens, damage)."""
    low, high = min(0.0, float(table.damage.min())), max(0.1, float(table.damage.max()))
    room = 0.05 * (high - low)
    ends = low - room, high + room
    axes = {
        "x": _turns("turn", int(table.turn.max()) + 1),
        "y": axis_between("damage", ends, tickCount=5, format="~g"),
    }
    tooltip = ["policy:N", "turn:Q", "writer:N", "tokens:Q", *tips(".3f", damage="nats a token")]
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    lines = policy_lines("damage", axes, policies, tints, tooltip, 60, legend)
    title = panel_title("Damage", "nats a token more than with the full cache")
    return single(theme, {"damage": table}, *lines, height=260, title=title)


def _turns(name: str, turns: int) -> Spec:
    axis = {"title": "turn", "format": "d", "tickCount": min(turns, 20), "grid": False}
    return axis_between(name, (-0.5, turns - 0.5), **axis)


def _topics(turns: int, theme: Theme) -> list[Spec]:
    """Shade every other run of a topic, and write its letter at the top."""
    shade = {"x": _turns("left", turns), "x2": "right"}
    letters = {"x": _turns("middle", turns), "y": {"value": -9}, "text": "topic:N"}
    rects = mark("rect", "topics", shade, color=theme.faint, opacity=0.35, aria=False)
    bold = {"color": theme.ink, "opacity": 0.8, "fontWeight": "bold", "aria": False}
    shaded = {**rects, "transform": [{"filter": "datum.shaded"}]}
    return [shaded, mark("text", "topics", letters, **bold)]


def topics_data(schedule: str) -> pd.DataFrame:
    """Return the runs of turns with the same topic, every other one shaded."""
    turns = pd.DataFrame({"topic": list(schedule), "turn": range(len(schedule))})
    run = (turns.topic != turns.topic.shift()).cumsum()
    runs = turns.groupby(run, as_index=False).agg(
        topic=("topic", "first"), left=("turn", "min"), right=("turn", "max")
    )
    left, right = runs.left - 0.5, runs.right + 0.5
    shaded = runs.index % 2 == 1
    return runs.assign(left=left, right=right, middle=(left + right) / 2, shaded=shaded)
