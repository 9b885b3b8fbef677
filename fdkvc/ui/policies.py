"""The policies of the registry: idea, equations, parameters, source, and how they compare."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from numpy.typing import NDArray

from fdkvc.charts.results import dots_chart
from fdkvc.charts.sweep import tradeoff_chart
from fdkvc.experiments.benchmark import run_benchmark
from fdkvc.experiments.shipped_tables import AXES, Axis, shipped_table
from fdkvc.experiments.statistics import summarize
from fdkvc.experiments.sweep import join_axes
from fdkvc.files.shipped import OVERVIEW, overview
from fdkvc.policies import (
    POLICIES,
    WRAPPERS,
    Policy,
    policy_named,
    read_policy,
    synthetic_policies,
    wrapped,
)
from fdkvc.policies.base import Step
from fdkvc.replication.random_eviction import behind_random
from fdkvc.report import shipped_agents
from fdkvc.run.metrics import metric_named, metrics_of
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import show_chart, show_pickable
from fdkvc.ui.kit.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.kit.glossary import show_chance
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.sidebar import MEASURED
from fdkvc.ui.kit.variants import CHOSEN
from fdkvc.words import count, decimal, listed, percent, ranged

MOST_NAMED = 5
"""Tied policies named in the answer."""

SHOWN = replace(
    MEASURED, help="Regret takes a few seconds longer than the others.", default=OVERVIEW.metrics
)
"""The metrics of the overview."""


@st.cache_data(show_spinner="Running every policy on a few dialogs …", max_entries=16)
def _measured(metrics: tuple[str, ...]) -> tuple[dict[str, NDArray[np.float64]], list[str]]:
    """Return each metric's mean and half its interval (policies, 2).

    Also a sentence for each policy that is no better than random eviction.
    """
    settings, shipped = replace(OVERVIEW, metrics=metrics), overview()
    results = shipped if shipped.benchmark == settings else run_benchmark(settings)
    means = {metric: np.full((len(synthetic_policies()), 2), np.nan) for metric in metrics}
    for metric, rows in means.items():
        for row, key in zip(rows, synthetic_policies(), strict=True):
            values = (results.values(name, key, f"late_{metric}") for name in BENCHMARK_SCENARIOS)
            if measured := [series for series in values if series is not None]:
                summary = summarize(np.mean(measured, axis=0))
                row[:] = summary.mean, (summary.high - summary.low) / 2
    return means, behind_random(results)


def show_overview(page: str) -> None:
    """Show the chosen metrics of each policy, averaged over the scenarios."""
    means, chance = _measured(fields.several(page, SHOWN))
    columns: dict[str, Any] = {"Policy": [policy.label for policy in synthetic_policies().values()]}
    looks: dict[str, Any] = {"Policy": st.column_config.TextColumn(pinned=True, width=140)}
    for metric, (mean, half) in ((metric_named(key), rows.T) for key, rows in means.items()):
        form = "%.3f"
        if metric.percent:
            # As many digits as the policies take to differ.
            shown = pd.Series(mean)
            form = "%.1f %%" if shown.max() - shown.min() > 0.02 else "%.3f %%"
        for name, values, words in (
            (metric.label, mean, metric.help),
            (f"± {metric.label.lower()}", half, "Half of the 95 % interval of the mean."),
        ):
            columns[name] = (metric.scale * values).round(6) + 0.0  # no −0
            looks[name] = st.column_config.NumberColumn(format=form, help=plain(words), width=95)
    table = pd.DataFrame(columns)
    st.dataframe(table, column_config=looks, hide_index=True, width="stretch", height="content")
    wholes = listed([metric.label.lower() for metric in metrics_of().values() if metric.whole])
    st.caption(
        plain(
            "Averages over the benchmark scenarios in which a metric has a value: "
            f"{OVERVIEW.dialogs} dialogs each, seed {OVERVIEW.seed}, budget {OVERVIEW.budget}. "
            f"They cover a dialog's last turns; {wholes} cover all turns. "
            "± is half of the 95 % interval. The benchmark page runs any number of dialogs. "
            "Only the full cache has no budget, and only the oracle knows the future."
        )
    )
    show_chance(chance)


@st.fragment
def show_map(page: str) -> None:
    """Say which policy is best on two axes, and show them as a map with links to Compare."""
    table = shipped_table("policy_map")
    answer = st.container()
    labels = {key: axis.label for key, axis in AXES.items()}
    across, up = ("Horizontal axis", "call_recall"), ("Vertical axis", "calls_exact_of_full")
    x, y = fields.pick_two(f"{page}/axis", labels, across, up)
    policies = {name: read_policy(name) for name in table.policy.unique()}
    stored = table[table.axis == "memory"].set_index("policy")["mean"]
    bound = stored["fifo"] + 1e-6
    honest = {name for name, policy in policies.items() if "future" not in policy.looks_at}
    within = {
        name
        for name in honest
        if stored.get(name, stored.get(policies[name].core.key, bound)) <= bound  # needs words
    }
    points = map_points(table, x, y, honest if "memory" in (x, y) else within)
    points["group"] = [policies[name].core.label for name in points.setting]
    points["name"] = [policies[name].title for name in points.setting]
    picked = points.setting == st.session_state.get(f"{page}/picked")
    order = np.lexsort([~points.setting.isin(POLICIES), ~points.front, ~picked])
    chart = tradeoff_chart(
        points.iloc[order],
        (AXES[x].label, AXES[y].label),
        tuple(policy.label for policy in POLICIES.values()),
        (AXES[x].lower_is_better, AXES[y].lower_is_better),
        page_theme(),
    )
    show_pickable(page, "map", chart)
    dialogs = table.groupby("axis").n.max()
    axes = {at: (AXES[axis], int(dialogs[axis])) for at, axis in (("x", x), ("y", y))}
    answer.markdown(plain(_answer(points[points.setting.isin(within)], axes)))
    answer.caption(plain(f"{RECALL_ONLY} {PROTECT}"))
    _show_picked(page, table, policies)
    st.caption(
        "Lines and brackets: 95 % intervals. Policies whose ranks overlap over resampled dialogs "
        "are tied. Point at a mark for its name; click it for its figures. The front "
        "leaves out the oracle, which knows the future, and policies that exceed the budget. "
        "The real dialogs are the held-out 200 of fdkvc/results.md; its figures for other "
        "dialogs differ. Measured by benchmarks/research/policy_map.py."
    )


def map_points(table: pd.DataFrame, x: str, y: str, eligible: Set[str]) -> pd.DataFrame:
    """Join two axes of the map.

    A row per policy that has both: setting, x, y, their intervals and ranks, and `front`, whether
    it is on the Pareto front of the eligible policies.
    """
    settings = table.rename(columns={"policy": "setting"})
    across, up = (
        (settings[settings.axis == axis].drop(columns=["axis", "n"]), AXES[axis].lower_is_better)
        for axis in (x, y)
    )
    return join_axes(across, up, ["setting"], eligible.__contains__)


def _answer(points: pd.DataFrame, axes: Mapping[str, tuple[Axis, int]]) -> Markdown:
    """Name the best policies on each axis (by column, with its dialogs), and those best on all.

    Policies whose ranks overlap the best's over resampled dialogs are tied with it.
    """
    lines, leaders = [], []
    for at, (axis, dialogs) in axes.items():
        rows = points.sort_values(at, ascending=axis.lower_is_better)
        tied = rows["name"][rows[f"{at}_rank_low"] <= rows[f"{at}_rank_high"].iloc[0]].tolist()
        leaders.append(tied)
        named = rows[rows["name"].isin(tied[:MOST_NAMED]) | (rows.setting == "fifo")]
        intervals = map(ranged, named[at], named[f"{at}_low"], named[f"{at}_high"])
        figures = "; ".join(map("{} {}".format, named["name"], intervals))
        verdict = "are tied: no single policy is best" if len(tied) > 1 else "is best"
        more = [f"{len(tied) - MOST_NAMED} more"] * (len(tied) > MOST_NAMED)
        best = listed([*tied[:MOST_NAMED], *more])
        line = Markdown("- {} ({}, {:,} dialogs): **{} {}**. {}.")
        lines.append(line.format(axis.label, axis.data, dialogs, best, verdict, figures))
    first, second = leaders
    both = [name for name in first if name in second]
    head = Markdown("**Best or tied on both axes of the map: {}.** Within the budget:\n")
    return Markdown("\n").join([head.format(listed(both) if both else "none"), *lines])


def _show_picked(page: str, table: pd.DataFrame, policies: Mapping[str, Policy]) -> None:
    """Below the map, say what was measured of the policy that was clicked; link to Compare."""
    policy = policies.get(st.session_state.get(f"{page}/picked", ""))
    if policy is None:
        return
    rows = table[table.policy == policy.name]
    figures = {
        "axis": [AXES[axis].label for axis in rows.axis],
        "mean": [decimal(mean) for mean in rows["mean"]],
        "95 % interval": _between(rows.ci_low, rows.ci_high, 3),
        "rank": [f"{rank:.0f}" for rank in rows["rank"]],
        "rank, 95 %": _between(rows.rank_low, rows.rank_high, 0),
        "of": [str((table.axis == axis).sum()) for axis in rows.axis],
    }
    with st.container(border=True, key="picked-policy"):
        st.markdown(Markdown("**{}** :gray[({})]").format(policy.title, policy.source))
        show_grid(figures, f"Measurements of {policy.title}")
        lanes = list(dict.fromkeys(("fifo", policy.name)))
        st.page_link(
            "pages/compare.py",
            label=plain(f"Compare {policy.title} with FIFO, turn by turn"),
            icon=":material/compare:",
            query_params={"policies": CHOSEN.written(lanes)},
        )


def _between(lows: Iterable[float], highs: Iterable[float], digits: int) -> list[str]:
    pairs = zip(lows, highs, strict=True)
    return [f"{decimal(low, digits)} to {decimal(high, digits)}" for low, high in pairs]


def show_what_they_look_at() -> None:
    """Show what each policy looks at and remembers, and its source."""
    columns = {
        "Policy": [policy.label for policy in EVERY],
        "Looks at": [", ".join(policy.looks_at) for policy in EVERY],
        "Remembers": [", ".join(map(policy.quantity_name, policy.channels)) for policy in EVERY],
        "Source": [policy.source for policy in EVERY],
    }
    with st.container(key="table-of-words"):
        show_grid(columns, "What each policy looks at")


EVERY = [policy_named(key) for key in POLICIES]
WRAPPED = [wrapped(key, policy_named("tova")) for key in WRAPPERS]
"""Each wrapper around a policy that brings no protection of its own."""


@st.fragment
def show_each(page: str, policies: Sequence[Policy]) -> None:
    """Show each policy's idea; its equations, parameters and source once it is opened."""
    for policy in policies:
        title = Markdown("**{}** · {}").format(type(policy).label, policy.idea)
        expander = st.expander(plain(title), key=f"{page}/{policy.key}", on_change="rerun")
        if expander.open:
            with expander:
                _show_policy(policy)


