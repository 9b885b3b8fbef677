"""What a plan that is older than its run asks of SmolLM2, and what came out: two shipped tables.

The plan is benchmarks/research/plan.toml; benchmarks/research/planned.py follows it.
"""

from pathlib import Path

import pandas as pd

_FOLDER = Path(__file__).parent / "shipped"
WAYS_FILE = _FOLDER / "planned_ways.csv"
"""How every way did: a row per sample, who decides, way, metric and budget."""
COMPARISONS_FILE = _FOLDER / "planned_comparisons.csv"
"""What each comparison says: a row for the measure that is tested, and one for the values right."""

WAYS = (
    *("sample", "decides", "policy", "metric", "budget", "planned"),
    *("n", "services", "count", "mean", "ci_low", "ci_high"),
)
"""Columns of the first table; `planned` conversations were to be read, and n were."""
COMPARISONS = (
    *("asks", "sample", "more", "less", "metric", "n", "services", "count"),
    *("mean_diff", "ci_low", "ci_high", "p", "p_holm", "verdict", "more_clusters"),
)
"""Columns of the second; the difference is the ways `more` together minus the ways `less`."""


def planned_ways() -> pd.DataFrame:
    """Return how every way of the plan did."""
    return pd.read_csv(WAYS_FILE)


def planned_comparisons() -> pd.DataFrame:
    """Return what each comparison of the plan says."""
    return pd.read_csv(COMPARISONS_FILE).astype({"more_clusters": "Int64"})
