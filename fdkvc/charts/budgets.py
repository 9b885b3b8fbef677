"""A metric against the budget, a line for each policy with its 95 % interval."""

from __future__ import annotations

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    Spec,
    Theme,
    built_once,
    layered,
    mean_tips,
    panel_title,
    policy_legend,
    policy_lines,
    policy_scale,
    single,
    with_data,
)


def budgets_chart(
    table: pd.DataFrame,
    title: str,
    theme: Theme,
    *,
    policies: tuple[str, ...] = (),
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
    spec = _budgets_spec(
        title,
        tuple(sorted(table.budget.unique().tolist())),
        policies or tuple(dict.fromkeys(table.policy)),
        top,
        percent,
        intervals and bool(table.ci_high.notna().any()),
        theme,
    )
    return with_data(spec, {"budgets": table})


@built_once
def _budgets_spec(
    title: str,
    budgets: tuple[int, ...],
    policies: tuple[str, ...],
    top: float,
    percent: bool,
    intervals: bool,
    theme: Theme,
) -> Spec:
    room = 0.04 * (budgets[-1] - budgets[0]) or 1
    x = alt.X(
        "budget:Q",
        scale=alt.Scale(domain=[budgets[0] - room, budgets[-1] + room], nice=False),
        axis=alt.Axis(title="budget", values=list(budgets), grid=False),
    )
    y_scale = alt.Scale(domain=[0, top], nice=False)
    y_axis = alt.Axis(title=None, tickCount=5, format=".0%" if percent else "~f")
    base = alt.Chart(alt.NamedData("budgets")).encode(x=x)
    y = alt.Y("mean:Q", scale=y_scale, axis=y_axis)
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    band = base.mark_area(opacity=0.2, clip=True, aria=False).encode(
        y=alt.Y("ci_low:Q", scale=y_scale, axis=y_axis),
        y2=alt.Y2("ci_high:Q"),
        color=alt.Color("policy:N", scale=tints, legend=legend),
    )
    tooltip = [
        *map(alt.Tooltip, ("policy:N", "budget:Q")),
        *mean_tips(".1%" if percent else ".2f", intervals),
        alt.Tooltip("n:Q", title="dialogs"),
    ]
    lines = policy_lines(base.encode(y=y), policies, tints, tooltip, 70, legend)
    subtitle = "mean over the dialogs"
    if intervals:
        subtitle += ", with its 95 % interval over clusters"
    layers = [band, *lines] if intervals else lines
    return single(layered(*layers, height=280, title=panel_title(title, subtitle)), theme)
