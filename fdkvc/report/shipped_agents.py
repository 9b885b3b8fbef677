"""Shipped results on agent conversations: a chart, a table, and both as a report."""

import math
from functools import cache
from html import escape

import pandas as pd

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import LIGHT, Spec, Theme
from fdkvc.experiments.model_shape import SHAPE, SHAPES
from fdkvc.experiments.plan import budget_columns, smallest_budgets
from fdkvc.experiments.shipped_tables import shipped_table
from fdkvc.grid import Grid, figures, pivot
from fdkvc.policies import read_policy
from fdkvc.report.document import Part, drawing, report_html
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.words import BEST

TITLE = "Call-argument recall of agent conversations"
MEASURED_ON = "24 November 2026"
DRAWN = (BEST, "fifo", "h2o", "fd-kvc", "random", "surprisal", "learned", "keydiff")
"""The policies of the figure."""

PLAN_TITLE = "Smallest budgets for agent conversations and service dialogues"


def _title(name: str) -> str:
    return BEST.capitalize() if name == BEST else read_policy(name).title


def _rows(variant: str) -> pd.DataFrame:
    table = shipped_table("agents")
    return table[(table.metric == "call_recall") & (table.variant == variant)]


def _best_first(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values("policy", key=lambda names: names != BEST, kind="stable")


def agents_chart(theme: Theme) -> Spec:
    """Return recall by budget, a line for each policy."""
    rows = _rows("as read")
    drawn = rows[rows.policy.isin(DRAWN)]
    return budgets_chart(
        drawn.assign(policy=drawn.policy.map(_title)),
        TITLE,
        theme,
        policies=tuple(map(_title, DRAWN)),
        intervals=False,  # of so many lines they hide each other; the table has them
    )


def agents_grid() -> Grid:
    """Return recall by policy and budget, and what a pinned system prompt changes."""
    rows, pinned = _best_first(_rows("as read")), _rows("pinned")
    words = figures(rows) + _changes(pinned)
    rows = pd.concat([rows, pinned.assign(budget=f"{pinned.budget.iloc[0]:,}, change if pinned")])
    name = "Recall in %"
    rows[name] = rows.policy.map(_title)
    return pivot(rows, words, [name], label=lambda at: at if isinstance(at, str) else f"{at:,}")


def _changes(rows: pd.DataFrame) -> list[str]:
    return figures(rows, ("mean_diff", "diff_low", "diff_high"), signs=True)


@cache
def plan_grid() -> Grid:
    """Return the smallest budgets that hold so much, of agents and of service dialogues."""
    size = SHAPES[SHAPE.default].entry_bytes
    columns: dict[str, list[str]] = {}
    for variant, dialogs in (("as read", "agents"), ("sgd", "SGD")):
        rows = _rows(variant)
        plan = rows.assign(heads="", recall=rows["mean"], bytes=size * rows.budget, saved=math.nan)
        budgets = budget_columns(
            smallest_budgets(_best_first(plan)), lambda policy, _: _title(policy)
        )
        columns["Smallest budget"] = budgets.pop("policy")
        columns |= {f"{name}, {dialogs}": words for name, words in budgets.items()}
    return Grid.of(columns)


def plan_words() -> str:
    """Return what the smallest budgets are of."""
    rows = _rows("sgd")
    return (
        "The smallest budget measured from which on the mean recall is as high, in entries and in "
        f"bytes of {SHAPES[SHAPE.default].name}; – where there is none. SGD: {rows.n.max()} "
        f"dialogues of the development part with {rows.clusters.max()} sets of services, at "
        f"{rows.budget.min()} to {rows.budget.max()} entries. The page Dialogs makes this "
        "table for a file of your own."
    )


def agents_words() -> str:
    """Return what was measured."""
    rows, general = _rows("as read"), _rows("general")[:1]
    return (
        f"{rows.n.max()} conversations with calls of τ-bench (sierra-research/tau-bench, MIT) "
        f"on {rows.clusters.max()} tasks, lexical embedding (mean over 5 seeds), "
        "calls read as text; 95 % intervals by task. Pinned: the change in points if the system "
        "prompt of 1,229 words is never evicted. With word frequencies of general "
        f"English, surprisal changes by {_changes(general)[0]} points at "
        f"{general.budget.iloc[0]} entries. "
        "Measured by benchmarks/research/agents.py."
    )


def agents_report() -> str:
    """Return the shipped results as a report."""
    drawn, table = drawing(agents_chart(LIGHT), "agents"), agents_grid().html(TITLE)
    parts = [Part(TITLE, f"{drawn}{table}<p>{escape(agents_words())}</p>")]
    scope = [
        "What policies keep of the conversations of agents, whose calls need what was said.",
        f"{RECALL_ONLY} {PROTECT}",
    ]
    return report_html("Cache policies on agent conversations", scope, parts, MEASURED_ON)
