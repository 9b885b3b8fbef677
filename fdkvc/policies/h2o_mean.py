"""Mean attention received: H2O's sum per query."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fdkvc.core.attention import Columns, Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import (
    EVICTION,
    SUMMED_ATTENTION,
    Policy,
    Step,
    changing,
    observed_attention,
    queries_parameter,
    seen_by,
)


@dataclass(frozen=True)
class H2OMean(Policy):
    """Keep the entries with the most attention on average over the queries that could see them.

    *ObservedAttention* of kvpress (Devoto et al. 2025, *Expected Attention: KV Cache Compression
    by Estimating Attention from Future Queries Distribution*): H2O's sum divided by the number of
    queries that saw the entry; no window is protected. Old entries still have an advantage: in the
    first turns few entries shared the attention, and such a mean falls slowly. On Topic Shift no
    new token stays in turns 2 to 7.
    """

    key = "h2o-mean"
    label = "H2O mean"
    idea = (
        "Attention is averaged over the queries that could see an entry, and the highest means "
        "stay. This favours old entries: in early turns fewer entries share the attention."
    )
    source = "Devoto et al. 2025, kvpress, ObservedAttention"
    looks_at = ("attention", "history")
    channels = ("cumulative", "queries")
    steps = (
        SUMMED_ATTENTION,
        changing(
            "Queries that saw it",
            "queries",
            r"n_i \leftarrow n_i + |\{q : q \text{ sees } i\}|",
            "a query sees what came before it",
        ),
        Step(
            "Mean attention",
            r"s_i = c_i / n_i",
            "kvpress, ObservedAttention",
            reads=("cumulative", "queries"),
            writes=("mean attention",),
        ),
        EVICTION,
    )
    quantity_names: ClassVar[Mapping[str, str]] = {"queries": "number of queries"}

    queries: str = queries_parameter()

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        a = observed_attention(turn, cache.token, self.queries).sum(axis=1)
        n = seen_by(turn, cache.token, self.queries).sum(axis=1, dtype=np.float32)
        return cache.with_channels(
            cumulative=cache["cumulative"] + a, queries=cache["queries"] + n
        )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        # At least 1: an empty slot was seen by no query.
        count: Floats = np.maximum(cache["queries"], 1)
        return {"mean attention": cache["cumulative"] / count}
