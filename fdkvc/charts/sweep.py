"""Curves of a hyperparameter that is swept."""

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    FD_KVC,
    Spec,
    Theme,
    axis_between,
    dashed_rule,
    mean_band,
    mean_tips,
    panel_title,
    policy_tints,
    single,
    unchecked,
)


@unchecked
def curve_chart(
    table: pd.DataFrame,
    metric: str,
    title: str,
    parameter: str,
    default: float,
    theme: Theme,
    policy: str = FD_KVC,
) -> Spec:
    """Return one metric over one hyperparameter of a policy with its data; its default is marked.

    `table` has columns metric, setting, value, mean, ci_low, ci_high and published, which may be
    missing. Metrics of one table share an axis where they can.
    """
    rows = table[table.metric == metric]
    low, high = float(rows.value.min()), float(rows.value.max())
    room = 0.04 * (high - low) or 0.5
    x_ends, y_ends = (low - room, high + room), curve_range(table, metric)
    axis = {"format": "~g", "tickCount": 5}
    x = axis_between(alt.X, "value", x_ends, title=parameter, grid=False, **axis)
    y = axis_between(alt.Y, "mean", y_ends, **axis)
    tooltip = ["setting:N", *mean_tips(".4f"), alt.Tooltip("published:Q", format=".4f")]
    (colour,) = policy_tints([policy], theme)
    base = alt.Chart(alt.NamedData("curve")).encode(x=x)
    layers = [
        dashed_rule(default, x_ends, theme),
        mean_band(base, y_ends, color=colour, opacity=0.25),
        base.mark_line(color=colour, strokeWidth=2, aria=False).encode(y=y),
        base.mark_point(filled=True, color=colour, size=70, opacity=1).encode(y=y, tooltip=tooltip),
    ]
    words = f"dashed: the default, {default:g}"
    if rows.published.notna().any():
        words += " · ◇ published"
        printed = base.transform_filter("isValid(datum.published)").mark_point(
            shape="diamond", color=theme.ink, size=170, strokeWidth=1.5, opacity=1
        )
        layers.insert(3, printed.encode(y="published:Q", tooltip=tooltip))
    heading = panel_title(title, words)
    return single(theme, {"curve": rows}, *layers, height=230, title=heading)


def curve_range(table: pd.DataFrame, metric: str) -> tuple[float, float]:
    """Return the y axis of a metric's curve: one for all metrics of a sweep within -1 and 1."""
    ends = table.groupby("metric")[["ci_low", "ci_high", "published"]].agg(["min", "max"])
    lows, highs = ends.min(axis=1).clip(upper=0.0), ends.max(axis=1).clip(lower=1.0)
    shared = (lows >= -1) & (highs <= 1.01)
    same = shared if shared[metric] else shared.index == metric
    return float(lows[same].min()), float(highs[same].max())
