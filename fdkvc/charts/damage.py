"""What forgetting does to a text, passage by passage, a line for each policy."""

from __future__ import annotations

from functools import lru_cache

import altair as alt

from fdkvc.charts.theme import (
    Spec,
    Theme,
    dash_scale,
    panel_title,
    policy_scale,
    shape_scale,
    single,
    top_legend,
)


@lru_cache(maxsize=64)
def damage_spec(
    policies: tuple[str, ...], turns: int, low: float, high: float, theme: Theme
) -> Spec:
    """Build the spec of the damage over the turns.

    Parameters
    ----------
    policies : tuple of str
        In the order of their colours.
    turns : int
        Of the dialog.
    low, high : float
        What the y axis shows.

    Returns
    -------
    Spec
        For data ``damage`` (policy, turn, writer, tokens, damage).
    """
    x = alt.X(
        "turn:Q",
        scale=alt.Scale(domain=[-0.5, turns - 0.5], nice=False),
        axis=alt.Axis(title="turn", format="d", tickCount=min(turns, 20), grid=False),
    )
    y = alt.Y(
        "damage:Q",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(title=None, tickCount=5, format="~g"),
    )
    legend = top_legend(symbolSize=70, symbolStrokeWidth=0, symbolOpacity=1, labelLimit=260)
    base = alt.Chart(alt.NamedData("damage")).encode(
        x=x, y=y, color=alt.Color("policy:N", scale=policy_scale(policies, theme), legend=legend)
    )
    line = base.mark_line(strokeWidth=2, aria=False).encode(
        strokeDash=alt.StrokeDash("policy:N", scale=dash_scale(policies), legend=None)
    )
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=alt.Shape("policy:N", scale=shape_scale(policies), legend=legend),
        tooltip=[
            alt.Tooltip("policy:N"),
            alt.Tooltip("turn:Q"),
            alt.Tooltip("writer:N"),
            alt.Tooltip("tokens:Q"),
            alt.Tooltip("damage:Q", title="nats a token", format=".3f"),
        ],
    )
    title = panel_title("Damage", "nats a token more than with the full cache")
    return single(alt.layer(line, points).properties(height=260, title=title), theme)
