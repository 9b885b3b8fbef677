"""What page size costs against eviction by entries, on real dialogs.

``benchmarks/research/page_sizes.py`` measures ``page_sizes.csv``; the dialogs are not shipped.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pandas as pd

FILE = Path(__file__).parent / "page_sizes.csv"

INSIDE = ("fifo", "h2o", "snapkv", "fd-kvc")
"""The policies that evict by pages."""

SIZES = (1, 8, 16, 32)
"""Entries of a page; 1 is eviction by entries."""

BUDGETS = (48, 96)

METRIC = "call_recall"

COLUMNS = (
    *("policy", "budget", "size", "n", "services", "mean", "ci_low", "ci_high"),
    *("mean_diff", "diff_low", "diff_high", "filled"),
)
"""A row per policy, budget and page size: recall, its difference from eviction by entries, and the
share of slots filled once a cache could be full."""


@cache
def page_sizes() -> pd.DataFrame:
    """Return the measured table, columns `COLUMNS`."""
    return pd.read_csv(FILE)
