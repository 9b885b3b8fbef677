"""H2O: heavy hitters of accumulated attention, and a window of the newest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from fdkvc.attention import Bools, Floats, Observation
from fdkvc.cache import Cache
from fdkvc.policies.base import (
    EVICTION,
    RECENT_WINDOW,
    SUMMED_ATTENTION,
    Policy,
    observed_attention,
    queries_parameter,
    window,
    window_parameter,
)


@dataclass(frozen=True)
class H2O(Policy):
    """Keep the heavy hitters of accumulated attention, and half the budget for the newest.

    Zhang et al. 2023, *H2O: Heavy-Hitter Oracle for Efficient Generative Inference of Large
    Language Models*, as the FD-KVC paper uses it (Section 4.2): attention of the turn's mean
    query, half of the budget for recent tokens. An evicted entry's sum is gone.
    """

    key = "h2o"
    label = "H2O"
    idea = (
        "Each entry adds up the attention it gets; half of the budget goes to the largest sums, "
        "the heavy hitters, and half to the newest entries."
    )
    source = "Zhang et al. 2023, H2O: Heavy-Hitter Oracle for Efficient Generative Inference"
    looks_at = ("attention", "history", "positions")
    channels = ("cumulative",)
    steps = (
        SUMMED_ATTENTION,
        RECENT_WINDOW,
        EVICTION,
    )
    quantity_names = MappingProxyType({"cumulative": "cumulative attention"})

    window: float = window_parameter(0.5)
    queries: str = queries_parameter()

    def absorb(self, cache: Cache, turn: Observation) -> Cache:
        """Add this turn's attention over everything in the cache, the new tokens included."""
        a = observed_attention(turn, cache.token, self.queries).sum(axis=1)
        return cache.with_channels(cumulative=cache["cumulative"] + a)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return the accumulated attention."""
        return {"cumulative": cache["cumulative"]}

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect the newest entries."""
        return window(cache, budget, self.window)
