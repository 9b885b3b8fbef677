"""Means over budgets or turns and the damage over turns, a line for each policy."""

from collections.abc import Sequence

import altair as alt
import pandas as pd

from fdkvc.charts.theme import (
    DASHES,
    Panel,
    Spec,
    Theme,
    axis_between,
    cycled,
    mean_band,
    mean_tips,
    panel_title,
    policy_legend,
    policy_lines,
    policy_scale,
    single,
    tips,
    top_legend,
    unchecked,
)


@unchecked
def budgets_chart(
    table: pd.DataFrame,
    title: str,
    theme: Theme,
    *,
    policies: Sequence[str] = (),
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
    budgets = sorted(table.budget.unique().tolist())
    policies = policies or table.policy.unique().tolist()
    intervals = intervals and bool(table.ci_high.notna().any())
    room = (budgets[-1] / budgets[0]) ** 0.04 if len(budgets) > 1 else 2
    base = alt.Chart(alt.NamedData("budgets")).encode(
        x=alt.X(
            "budget:Q",
            # Budgets grow by factors, which this axis spaces evenly.
            scale=alt.Scale(type="log", domain=[budgets[0] / room, budgets[-1] * room], nice=False),
            axis=alt.Axis(title="budget", values=budgets, grid=False, format=",d"),
        )
    )
    ends, form = (0, top), ".0%" if percent else "~f"
    y = axis_between(alt.Y, "mean", ends, tickCount=5, format=form)
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    means = mean_tips(".1%" if percent else ".2f", intervals)
    tooltip = ["policy:N", "budget:Q", *means, alt.Tooltip("n:Q", title="dialogs")]
    layers = policy_lines(base.encode(y=y), policies, tints, tooltip, 70, legend)
    subtitle = "mean over the dialogs"
    if intervals:
        subtitle += ", with its 95 % interval over clusters"
        colour = alt.Color("policy:N", scale=tints, legend=legend)
        layers.insert(0, mean_band(base.encode(color=colour), ends, opacity=0.2, clip=True))
    heading = panel_title(title, subtitle)
    return single(theme, {"budgets": table}, *layers, height=280, title=heading)


@unchecked
def series_chart(
    table: pd.DataFrame,
    schedule: str,
    title: str,
    subtitle: str,
    policies: Sequence[str],
    ends: tuple[float, float],
    theme: Theme,
) -> Spec:
    """Return one quantity over the turns of a schedule with its data, on a y axis with these ends.

    `table` has columns policy, turn, topic, mean, ci_low and ci_high; `policies` are in the order
    of their colours.
    """
    legend = top_legend(
        symbolType="stroke", symbolStrokeWidth=2, symbolOpacity=1, symbolSize=300, offset=18
    )
    base = alt.Chart(alt.NamedData("series")).encode(
        x=_turns("turn", len(schedule)),
        color=alt.Color("policy:N", scale=policy_scale(policies, theme), legend=legend),
    )
    lines = base.mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=26)).encode(
        y=axis_between(alt.Y, "mean", ends, tickCount=5, format="~g"),
        strokeDash=alt.StrokeDash("policy:N", scale=cycled(policies, DASHES), legend=legend),
        tooltip=["turn:Q", "topic:N", "policy:N", *mean_tips(".4f")],
    )
    layers = *_topics(len(schedule), theme), mean_band(base, ends, opacity=0.25), lines
    data = {"series": table, "topics": topics_data(schedule)}
    return single(theme, data, *layers, height=210, title=panel_title(title, subtitle))


@unchecked
def damage_chart(table: pd.DataFrame, policies: Sequence[str], theme: Theme) -> Spec:
    """Return the damage over the turns with its data (policy, turn, speaker, tokens, kl)."""
    high = max(0.1, float(table.kl.max()))
    ends = -0.05 * high, 1.05 * high
    base = alt.Chart(alt.NamedData("damage")).encode(
        x=_turns("turn", int(table.turn.max()) + 1),
        y=axis_between(alt.Y, "kl", ends, tickCount=5, format="~g"),
    )
    words = "policy:N", "turn:Q", "speaker:N", "tokens:Q"
    tooltip = [*words, *tips(".3f", kl="nats a token")]
    tints, legend = policy_scale(policies, theme), policy_legend(policies)
    lines = policy_lines(base, policies, tints, tooltip, 60, legend)
    title = panel_title("Damage", "KL from the full cache, nats a token")
    return single(theme, {"damage": table}, *lines, height=260, title=title)


def _turns(field: str, turns: int) -> alt.X:
    axis = {"title": "turn", "format": "d", "tickCount": min(turns, 20), "grid": False}
    return axis_between(alt.X, field, (-0.5, turns - 0.5), **axis)


def _topics(turns: int, theme: Theme) -> list[Panel]:
    """Shade every other run of a topic, and write its letter at the top."""
    base = alt.Chart(alt.NamedData("topics"))
    shade = base.transform_filter(alt.datum.shaded).mark_rect(
        color=theme.faint, opacity=0.35, aria=False
    )
    letters = base.mark_text(color=theme.ink, opacity=0.8, fontWeight="bold", aria=False)
    return [
        shade.encode(x=_turns("left", turns), x2="right"),
        letters.encode(x=_turns("middle", turns), y=alt.value(-9), text="topic:N"),
    ]


def topics_data(schedule: str) -> pd.DataFrame:
    """Return the runs of turns with the same topic, every other one shaded."""
    turns = pd.DataFrame({"topic": list(schedule), "turn": range(len(schedule))})
    run = (turns.topic != turns.topic.shift()).cumsum()
    runs = turns.groupby(run, as_index=False).agg(
        topic=("topic", "first"), left=("turn", "min"), right=("turn", "max")
    )
    left, right = runs.left - 0.5, runs.right + 0.5
    shaded = runs.index % 2 == 1
    return runs.assign(left=left, right=right, middle=(left + right) / 2, shaded=shaded)
