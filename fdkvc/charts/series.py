"""Means or the damage over the turns, a line for each policy."""

from __future__ import annotations

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    Panel,
    Spec,
    Theme,
    built_once,
    dash_scale,
    layered,
    mean_tips,
    panel_title,
    policy_legend,
    policy_lines,
    policy_scale,
    single,
    top_legend,
)


@built_once
def series_spec(
    title: str,
    subtitle: str,
    turns: int,
    policies: tuple[str, ...],
    low: float,
    high: float,
    theme: Theme,
) -> Spec:
    """Build the spec of one quantity over the turns, on a y axis from `low` to `high`.

    For data ``series`` and ``topics``; `policies` are in the order of their colours.
    """
    y_scale = alt.Scale(domain=[low, high], nice=False)
    y_axis = alt.Axis(title=None, tickCount=5, format="~g")
    x = _turns("turn", turns)
    y = alt.Y("mean:Q", scale=y_scale, axis=y_axis)
    legend = top_legend(
        symbolType="stroke", symbolStrokeWidth=2, symbolOpacity=1, symbolSize=300, offset=18
    )
    colours = policy_scale(policies, theme)
    base = alt.Chart(alt.NamedData("series"))
    band = base.mark_area(opacity=0.25, aria=False).encode(
        x=x,
        y=alt.Y("ci_low:Q", scale=y_scale, axis=y_axis),
        y2=alt.Y2("ci_high:Q"),
        color=alt.Color("policy:N", scale=colours, legend=legend),
    )
    lines = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=26)).encode(
        x=x,
        y=y,
        color=alt.Color("policy:N", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("policy:N", scale=dash_scale(policies), legend=legend),
        tooltip=[*map(alt.Tooltip, ("turn:Q", "topic:N", "policy:N")), *mean_tips(".4f")],
    )
    layers = [*_topics(turns, theme), band, lines]
    return single(layered(*layers, height=210, title=panel_title(title, subtitle)), theme)


@built_once
def damage_spec(
    policies: tuple[str, ...], turns: int, low: float, high: float, theme: Theme
) -> Spec:
    """Build the spec of the damage over the turns, on a y axis from `low` to `high`.

    For data ``damage`` (policy, turn, writer, tokens, damage).
    """
    y = alt.Y(
        "damage:Q",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(title=None, tickCount=5, format="~g"),
    )
    tooltip = [
        *map(alt.Tooltip, ("policy:N", "turn:Q", "writer:N", "tokens:Q")),
        alt.Tooltip("damage:Q", title="nats a token", format=".3f"),
    ]
    base = alt.Chart(alt.NamedData("damage")).encode(x=_turns("turn", turns), y=y)
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    lines = policy_lines(base, policies, tints, tooltip, 60, legend)
    title = panel_title("Damage", "nats a token more than with the full cache")
    return single(layered(*lines, height=260, title=title), theme)


def _turns(field: str, turns: int) -> alt.X:
    return alt.X(
        f"{field}:Q",
        scale=alt.Scale(domain=[-0.5, turns - 0.5], nice=False),
        axis=alt.Axis(title="turn", format="d", tickCount=min(turns, 20), grid=False),
    )


def _topics(turns: int, theme: Theme) -> list[Panel]:
    """Shade every other run of a topic, and write its letter at the top."""
    base = alt.Chart(alt.NamedData("topics"))
    shade = (
        base.transform_filter(alt.datum.shaded)
        .mark_rect(color=theme.faint, opacity=0.35, aria=False)
        .encode(x=_turns("left", turns), x2=alt.X2("right:Q"))
    )
    letters = base.mark_text(color=theme.ink, opacity=0.8, fontWeight="bold", aria=False).encode(
        x=_turns("middle", turns), y=alt.value(-9), text=alt.Text("topic:N")
    )
    return [shade, letters]


# ------------------------------------------------------------------------------------ data


def topics_data(schedule: str) -> pd.DataFrame:
    """Return the runs of turns with the same topic, every other one shaded."""
    turns = pd.DataFrame({"topic": list(schedule)})
    run = (turns.topic != turns.topic.shift()).cumsum()
    runs = (
        turns.assign(turn=turns.index)
        .groupby(run)
        .agg(topic=("topic", "first"), first=("turn", "min"), last=("turn", "max"))
    )
    return pd.DataFrame(
        {
            "topic": runs.topic,
            "left": runs["first"] - 0.5,
            "right": runs["last"] + 0.5,
            "middle": (runs["first"] + runs["last"]) / 2,
            "shaded": [place % 2 == 1 for place in range(len(runs))],
        }
    ).reset_index(drop=True)


def series_data(table: pd.DataFrame, scenario: str, quantity: str) -> pd.DataFrame:
    """Return the rows of one scenario and quantity from `fdkvc.replication.tables.series_table`."""
    rows = table[(table.scenario == scenario) & (table.quantity == quantity)]
    return rows[["policy", "turn", "topic", "mean", "ci_low", "ci_high"]].reset_index(drop=True)