def show_page_sizes(page: str) -> None:
    """Show what page size costs, against eviction by entries."""
    table = shipped_table("page_sizes")
    low, high = sorted(table.budget.unique())
    paged = table[table["size"] > 1]
    recalls, filled = map(percent, paged["mean"]), map(percent, paged.filled)
    dots = paged.assign(
        row=[policy_named(key).label for key in paged.policy],
        name=paged["size"].astype(str),
        words=[*map("recall {}, {} of the slots filled".format, recalls, filled)],
        mean=100 * paged.mean_diff,
        ci_low=100 * paged.diff_low,
        ci_high=100 * paged.diff_high,
    )
    with side_by_side("page-sizes"):
        for budget in (low, high):
            with panel(f"pages-{budget}"):
                rows = dots[dots.budget == budget]
                subtitle = "difference in recall from eviction by entries, in points"
                chart = dots_chart(rows, f"{budget} entries", subtitle, page_theme(), "policy")
                show_chart(page, f"pages/{budget}", chart)
    small = dots[dots.budget == low].set_index(["policy", "size"])["mean"]
    fifo, snapkv = small["fifo"], small["snapkv"]
    st.markdown(
        plain(
            f"In a cache of {low} entries, pages cost FIFO what their empty slots would "
            f"hold: {count(round(-fifo[8]), 'point')} with pages of 8, {-fifo[16]:.0f} with pages "
            f"of 16, and {-fifo[32]:.0f} with pages of 32, of which only one fits. SnapKV picks "
            f"single entries and gains {snapkv[8]:.0f} and {snapkv[16]:.0f} with pages of 8 and "
            "16, which also keep their neighbours. In a cache twice as large, pages cost little."
        )
    )
    st.caption(
        plain(
            f"On {table.n.max()} real dialogs in {table.services.max()} clusters, lexical "
            "embedding: paired differences of call-argument recall, with 95 % intervals over "
            "clusters. Measured by benchmarks/research/page_sizes.py."
        )
    )


