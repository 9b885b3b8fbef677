"""What forgetting does to a text, passage by passage, a line for each policy."""

from __future__ import annotations

import altair as alt

from fdkvc.charts.theme import (
    Spec,
    Theme,
    built_once,
    layered,
    panel_title,
    policy_lines,
    single,
)


@built_once
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
    tooltip = [
        alt.Tooltip("policy:N"),
        alt.Tooltip("turn:Q"),
        alt.Tooltip("writer:N"),
        alt.Tooltip("tokens:Q"),
        alt.Tooltip("damage:Q", title="nats a token", format=".3f"),
    ]
    base = alt.Chart(alt.NamedData("damage")).encode(x=x, y=y)
    lines = policy_lines(base, policies, theme, tooltip, size=60)
    title = panel_title("Damage", "nats a token more than with the full cache")
    return single(layered(*lines, height=260, title=title), theme)
