"""What a plan that is older than its run asks of SmolLM2, and what came out: two shipped tables.

The plan is benchmarks/research/plan.toml; benchmarks/research/planned.py follows it.
"""

import math
from pathlib import Path

import pandas as pd

from fdkvc.core.statistics import CONFIDENCE, p_words
from fdkvc.engine.metrics import METRICS
from fdkvc.runs.grid import Grid

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


HEADS = (
    "question",
    "ways",
    "sample: conversations in clusters",
    "KL, nats",
    "the first is",
    "values right, points",
)
"""Headings of the comparisons."""

DECIDED = {"head": "each head", "model": "the whole model"}


def planned_ways() -> pd.DataFrame:
    """Return how every way of the plan did."""
    return pd.read_csv(WAYS_FILE)


def planned_comparisons() -> pd.DataFrame:
    """Return what each comparison of the plan says."""
    return pd.read_csv(COMPARISONS_FILE).astype({"more_clusters": "Int64"})


def comparison_name(more: str, less: str) -> str:
    """Return the ways of a comparison, and who decides.

    Examples
    --------
    >>> comparison_name("head: sinks(h2o)", "head: sinks(random)")
    'sinks(h2o) − sinks(random), each head'
    >>> comparison_name("model: sinks(random) + head: sink", "head: sinks(random) + model: sink")
    'sinks(random) − sink, the whole model − each head'
    """
    (who, way), *rest = (cell.split(": ") for cell in more.split(" + "))
    (other_who, other), *_ = (cell.split(": ") for cell in less.split(" + "))
    if not rest:
        return f"{way} − {other}, {DECIDED[who]}"
    (_, other), *_ = rest
    return f"{way} − {other}, {DECIDED[who]} − {DECIDED[other_who]}"


def planned_grid() -> Grid:
    """Return the comparisons of the plan: the difference in KL, what it is, and that in values."""
    table = planned_comparisons()
    tested, beside = (table[table.metric == metric] for metric in ("kl", "values_right_of_full"))
    rows = [
        (
            row.asks,
            comparison_name(row.more, row.less),
            f"{row['sample']}, {row.n} in {row.services}",
            _difference(row),
            _verdict(row),
            _difference(values),
        )
        for (_, row), (_, values) in zip(tested.iterrows(), beside.iterrows(), strict=True)
    ]
    return Grid(HEADS, rows)


def _difference(row: pd.Series) -> str:
    if math.isnan(row.mean_diff):
        return "–"
    return METRICS[row.metric].figure(row.mean_diff, row.ci_low, row.ci_high, signs=True)


def _verdict(row: pd.Series) -> str:
    """Return a verdict, corrected for all comparisons, or what would settle it."""
    if row.verdict == "open" and pd.notna(row.more_clusters):
        return f"open: {row.more_clusters:,} clusters more would settle it"
    if row.verdict in ("better", "worse"):
        corrected = row.verdict if row.p_holm < 1 - CONFIDENCE else "open after correction"
        return f"{corrected}, {p_words(row.p_holm)}"
    return str(row.verdict)
