"""What policies hold of agent conversations: call-argument recall by policy and budget.

``benchmarks/research/agents.py`` measures ``agents.csv``, with service dialogues of SGD beside
them; neither conversations nor dialogues are shipped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

from fdkvc.experiments.replay import BEST

FILE = Path(__file__).parent / "agents.csv"
MEASURED_ON = "24 November 2026"

POLICIES = (
    *("fifo", "sink", "h2o", "h2o:window=0.75", "h2o:window=0.9", "fd-kvc"),
    *("random", "surprisal", "learned", "snapkv", "tova", "keydiff"),
)

DRAWN = (BEST, "fifo", "h2o", "fd-kvc", "random", "surprisal", "learned", "keydiff")
"""The policies of the figure."""

BUDGETS = (128, 256, 512, 1024, 2048)

SEEDS = (0, 1, 2, 3, 4)
"""Of the lexical vectors and projections, over which a dialog's recall is averaged."""

PROMPT = 1229
"""Words of the system prompt."""

PINNED_BUDGET = 2048
"""The only budget with room for a pinned system prompt."""

METRICS = ("call_recall", "old_call_recall")

AS_READ, PINNED, GENERAL, SGD = "as read", "pinned", "general", "sgd"
"""Variants: as is; with the system prompt pinned; with surprisal from general English; and
dialogues of SGD's development part as they are."""

SGD_BUDGETS = (32, 48, 64, 96, 128, 192, 256)

CHANGE = ("mean_diff", "diff_low", "diff_high")

COLUMNS = (
    *("variant", "policy", "budget", "metric", "n", "clusters", "mean", "ci_low", "ci_high"),
    *CHANGE,
)
"""A row per variant, policy, budget and metric: recall, its paired difference from `AS_READ`."""


@cache
def agent_results() -> pd.DataFrame:
    """Return the measured table, columns `COLUMNS`."""
    return pd.read_csv(FILE)
