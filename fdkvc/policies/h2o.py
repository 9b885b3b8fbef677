"""H2O: heavy hitters of accumulated attention, and a window of the newest."""

from dataclasses import dataclass, replace

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    SUMMED_ATTENTION,
    Steps,
    WindowedPolicy,
    observed_attention,
    queries_parameter,
)

FADING_ATTENTION = replace(
    SUMMED_ATTENTION,
    name="Cumulative attention with forgetting",
    equation=r"\begin{gathered} c_i \leftarrow \lambda\, c_i + \operatorname{softmax}"
    r"(q^\top k_i / \sqrt d) \\ q = \bar q_t \text{ or each query in turn} \end{gathered}",
)


@dataclass(frozen=True)
class H2O(WindowedPolicy):
    """Keep the heavy hitters of accumulated attention, and half the budget for the newest.

    Zhang et al. 2023, *H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
    Language Models*, as the FD-KVC paper uses it (Section 4.2): attention of the turn's mean
    query, half of the budget for recent tokens. The sum of an evicted entry is lost.

    With a forgetting factor below 1 it is Jo and Shin 2024, *A2SF: Accumulative Attention Scoring
    with Forgetting Factor for Token Pruning in Transformer Decoder*: every query multiplies the
    sums by the factor before it adds its attention. The original searches the factor per model.
    """

    key = "h2o"
    label = "H2O"
    idea = (
        "Each entry accumulates the attention it receives. Half of the budget goes to the "
        "largest sums, the heavy hitters, and half to the newest entries."
    )
    source = "Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference"
    looks_at = ("attention", "history", "positions")
    channels = ("cumulative",)

    queries: str = queries_parameter()
    forgetting: float = parameter(
        1.0,
        "Forgetting factor",
        "Share of its sum that an entry keeps from query to query; 1 turns forgetting off.",
        symbol=r"\lambda",
        low=0,
        high=1,
    )

    @property
    def steps(self) -> Steps:
        sums = SUMMED_ATTENTION if self.forgetting == 1 else FADING_ATTENTION
        return sums, RECENT_WINDOW, EVICTION

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Add this turn's attention over everything in the cache, the new tokens included."""
        c = cache["cumulative"]
        a = observed_attention(turn, cache.token, self.queries)
        if self.forgetting == 1:  # H2O itself: the order of queries does not matter
            return cache.with_channels(cumulative=c + a.sum(axis=1))
        # Query by query: each multiplies the sums by λ, then adds its attention; padding does not.
        count = turn.query_count if self.queries == "each" else np.ones(len(c), np.intp)
        for m in range(a.shape[1]):
            attended = self.forgetting * c + a[:, m]
            c = np.where((m < count)[:, None], attended, c)
        return cache.with_channels(cumulative=c)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        return {"cumulative": cache["cumulative"]}
