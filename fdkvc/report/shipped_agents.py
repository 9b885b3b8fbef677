"""Shipped results on agent conversations: a chart, a table, and both as a report."""

from html import escape

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import LIGHT, Spec, Theme
from fdkvc.experiments.shipped_tables import agents_table
from fdkvc.grid import Grid, figures, pivot
from fdkvc.policies import read_policy
from fdkvc.report.document import Part, drawing, report_html
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.words import BEST

TITLE = "Call-argument recall of agent conversations"
MEASURED_ON = "24 November 2026"
DRAWN = (BEST, "fifo", "h2o", "fd-kvc", "random", "surprisal", "learned", "keydiff")
"""The policies of the figure."""


def _title(name: str) -> str:
    return BEST.capitalize() if name == BEST else read_policy(name).title


def agents_chart(theme: Theme) -> Spec:
    """Return recall by budget, a line for each policy."""
    rows = agents_table()
    rows = rows[rows.policy.isin(DRAWN)]
    return budgets_chart(
        rows.assign(policy=rows.policy.map(_title)),
        TITLE,
        theme,
        policies=tuple(map(_title, DRAWN)),
        intervals=False,  # of so many lines they hide each other; the table has them
    )


def agents_grid() -> Grid:
    """Return recall by policy and budget."""
    rows = agents_table().sort_values("policy", key=lambda name: name != BEST, kind="stable")
    name = "Recall in %"
    rows = rows.assign(**{name: rows.policy.map(_title)})
    return pivot(rows, figures(rows), [name], label="{:,}".format)


def agents_words() -> str:
    """Return what was measured."""
    rows = agents_table()
    return (
        f"{rows.n.max()} conversations with calls of τ-bench (sierra-research/tau-bench, MIT) "
        f"on {rows.clusters.max()} tasks, lexical embedding (mean over 5 seeds), calls read as "
        "text; 95 % intervals by task. Measured by benchmarks/research/agents.py."
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
