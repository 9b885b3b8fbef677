"""Ada-heads: the heads of a layer share one budget; higher scores keep more."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.cache import Cache, select, top_k
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import Available, Steps, part
from fdkvc.policies.wrapper import Wrapper, evicting


@dataclass(frozen=True)
class AdaHeads(Wrapper):
    """Give the slots of all heads of a layer to the best entries, whatever their head.

    Feng et al. 2024, *Ada-KV: Optimizing KV Cache Eviction by Adaptive Budget Allocation for
    Efficient LLM Inference*. Together the heads keep as many entries as with equal budgets. Entries
    that the wrapped policy protects stay in each head, and each head is guaranteed a share of its
    budget. With one head there is nothing to share.
    """

    key = "ada-heads"
    label = "Ada heads"
    idea = (
        "The heads of a layer share one budget: the highest scores of all heads stay, so a head "
        "with concentrated attention leaves slots to heads whose attention is spread."
    )
    source = "Feng et al. 2024, Ada-KV"

    # 0.2 is the default of *kvpress*.
    safe: float = parameter(
        0.2,
        "Safe share",
        "Share of an equal budget that each head is guaranteed.",
        symbol=r"\alpha",
        low=0,
        high=1,
    )

    def refusal(self) -> str:
        if self.policy.page_size != 1:
            return f"{self.policy.name} allocates whole pages, but {self.key} single places"
        return ""

    @property
    def steps(self) -> Steps:
        shared = (
            r"B_h = |\{ i \text{ of head } h \text{ among the best } H B \text{ of all heads} \}| "
            r"\ge \alpha B"
        )
        return evicting(self.policy.steps, shared, "H heads share H·B slots")

    def without_effect(self, available: Available) -> tuple[str, ...]:
        sentences = super().without_effect(available)
        if available.heads == 1:
            sentences += ("There is one head here, so ada-heads has nothing to share.",)
        return sentences

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return what one head gets if all others keep only their guaranteed share."""
        equal = self.policy.slots(budget, layers, heads)
        return equal * heads - (heads - 1) * part(equal, self.safe).item()

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Count each head's entries among the best of all heads."""
        equal = self.policy.places(score, cache, protected, budgets, heads)
        if heads == 1:
            return equal
        equal = np.broadcast_to(np.asarray(equal), (len(score), 1))
        # 1. Each head's guaranteed entries: the protected, then its best up to the safe share.
        unprotected = Cache(np.where(protected, -1, cache.token))
        safe_count = part(equal, self.safe) - protected.sum(axis=1, keepdims=True)
        guaranteed = protected | top_k(
            score, unprotected, np.maximum(safe_count, 0), self.ties
        )
        # 2. The rest of the layer's budget goes to the best of all heads, in one row per layer.
        pool = len(score) // heads, heads * score.shape[1]
        safe_entries, _ = select(
            score.reshape(pool),
            Cache(cache.token.reshape(pool)),
            guaranteed.reshape(pool),
            equal.reshape(-1, heads).sum(axis=1, keepdims=True),
            self.ties,
        )
        # 3. How many of these each head has.
        return np.asarray(safe_entries.reshape(score.shape).sum(axis=1, keepdims=True))
