"""Scissorhands: entries whose attention was often low are evicted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import EXACT, Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    Step,
    WindowedPolicy,
    observed_attention,
    queries_parameter,
    seen_by,
    window_parameter,
)

ROUNDING = 1e-5
"""Tolerance for rounding, in even shares: attention this close to the threshold is not low."""


@dataclass(frozen=True)
class Scissorhands(WindowedPolicy):
    """Evict what was most often below the threshold within the last queries.

    Liu et al. 2023, *Scissorhands: Exploiting the Persistence of Importance Hypothesis for LLM KV
    Cache Compression at Test Time*, Algorithm 2: within a history window of queries, count how
    often an entry's attention was low, that is below the even share 1/t of the t entries that the
    query saw; drop the highest counts, never the most recent tokens. Low scores are counted, as
    in the original, so entries that fewer queries have seen are at no disadvantage. The original
    drops half of the cache at once; here the entries over the budget are dropped after each turn.
    """

    key = "scissorhands"
    label = "Scissorhands"
    idea = (
        "For each entry, count how many of the last queries gave it less than an even share of "
        "attention; the highest counts are evicted, except among the newest entries."
    )
    source = "Liu et al. 2023, Scissorhands, Algorithm 2"
    looks_at = ("attention", "history", "positions")
    channels = ("low",)
    ties = EXACT
    steps = (
        Step(
            "Importance record",
            r"\begin{gathered} I_i = \sum_{q \text{ of the last } w} "
            r"\mathbb 1\!\left[a_{q,i} < \theta / t_q\right] \\ s_i = -I_i \end{gathered}",
            "Algorithm 2; t is the number of entries that the query sees",
            writes=("negative low count",),
        ),
        RECENT_WINDOW,
        EVICTION,
    )
    quantity_names: ClassVar[Mapping[str, str]] = {"low": "low attention, one bit per query"}

    history: int = parameter(
        8,
        "History window",
        "Number of recent queries that count; a turn has one mean query, or one for each token.",
        symbol="w",
        low=1,
        high=24,
    )
    threshold: float = parameter(
        1.0,
        "Low attention",
        "Attention below this multiple of an even share counts as low.",
        symbol=r"\theta",
        low=0,
        high=10,
        by_row=True,
    )
    window: float = window_parameter(0.1)
    queries: str = queries_parameter()

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Record for each query whether an entry's attention was low."""
        a = observed_attention(turn, cache.token, self.queries)
        observed = seen_by(turn, cache.token, self.queries)
        # In even shares: 1 is 1/t of the attention of a query that sees t entries (B, m, C).
        shares = a * observed.sum(axis=2, keepdims=True).astype(np.float32)
        low = observed & (shares < self.threshold - ROUNDING)
        is_query: Any = observed.any(axis=2)  # false for padding
        # A bit for each of the last queries, the newest lowest: 1 if attention was low. At most 24
        # bits, a whole number that float32 still holds exactly.
        bits = cache["low"].astype(np.int64)
        for m in range(a.shape[1]):
            moved = (2 * bits + low[:, m]) % 2**self.history
            bits = np.where(is_query[:, m][:, None], moved, bits)
        return cache.with_channels(low=bits.astype(np.float32))

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        low = np.bitwise_count(cache["low"].astype(np.int64))
        return {"negative low count": -low.astype(np.float32)}
