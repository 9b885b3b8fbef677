"""How a number is distributed over dialogs, a row for each policy."""

import json

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fdkvc.charts.theme import (
    Spec,
    Theme,
    axis_between,
    mean_tips,
    panel_title,
    policy_scale,
    single,
    tips,
    unchecked,
)

BINS = 48
ROW_HEIGHT = 62
FILL = 0.86  # share of a row's height that its highest bar takes


@unchecked
def spread_chart(
    values: dict[str, NDArray[np.float32]],
    title: str,
    subtitle: str,
    theme: Theme,
    least: float = 0,
) -> Spec:
    """Return the histograms of values (n,) by policy with their data, one below the other.

    The x axis reaches at least over ± `least`.
    """
    low, high = spread_range(values)
    if least:
        low, high = min(low, -least), max(high, least)
    rows = len(values)
    y = axis_between(
        alt.Y,
        "top",
        (rows, 0),
        values=[row + 0.5 for row in range(rows)],
        labelExpr=f"{json.dumps([*values])}[floor(datum.value)]",
        ticks=False,
        domain=False,
        grid=False,
        labelLimit=150,
    )
    bars = alt.Chart(alt.NamedData("bars")).mark_rect()
    bars = bars.encode(
        x=axis_between(alt.X, "left", (low, high), format="~g", tickCount=8),
        x2="right",
        y=y,
        y2="bottom",
        color=alt.Color("policy:N", scale=policy_scale([*values], theme), legend=None),
        tooltip=["policy:N", *tips(".4f", left="from", right="to"), "dialogs:Q"],
    )
    means = alt.Chart(alt.NamedData("means")).mark_rule(color=theme.ink, strokeWidth=2)
    tooltip = ["policy:N", "dialogs:Q", *mean_tips(".4f", interval=False)]
    means = means.encode(x="mean:Q", y=y, y2="bottom", tooltip=tooltip)
    data = {"bars": bars_data(values), "means": means_data(values)}
    heading = panel_title(title, subtitle)
    return single(theme, data, bars, means, height=ROW_HEIGHT * rows, title=heading)


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
    rows = [
        (policy, float(row.mean(dtype=np.float64)), place + 1 - FILL, place + 1.0, len(row))
        for place, (policy, row) in enumerate(values.items())
    ]
    return pd.DataFrame(rows, columns=["policy", "mean", "top", "bottom", "dialogs"])
