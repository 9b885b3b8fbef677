"""Measured tables that are shipped, because they take too long for a page.

Each of `TABLES` is a CSV in the folder ``shipped``. The dialogs that were measured are not shipped.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "shipped"

_MEAN = {"mean": float, "ci_low": float, "ci_high": float}
_CHANGE = {"mean_diff": float, "diff_low": float, "diff_high": float}


TABLES: Mapping[str, Mapping[str, type]] = {
    # Cost and quality of every policy on each of `AXES`, and its rank, 1 for the best. Measured by
    # benchmarks/research/policy_map.py.
    "policy_map": {"policy": str, "axis": str, "n": int, **_MEAN}
    | dict.fromkeys(("rank", "rank_low", "rank_high"), int),
    # Call-argument recall on real dialogs, its paired difference from eviction by entries, and the
    # share of slots filled once a cache could be full; by benchmarks/research/page_sizes.py.
    "page_sizes": {"policy": str, "budget": int, "size": int, "n": int, "services": int, **_MEAN}
    | {**_CHANGE, "filled": float},
    # Recall of agent conversations as read (variant "as read"), with the system prompt "pinned",
    # with surprisal of "general" English, and of service dialogues ("sgd"); the paired difference
    # is from "as read". By benchmarks/research/agents.py.
    "agents": {"variant": str, "policy": str, "budget": int, "metric": str}
    | {"n": int, "clusters": int, **_MEAN, **_CHANGE},
    # What a trial model that reads its tools writes if they may be evicted, and if they are pinned.
    "pinned_tools": {"policy": str, "budget": int, "metric": str}
    | {"n": int, "services": int, "count": int, **_MEAN},
}
"""The columns of each table; intervals are 95 % over clusters."""


@cache
def shipped_table(name: str) -> pd.DataFrame:
    """Return one of `TABLES`, read once."""
    return pd.read_csv(FOLDER / f"{name}.csv", dtype={**TABLES[name]})


@dataclass(frozen=True)
class Axis:
    """An axis of ``policy_map``."""

    label: str
    data: str
    lower_is_better: bool = False


DRAWN = "the benchmark's scenarios, budget 56"
REAL = "real dialogs, lexical embedding, budget 48"
ANSWERED = "the bundled model's answers, 48 entries per head"

AXES: Mapping[str, Axis] = {
    "memory": Axis("Memory, share of the dialog", DRAWN, lower_is_better=True),
    "reads": Axis("Reads, share of the dialog", DRAWN, lower_is_better=True),
    "time": Axis("Time of a turn, multiple of FIFO's", DRAWN, lower_is_better=True),
    "late_retention": Axis("Late retention", DRAWN),
    "late_diversity": Axis("Late diversity", DRAWN),
    "late_attention_loss": Axis("Attention loss", DRAWN, lower_is_better=True),
    "call_recall": Axis("Call-argument recall", REAL),
    "old_call_recall": Axis("Old call-argument recall", REAL),
    "calls_exact_of_full": Axis("Calls exact, of those exact with the full cache", ANSWERED),
    "nats": Axis("Nats per token", ANSWERED, lower_is_better=True),
}
"""By metric."""
