"""A measured table that is shipped, because it takes too long for a page."""

from functools import cache
from pathlib import Path

import pandas as pd

AGENTS = Path(__file__).parent / "shipped" / "agents.csv"
"""Recall of agent conversations, measured by benchmarks/research/agents.py.

A row per variant, policy, budget and metric, with the mean and its 95 % interval over clusters.
"""


@cache
def agents_table() -> pd.DataFrame:
    """Return the call-argument recall of agent conversations as read."""
    table = pd.read_csv(AGENTS)
    return table[(table.metric == "call_recall") & (table.variant == "as read")]
