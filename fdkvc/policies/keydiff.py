"""KeyDiff: keys that are unlike the others stay."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Columns, Observation, cosine, entry_total
from fdkvc.core.cache import UNIT_SCALE, Cache
from fdkvc.policies.base import EVICTION, Policy, Step


@dataclass(frozen=True)
class KeyDiff(Policy):
    """Keep the keys that point away from the mean direction of all keys in the cache.

    Park et al. 2025, *KeyDiff: Key Similarity-Based KV Cache Eviction for Long-Context LLM
    Inference in Resource-Constrained Environments*: the anchor is the mean of the normalised
    keys, and the score the negative cosine with it. Queries play no part.
    """

    key = "keydiff"
    label = "KeyDiff"
    idea = "Entries whose keys differ most from the average key stay, whatever the query."
    source = "Park et al. 2025, KeyDiff: Key Similarity-Based KV Cache Eviction"
    looks_at = ("keys",)
    ties = UNIT_SCALE
    steps = (
        Step(
            "Key difference",
            r"s_i = -\cos\!\Big(k_i,\; \frac1{|\mathcal C|} \sum_j \frac{k_j}{\lVert k_j \rVert}"
            r"\Big)",
            "over old and new entries",
            writes=("key difference",),
        ),
        EVICTION,
    )

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        # 1. The anchor: the mean of the keys at length 1 (B, h). Empty slots have zero keys.
        k = turn.keys(cache.token)  # (B, C, h)
        length = np.linalg.norm(k, axis=-1, keepdims=True)
        unit = (k / np.where(length > 0, length, 1)).astype(np.float32)
        count = np.maximum(cache.present.sum(axis=1), 1).astype(np.float32)
        anchor = entry_total(unit) / count[:, None]
        # 2. The more a key points along the anchor, the less it adds: the sign is negative.
        return {"key difference": -cosine(k, anchor[:, None])}
