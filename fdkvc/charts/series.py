"""Means over the turns, a line for each policy, with their 95 % intervals."""

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
    panel_title,
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
    """Build the spec of one quantity over the turns.

    For data ``series`` and ``topics``.

    Parameters
    ----------
    policies : tuple of str
        In the order of their colours; those without data have no line.
    low, high : float
        What the y axis shows.
    """
    x_scale = alt.Scale(domain=[-0.5, turns - 0.5], nice=False)
    x_axis = alt.Axis(title="turn", format="d", tickCount=min(turns, 20), grid=False)
    y_scale = alt.Scale(domain=[low, high], nice=False)
    y_axis = alt.Axis(title=None, tickCount=5, format="~g")
    x = alt.X("turn:Q", scale=x_scale, axis=x_axis)
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
        tooltip=[
            alt.Tooltip("turn:Q"),
            alt.Tooltip("topic:N"),
            alt.Tooltip("policy:N"),
            alt.Tooltip("mean:Q", format=".4f"),
            alt.Tooltip("ci_low:Q", title="interval from", format=".4f"),
            alt.Tooltip("ci_high:Q", title="to", format=".4f"),
        ],
    )
    layers = [*_topics(x_scale, x_axis, theme), band, lines]
    return single(layered(*layers, height=210, title=panel_title(title, subtitle)), theme)


def _topics(scale: alt.Scale, axis: alt.Axis, theme: Theme) -> list[Panel]:
    """Shade every other run of a topic, and write its letter at the top."""
    base = alt.Chart(alt.NamedData("topics"))
    shade = (
        base.transform_filter(alt.datum.shaded)
        .mark_rect(color=theme.faint, opacity=0.35, aria=False)
        .encode(x=alt.X("left:Q", scale=scale, axis=axis), x2=alt.X2("right:Q"))
    )
    letters = base.mark_text(color=theme.ink, opacity=0.8, fontWeight="bold", aria=False).encode(
        x=alt.X("middle:Q", scale=scale, axis=axis), y=alt.value(-9), text=alt.Text("topic:N")
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
