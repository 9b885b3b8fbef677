"""What policies cost SmolLM2: a measured table that is shipped, and what it says."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from fdkvc.engine.metrics import METRICS
from fdkvc.policies import read_policy

SHIPPED = Path(__file__).parent / "shipped" / "judged.csv"
"""Measured by benchmarks/research/judged.py.

A row per data, policy, budget and metric, with the mean, the paired difference from `COMPARED`, and
their 95 % intervals over clusters.
"""

METRICS_SHOWN = ("kl", "values_right_of_full")
FIRST, ENTRIES = "SGD", 128
"""The data and the budget of the figure."""

COMPARED = "sinks(h2o)"
"""The policy with attention that others are compared with."""

LAST = "SGD, 30 further dialogs"
"""The data on which weighted recency, found on 24 training dialogs, was measured once."""

SHARE = "% of the text"
"""In the name of data whose budgets are percents of each conversation's tokens."""

OTHERS, UNREINFORCED = "SGD, 20 others", "fd-kvc alpha_0=0.0"
"""The data on which FD-KVC without reinforcement by relevance, found on 12 training dialogs, was
measured once."""


def part_title(data: str, budget: int) -> str:
    """Return the name of data with a budget.

    Examples
    --------
    >>> part_title("SGD", 1024)
    'SGD: 1,024'
    >>> part_title("SGD, % of the text", 10)
    'SGD, 10 % of the text'
    """
    return data.replace(SHARE, f"{budget} {SHARE}") if SHARE in data else f"{data}: {budget:,}"


@cache
def judged_table() -> pd.DataFrame:
    """Return the means of `METRICS_SHOWN`, the policies of each part in the order of their KL."""
    table = pd.read_csv(SHIPPED)
    table = table[table.metric.isin(METRICS_SHOWN) & (table.policy != "full")]
    parts = []
    for _, part in table.groupby(["data", "budget"], sort=False):
        lost = part[part.metric == "kl"].set_index("policy")["mean"]
        order = lost.reindex(part.policy).to_numpy().argsort(kind="stable")
        parts.append(part.iloc[order])
    return pd.concat(parts)


def first_rows() -> pd.DataFrame:
    """Return the KL of each policy on the first data."""
    return judged_table().query("data == @FIRST and budget == @ENTRIES and metric == 'kl'")


def judged_sentence() -> str:
    """Say which policy without attention is best, how it compares, and how sure that is."""
    rows = first_rows()
    attends = np.array(["attention" in read_policy(name).looks_at for name in rows.policy])
    best, other = rows[~attends].iloc[0], rows[rows.policy == COMPARED].iloc[0]
    nearest = rows[attends].iloc[0]
    once = judged_table().query("data == @LAST and metric == 'kl' and policy == @best.policy")
    kl = METRICS["kl"]
    titles = (read_policy(row.policy).title for row in (best, other, nearest))
    title, with_attention, nearest_title = titles
    return (
        f"Of attention-free policies, {title} changes SmolLM2's predictions least: "
        f"{kl.figure(best['mean'])} nats per token, where {with_attention} changes them by "
        f"{kl.figure(other['mean'])} ({FIRST}, {best.budget} entries per head). The paired "
        f"difference is {_difference(best)}, and {_difference(once.iloc[0])} on "
        f"{once.n.iloc[0]} dialogs not used for tuning. Of policies with attention, "
        f"{nearest_title} changes them least, by {kl.figure(nearest['mean'])}. {_of_fd_kvc()}"
    )


def _difference(row: pd.Series) -> str:
    """Return a row's difference from `COMPARED`, and whether it is one."""
    change = METRICS["kl"].figure(row.difference, row.diff_low, row.diff_high, signs=True)
    sure = row.diff_high < 0 or row.diff_low > 0
    return change if sure else f"{change}, which is not distinguishable from 0"


def _of_fd_kvc() -> str:
    rows = judged_table().query("data == @OTHERS and metric == 'kl'").set_index("policy")["mean"]
    published, without = (METRICS["kl"].figure(rows[name]) for name in ("fd-kvc", UNREINFORCED))
    return (
        "FD-KVC loses most through its relevance reinforcement: on other SGD dialogs its KL is "
        f"{published} nats per token, and {without} with α₀ = 0."
    )
