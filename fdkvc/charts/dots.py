"""Figures with their intervals as dots on a line, a row for each scenario."""

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    FD_KVC,
    GREYS,
    SHAPES,
    Spec,
    Theme,
    axis_between,
    cycled,
    dashed_rule,
    legend_columns,
    mean_tips,
    panel_title,
    policy_scale,
    policy_tints,
    single,
    top_legend,
    unchecked,
)

DOT_HEIGHT = 13


@unchecked
def dots_chart(
    table: pd.DataFrame,
    title: str,
    subtitle: str,
    theme: Theme,
    of: str = "scenario",
    ends: tuple[float, float] | None = None,
) -> Spec:
    """Return figures as dots with their data, a row of the chart for each `row` of the table.

    `table` has columns row, name, mean, ci_low, ci_high and words; rows begin at the top, names are
    in the order of their colours, and `of` says what a row is. The x axis has these `ends`; by
    default it shows zero and every interval.
    """
    if ends is None:
        numbers = table[["mean", "ci_low", "ci_high"]]  # a few dialogs have no intervals
        low, high = min(0.0, float(numbers.min().min())), max(0.0, float(numbers.max().max()))
        room = 0.04 * (high - low) or 1.0
        ends = low - room, high + room
    rows, names = (table[column].unique().tolist() for column in ("row", "name"))
    legend = top_legend(columns=legend_columns(names)) if len(names) > 1 else None
    if len(names) == 1:  # rows may be policies
        (tint,), hue = policy_tints(names, theme), theme.policies[GREYS]
        tints = [hue if row.startswith(FD_KVC) else tint for row in rows]
        color = alt.Color("row:N", scale=alt.Scale(domain=rows, range=tints), legend=None)
    else:
        color = alt.Color("name:N", scale=policy_scale(names, theme), legend=legend)
    base = alt.Chart(alt.NamedData("dots")).encode(
        y=alt.Y(
            "row:N",
            scale=alt.Scale(domain=rows, paddingInner=0.25, paddingOuter=0.15),
            axis=alt.Axis(title=None, ticks=False, domain=False, labelLimit=190),
        ),
        yOffset=alt.YOffset("name:N", scale=alt.Scale(domain=names)),
        color=color,
    )
    intervals = base.mark_rule(strokeWidth=2, clip=True, aria=False)
    intervals = intervals.encode(x="ci_low:Q", x2="ci_high")
    dots = base.mark_point(filled=True, size=55, opacity=1, clip=True).encode(
        x=axis_between(alt.X, "mean", ends, format="~f", tickCount=5),
        shape=alt.Shape("name:N", scale=cycled(names, SHAPES), legend=legend),
        tooltip=[
            alt.Tooltip("row:N", title=of),
            alt.Tooltip("name:N", title="of"),
            *mean_tips(".4f"),
            alt.Tooltip("words:N", title=" "),
        ],
    )
    layers = dashed_rule(0, ends, theme), intervals, dots
    height = len(rows) * (DOT_HEIGHT * len(names) + 14)
    heading = panel_title(title, subtitle)
    return single(theme, {"dots": table}, *layers, height=height, title=heading)
