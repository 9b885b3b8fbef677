"""A measured table that is shipped, because it takes too long for a page."""

from functools import cache
from pathlib import Path

import pandas as pd

AGENTS = Path(__file__).parent / "shipped" / "agents.csv"
"""Recall of agent conversations, measured by benchmarks/research/agents.py.

A row per variant, policy, budget and metric, with the mean and its 95 % interval over clusters.
"""

JUDGED = Path(__file__).parent / "shipped" / "judged.csv"
"""What policies cost SmolLM2, measured by benchmarks/research/judged.py.

A row per data, policy, budget and metric, with the mean and the paired difference from
``sinks(surprisal)``, and their 95 % intervals over clusters.
"""


@cache
def agents_table() -> pd.DataFrame:
    """Return the call-argument recall of agent conversations as read."""
    table = pd.read_csv(AGENTS)
    return table[(table.metric == "call_recall") & (table.variant == "as read")]
