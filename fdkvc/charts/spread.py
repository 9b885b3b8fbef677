"""How a number is distributed over dialogs, a row for each policy."""

from __future__ import annotations

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.charts.theme import (
    Spec,
    Theme,
    built_once,
    layered,
    panel_title,
    policy_scale,
    single,
    with_data,
)

BINS = 48
ROW_HEIGHT = 62
FILL = 0.86  # share of a row's height that its highest bar takes


@built_once
def spread_spec(
    title: str, subtitle: str, policies: tuple[str, ...], low: float, high: float, theme: Theme
) -> Spec:
    """Build the spec of a histogram for each policy, one below the other, from `low` to `high`.

    For data ``bars`` and ``means``.
    """
    rows = len(policies)
    x = alt.X(
        "left:Q",
        scale=alt.Scale(domain=[low, high], nice=False),
        axis=alt.Axis(title=None, format="~g", tickCount=8),
    )
    y_scale = alt.Scale(domain=[rows, 0], nice=False)
    names = " : ".join(
        f"datum.value < {row + 1} ? {policy!r}" for row, policy in enumerate(policies)
    )
    axis = alt.Axis(
        title=None,
        values=[row + 0.5 for row in range(rows)],
        labelExpr=f"{names} : ''",
        ticks=False,
        domain=False,
        grid=False,
        labelLimit=150,
    )
    bars = (
        alt.Chart(alt.NamedData("bars"))
        .mark_rect()
        .encode(
            x=x,
            x2=alt.X2("right:Q"),
            y=alt.Y("top:Q", scale=y_scale, axis=axis),
            y2=alt.Y2("bottom:Q"),
            color=alt.Color("policy:N", scale=policy_scale(policies, theme), legend=None),
            tooltip=[
                alt.Tooltip("policy:N"),
                alt.Tooltip("left:Q", title="from", format=".4f"),
                alt.Tooltip("right:Q", title="to", format=".4f"),
                alt.Tooltip("dialogs:Q"),
            ],
        )
    )
    base = alt.Chart(alt.NamedData("means"))
    mean = base.mark_rule(color=theme.ink, strokeWidth=2).encode(
        x=alt.X("mean:Q"),
        y=alt.Y("top:Q", scale=y_scale, axis=axis),
        y2=alt.Y2("bottom:Q"),
        tooltip=[
            alt.Tooltip("policy:N"),
            alt.Tooltip("dialogs:Q"),
            alt.Tooltip("mean:Q", format=".4f"),
        ],
    )
    heading = panel_title(title, subtitle)
    chart = layered(bars, mean, height=ROW_HEIGHT * rows, title=heading)
    return single(chart, theme)


def spread_chart(
    values: dict[str, NDArray[np.float32]],
    title: str,
    subtitle: str,
    theme: Theme,
    least: float = 0,
) -> Spec:
    """Return the histograms of values (n,) by policy with their data, at least over ± `least`."""
    low, high = spread_range(values)
    if least:
        low, high = min(low, -least), max(high, least)
    spec = spread_spec(title, subtitle, tuple(values), low, high, theme)
    return with_data(spec, {"bars": bars_data(values), "means": means_data(values)})


# ------------------------------------------------------------------------------------ data


def spread_range(values: dict[str, NDArray[np.float32]]) -> tuple[float, float]:
    """Return the ends of an axis that shows every dialog, with a little room."""
    low = min(float(row.min()) for row in values.values())
    high = max(float(row.max()) for row in values.values())
    room = 0.03 * (high - low) or 0.05 * abs(high) or 0.05
    return low - room, high + room


def bars_data(values: dict[str, NDArray[np.float32]]) -> pd.DataFrame:
    """Count the dialogs, values (n,) by policy, in equal bins that all policies share."""
    low, high = spread_range(values)
    rows = []
    for place, (policy, row) in enumerate(values.items()):
        counts, edges = np.histogram(row, bins=BINS, range=(low, high))
        bottom = place + 1.0
        rows += [
            (policy, left, right, bottom - FILL * count / counts.max(), bottom, count)
            for left, right, count in zip(edges[:-1], edges[1:], counts, strict=True)
            if count
        ]
    return pd.DataFrame(rows, columns=["policy", "left", "right", "top", "bottom", "dialogs"])


def means_data(values: dict[str, NDArray[np.float32]]) -> pd.DataFrame:
    """Return where each policy's mean is."""
    return pd.DataFrame(
        [
            (policy, float(row.mean(dtype=np.float64)), place + 1 - FILL, place + 1.0, len(row))
            for place, (policy, row) in enumerate(values.items())
        ],
        columns=["policy", "mean", "top", "bottom", "dialogs"],
    )