def show_agents(page: str) -> None:
    """Show what each policy holds of agent conversations, and the budgets that it needs."""
    show_chart(page, "agents", shipped_agents.agents_chart(page_theme()))
    show_grid(shipped_agents.agents_grid(), shipped_agents.TITLE)
    st.caption(plain(shipped_agents.agents_words()))
    show_grid(shipped_agents.plan_grid(), shipped_agents.PLAN_TITLE)
    st.caption(plain(shipped_agents.plan_words()))


def option_steps(policy: Policy) -> dict[str, list[Step]]:
    """Return the steps that only an option brings, by what switches it on."""
    steps: dict[str, list[Step]] = {}
    seen = [step.equation for step in policy.steps]
    for name, field in policy.settings.items():
        for value in field.choices or (field.low, field.high):
            if not field.accepts(value, field.kind):
                continue
            for step in policy.variant(**{name: value}).steps:
                if step.equation not in seen:
                    label = f"{field.label}: {value}" if field.choices else field.label
                    steps.setdefault(label, []).append(step)
                    seen.append(step.equation)
    return steps


def _show_step(step: Step) -> None:
    st.markdown(Markdown("**{}** :gray[({})]").format(step.name, step.source))
    st.latex(step.equation)


def _show_policy(policy: Policy) -> None:
    for step in policy.steps:
        _show_step(step)
    if policy.settings:
        st.table(
            [
                {
                    "Parameter": plain(fields.label(field)),
                    "Default": plain(f"{field.default}"),
                    "Allowed": plain(field.allowed(field.kind)),
                    "What it does": plain(field.help),
                }
                for field in policy.settings.values()
            ]
        )
    for label, steps in option_steps(policy).items():
        st.markdown(Markdown("With *{}*:").format(label))
        for step in steps:
            _show_step(step)
    words = Markdown("Looks at: {}. Key: `{}`.  \n:gray[Source: {}.]")
    st.markdown(plain(words.format(", ".join(policy.looks_at), policy.key, policy.source)))
