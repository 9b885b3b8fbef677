"""The life line of one entry: its score against the cutoff, and its channels, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import altair as alt

from fdkvc.charts.theme import (
    DASHES,
    Panel,
    Spec,
    Theme,
    column,
    inside_axis,
    panel_title,
    top_legend,
)


@lru_cache(maxsize=64)
def life_spec(turns: int, channels: tuple[str, ...], theme: Theme) -> Spec:
    """Build the spec of a life line.

    For data ``scores``, ``channels`` and ``cursor``.

    Parameters
    ----------
    turns : int
        Turns of the dialog.
    """
    panels = [_lines("scores", "Score and cutoff", ("score", "cutoff"), turns, theme)]
    if channels:
        panels.append(_lines("channels", "Channels", channels, turns, theme))
    return column(panels, theme)


def _lines(data: str, title: str, names: Sequence[str], turns: int, theme: Theme) -> Panel:
    colours = [theme.ink, *(theme.terms * len(names))][: len(names)]
    x = alt.X(
        "turn:Q",
        scale=alt.Scale(domain=[-0.08 * turns, max(turns - 1, 1)], nice=False),
        axis=alt.Axis(title=None, grid=False, format="d", values=list(range(turns))),
    )
    lines = (
        alt.Chart(alt.NamedData(data))
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=34))
        .encode(
            x=x,
            y=alt.Y(
                "value:Q", scale=alt.Scale(zero=False, nice=True), axis=inside_axis(format="~g")
            ),
            color=alt.Color(
                "name:N",
                scale=alt.Scale(domain=list(names), range=colours),
                legend=top_legend(symbolType="stroke", symbolSize=250, offset=12),
            ),
            strokeDash=alt.StrokeDash(
                "name:N",
                scale=alt.Scale(
                    domain=list(names), range=[list(dash) for dash in DASHES[: len(names)]]
                ),
            ),
            tooltip=[
                alt.Tooltip("turn:Q"),
                alt.Tooltip("name:N"),
                alt.Tooltip("value:Q", format=".4f"),
            ],
        )
    )
    cursor = (
        alt.Chart(alt.NamedData("cursor"))
        .mark_rule(stroke=theme.ink, strokeWidth=2, opacity=0.5, aria=False)
        .encode(x=alt.X("left:Q"))
    )
    return alt.layer(lines, cursor, height=130, title=panel_title(title))
