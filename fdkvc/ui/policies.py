"""The policies of the registry: idea, equations, parameters, source, and how they compare."""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial

import numpy as np
import pandas as pd
import streamlit as st

from fdkvc.charts.sweep import tradeoff_chart
from fdkvc.experiments.shipped_tables import ANSWERED, AXES, DRAWN, REAL, Axis, shipped_table
from fdkvc.experiments.sweep import join_axes
from fdkvc.grid import figures, pivot
from fdkvc.policies import POLICIES, WRAPPERS, Policy, policy_named, read_policy, wrapped
from fdkvc.policies.base import Step
from fdkvc.report import shipped_agents
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import show_chart, show_pickable
from fdkvc.ui.kit.frame import open_tab, page_theme, show_grid
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.variants import CHOSEN
from fdkvc.words import listed, ranged

MOST_NAMED = 5
"""Tied policies named in the answer."""


@st.fragment
def show_map(page: str) -> None:
    """Say which policy is best on two axes, and show them as a map with links to Compare."""
    table = shipped_table("policy_map")
    answer, picture = st.container(), st.container()
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
    with picture:
        show_pickable(page, "map", chart)
        _show_picked(page)
    dialogs = table.groupby("axis").n.max()
    axes = {at: (AXES[axis], int(dialogs[axis])) for at, axis in (("x", x), ("y", y))}
    answer.markdown(plain(_answer(points[points.setting.isin(within)], axes)))
    answer.caption(plain(f"{RECALL_ONLY} {PROTECT}"))
    st.caption(
        "Lines and brackets: 95 % intervals. Policies whose ranks overlap over resampled dialogs "
        "are tied. Point at a mark for its name; click it to compare it turn by turn. The front "
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
        means = "; ".join(map("{} {}".format, named["name"], intervals))
        verdict = "are tied: no single policy is best" if len(tied) > 1 else "is best"
        more = [f"{len(tied) - MOST_NAMED} more"] * (len(tied) > MOST_NAMED)
        best = listed([*tied[:MOST_NAMED], *more])
        line = Markdown("- {} ({}, {:,} dialogs): **{} {}**. {}.")
        lines.append(line.format(axis.label, axis.data, dialogs, best, verdict, means))
    first, second = leaders
    both = [name for name in first if name in second]
    head = Markdown("**Best or tied on both axes of the map: {}.** Within the budget:\n")
    return Markdown("\n").join([head.format(listed(both) if both else "none"), *lines])


def _show_picked(page: str) -> None:
    """Below the map, name the policy that was clicked; link to Compare."""
    name = st.session_state.get(f"{page}/picked")
    if name is None:
        return
    policy = read_policy(name)
    with st.container(border=True, key="picked-policy"):
        st.markdown(
            Markdown("**{}** :gray[({})] {}").format(policy.title, policy.source, policy.idea)
        )
        st.page_link(
            "pages/compare.py",
            label=plain(f"Compare {policy.title} with FIFO, turn by turn"),
            icon=":material/compare:",
            query_params={"policies": CHOSEN.written([*dict.fromkeys(("fifo", name))])},
        )


def open_section(page: str) -> None:
    """Show the open one of the sections below the map."""
    sections: dict[str, Callable[[], None]] = {
        "All figures": show_figures,
        "Agent conversations": partial(show_agents, page),
        "Policies one by one": partial(show_each, page, EVERY),
        "Wrappers": partial(show_each, page, WRAPPED),
        "Page size": show_page_sizes,
    }
    name, tab = open_tab(page, {name: name for name in sections}, "All figures")
    with tab:
        sections[name]()


def show_figures() -> None:
    """Show the figures of every policy on every axis of the map, and what it looks at."""
    table = shipped_table("policy_map")
    table = table.sort_values("axis", key=lambda axes: axes.map([*AXES].index), kind="stable")
    words = [*map(ranged, table["mean"], table.ci_low, table.ci_high)]
    named = table.assign(policy=[read_policy(name).title for name in table.policy])
    grid = pivot(named, words, column="axis", label=lambda axis: AXES[axis].label, missing="–")
    looks_at = [", ".join(read_policy(name).looks_at) for name in table.policy.unique()]
    with st.container(key="table-of-figures"):
        show_grid(grid.beside({"Looks at": looks_at}), "Every policy on every axis")
    st.caption(
        plain(
            f"Means with 95 % intervals; – where it was not measured. Memory to attention loss: "
            f"{DRAWN}; recall: {REAL}; calls and nats: {ANSWERED}. The Benchmark page measures any "
            "policy, also one of your own, on any number of synthetic dialogs."
        )
    )


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


def show_page_sizes() -> None:
    """Show what page size costs, against eviction by entries."""
    table = shipped_table("page_sizes").assign(metric="call_recall")
    changes = figures(table, ("mean_diff", "diff_low", "diff_high"), signs=True)
    words = np.where(table["size"] == 1, figures(table), changes).tolist()
    named = table.assign(policy=[policy_named(key).label for key in table.policy])
    sizes = {1: "by entries", **{n: f"pages of {n}, difference" for n in table["size"] if n > 1}}
    show_grid(
        pivot(named, words, ["policy", "budget"], "size", sizes.__getitem__),
        "Call-argument recall by page size",
    )
    st.caption(
        plain(
            "Call-argument recall in %, and its difference in points if whole pages are evicted, "
            f"with 95 % intervals: {table.n.max()} real dialogs in {table.services.max()} "
            "clusters, lexical embedding. A page that is not full wastes slots, and only one of 32 "
            "fits into 48. Measured by benchmarks/research/page_sizes.py."
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
    looks, remembers = policy.looks_at, map(policy.quantity_name, policy.channels)
    st.markdown(
        Markdown("Looks at: {}. Remembers: {}. Key: `{}`.  \n:gray[Source: {}.]").format(
            ", ".join(looks), ", ".join(remembers) or "nothing", policy.key, policy.source
        )
    )
