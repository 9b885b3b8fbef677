"""Shipped results on agent conversations: a chart, a table, and both as a report."""

from __future__ import annotations

import math
from functools import cache
from html import escape

import pandas as pd

from fdkvc.charts.lines import budgets_chart
from fdkvc.charts.theme import LIGHT, Spec, Theme
from fdkvc.experiments import agents
from fdkvc.experiments.model_shape import SHAPE, SHAPES
from fdkvc.experiments.plan import budget_columns, smallest_budgets
from fdkvc.experiments.replay import BEST
from fdkvc.policies import read_policy
from fdkvc.report.document import Part, drawing, report_html
from fdkvc.report.tables import interval_words, table_html, wide_columns
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.words import signed

TITLE = "Call-argument recall of agent conversations"
PLAN_TITLE = "Smallest budgets for agent conversations and service dialogues"


def _titles() -> dict[str, str]:
    return {BEST: BEST.capitalize()} | {name: read_policy(name).title for name in agents.POLICIES}


def _rows(variant: str) -> pd.DataFrame:
    table = agents.agent_results()
    return table[(table.metric == agents.METRICS[0]) & (table.variant == variant)]


def agents_chart(theme: Theme) -> Spec:
    """Return recall by budget, a line for each policy."""
    titles, rows = _titles(), _rows(agents.AS_READ)
    return budgets_chart(
        rows[rows.policy.isin(agents.DRAWN)].replace(titles),
        TITLE,
        theme,
        policies=tuple(titles[name] for name in agents.DRAWN),
        intervals=False,  # of so many lines they hide each other; the table has them
    )


def agents_columns() -> dict[str, list[str]]:
    """Return recall by policy and budget, and what a pinned system prompt changes."""
    rows, pinned = _in_order(_rows(agents.AS_READ)), _rows(agents.PINNED)
    columns = wide_columns(rows, interval_words(rows, 100, 0), label="{:,}".format)
    changes = dict(zip(pinned.policy, _changes(pinned), strict=True))
    policies, titles = columns.pop("policy"), _titles()
    columns[f"{agents.PINNED_BUDGET:,}, pinned"] = [changes.get(name, "") for name in policies]
    return {"Recall in %": [titles[name] for name in policies], **columns}


def _in_order(rows: pd.DataFrame) -> pd.DataFrame:
    """Sort rows by policy, in the order of the titles."""
    return rows.sort_values("policy", key=lambda names: names.map([*_titles()].index))


def _changes(rows: pd.DataFrame) -> list[str]:
    return interval_words(rows, 100, 1, signed, agents.CHANGE)


@cache
def plan_columns() -> dict[str, list[str]]:
    """Return the smallest budgets that hold so much, of agents and of service dialogues."""
    titles, size = _titles(), SHAPES[SHAPE.default].entry_bytes
    columns: dict[str, list[str]] = {}
    for variant, dialogs in ((agents.AS_READ, "agents"), (agents.SGD, "SGD")):
        rows = _rows(variant)
        plan = rows.assign(heads="", recall=rows["mean"], bytes=size * rows.budget, saved=math.nan)
        found = budget_columns(smallest_budgets(_in_order(plan)), lambda policy, _: titles[policy])
        columns["Smallest budget"] = found.pop("policy")
        columns |= {f"{name}, {dialogs}": words for name, words in found.items()}
    return columns


def plan_words() -> str:
    """Return what the smallest budgets are of."""
    rows = _rows(agents.SGD)
    return (
        "The smallest budget measured from which on the mean recall is as high, in entries and in "
        f"bytes of {SHAPES[SHAPE.default].name}; – where there is none. SGD: {rows.n.max()} "
        f"dialogues of the development part with {rows.clusters.max()} sets of services, at "
        f"{agents.SGD_BUDGETS[0]} to {agents.SGD_BUDGETS[-1]} entries. The page Dialogs makes this "
        "table for a file of your own."
    )


def agents_words() -> str:
    """Return what was measured."""
    rows, general = _rows(agents.AS_READ), _rows(agents.GENERAL)[:1]
    return (
        f"{rows.n.max()} conversations with calls of τ-bench (sierra-research/tau-bench, MIT) "
        f"on {rows.clusters.max()} tasks, lexical embedding (mean over {len(agents.SEEDS)} seeds), "
        "calls read as text; 95 % intervals by task. Pinned: the change in points if the system "
        f"prompt of {agents.PROMPT:,} words is never evicted. With word frequencies of general "
        f"English, surprisal changes by {_changes(general)[0]} points at "
        f"{general.budget.iloc[0]} entries. "
        "Measured by benchmarks/research/agents.py."
    )


def agents_report() -> str:
    """Return the shipped results as a report."""
    drawn, table = drawing(agents_chart(LIGHT), "agents"), table_html(agents_columns(), TITLE)
    parts = [Part(TITLE, f"{drawn}{table}<p>{escape(agents_words())}</p>")]
    scope = [
        "What policies keep of the conversations of agents, whose calls need what was said.",
        f"{RECALL_ONLY} {PROTECT}",
    ]
    return report_html("Cache policies on agent conversations", scope, parts, agents.MEASURED_ON)
