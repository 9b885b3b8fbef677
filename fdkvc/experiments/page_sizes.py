"""What page size costs, against eviction by entries, on dialogues of people.

The numbers are measured by ``benchmarks/research/page_sizes.py`` and stand in
``page_sizes.csv``, since the dialogues are not shipped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FILE = Path(__file__).parent / "page_sizes.csv"

INSIDE = ("fifo", "h2o", "snapkv", "fd-kvc")
"""The policies that evict by pages."""

SIZES = (1, 8, 16, 32)
"""Entries of a page; those of one are entries that leave by themselves."""

BUDGETS = (48, 96)

METRIC = "call_recall"

COLUMNS = (
    *("policy", "budget", "size", "n", "services", "mean", "ci_low", "ci_high"),
    *("mean_diff", "diff_low", "diff_high", "filled"),
)
"""A row for each policy, budget and page size: recall, what it has less than by entries, and the
share of the places that are filled once a cache could be full."""


@cache
def page_sizes() -> pd.DataFrame:
    """Return what was measured, columns `COLUMNS`."""
    return pd.read_csv(FILE)
