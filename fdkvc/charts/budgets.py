"""A measure of evidence against the budget, a line for each policy with its 95 % interval."""

from __future__ import annotations

import altair as alt

from fdkvc.charts.theme import (
    Spec,
    Theme,
    built_once,
    layered,
    panel_title,
    policy_colour,
    policy_lines,
    single,
)


@built_once
def budgets_spec(
    title: str,
    budgets: tuple[int, ...],
    policies: tuple[str, ...],
    top: float,
    percent: bool,
    intervals: bool,
    theme: Theme,
) -> Spec:
    """Build the spec of one metric over the budgets.

    For data ``budgets`` (policy, budget, n, mean, ci_low, ci_high).

    Parameters
    ----------
    title : str
        The metric.
    budgets : tuple of int
        In rising order.
    policies : tuple of str
        In the order of their colours.
    top : float
        The end of the y axis, which begins at 0.
    percent : bool
        Whether people read it as a percentage.
    intervals : bool
        Whether there are enough dialogs for intervals to say something.
    """
    room = 0.04 * (budgets[-1] - budgets[0]) or 1
    x = alt.X(
        "budget:Q",
        scale=alt.Scale(domain=[budgets[0] - room, budgets[-1] + room], nice=False),
        axis=alt.Axis(title="budget", values=list(budgets), grid=False),
    )
    y_scale = alt.Scale(domain=[0, top], nice=False)
    y_axis = alt.Axis(title=None, tickCount=5, format=".0%" if percent else "~f")
    form = ".1%" if percent else ".2f"
    base = alt.Chart(alt.NamedData("budgets")).encode(x=x)
    y = alt.Y("mean:Q", scale=y_scale, axis=y_axis)
    band = base.mark_area(opacity=0.2, clip=True, aria=False).encode(
        y=alt.Y("ci_low:Q", scale=y_scale, axis=y_axis),
        y2=alt.Y2("ci_high:Q"),
        color=policy_colour(policies, theme),
    )
    tooltips = [
        alt.Tooltip("ci_low:Q", title="interval from", format=form),
        alt.Tooltip("ci_high:Q", title="to", format=form),
    ]
    tooltip = [
        alt.Tooltip("policy:N"),
        alt.Tooltip("budget:Q"),
        alt.Tooltip("mean:Q", format=form),
        *(tooltips if intervals else []),
        alt.Tooltip("n:Q", title="dialogs"),
    ]
    lines = policy_lines(base.encode(y=y), policies, theme, tooltip, size=70)
    told = ", with its 95 % interval over service clusters" if intervals else ""
    subtitle = f"mean over the dialogs{told}"
    layers = [band, *lines] if intervals else lines
    chart = layered(*layers, height=280, title=panel_title(title, subtitle))
    return single(chart, theme)
