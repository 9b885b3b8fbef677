"""H2O: heavy hitters of accumulated attention, and a window of the newest."""

from collections.abc import Mapping
from dataclasses import dataclass

from fdkvc.core.attention import Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    SUMMED_ATTENTION,
    WindowedPolicy,
    observed_attention,
    queries_parameter,
)


@dataclass(frozen=True)
class H2O(WindowedPolicy):
    """Keep the heavy hitters of accumulated attention, and half the budget for the newest.

    Zhang et al. 2023, *H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
    Language Models*, as the FD-KVC paper uses it (Section 4.2): attention of the turn's mean
    query, half of the budget for recent tokens. The sum of an evicted entry is lost.
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
    steps = (SUMMED_ATTENTION, RECENT_WINDOW, EVICTION)

    queries: str = queries_parameter()

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Add this turn's attention over everything in the cache, the new tokens included."""
        a = observed_attention(turn, cache.token, self.queries).sum(axis=1)
        return cache.with_channels(cumulative=cache["cumulative"] + a)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        return {"cumulative": cache["cumulative"]}
