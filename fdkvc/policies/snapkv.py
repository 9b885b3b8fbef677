"""SnapKV: the last queries vote, and votes are pooled over neighbours."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Columns, Floats, Ints, Observation
from fdkvc.core.cache import Cache, newest
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Policy, Step, part, protecting


@dataclass(frozen=True)
class SnapKV(Policy):
    """Keep what the last queries attend to, smoothed over neighbours, and their own tokens.

    Li et al. 2024, *SnapKV: LLM Knows What You are Looking for Before Generation*. The original
    observes once, at the end of a prompt, a window of its last queries; here every turn is a
    prompt, and the window is a share of it (at least one query). Pooling takes the mean
    over a kernel of neighbouring entries, with zeros beyond the ends, as in the original code.
    """

    key = "snapkv"
    label = "SnapKV"
    idea = (
        "The turn's last queries vote with their attention, votes are pooled over neighbours, "
        "and the entries with the most votes stay, together with the turn's last tokens."
    )
    source = "Li et al. 2024, SnapKV: LLM Knows What You are Looking for Before Generation"
    looks_at = ("attention", "positions")
    steps = (
        Step(
            "Pooled attention of the last queries",
            r"\begin{gathered} s_i = \frac1k \sum_{|j - i| \le k / 2} p_j \\ p_j = \frac1w "
            r"\sum_{m > n - w} \operatorname{softmax}\!\left(q_m^\top k_j / \sqrt d\right) "
            r"\end{gathered}",
            "w last queries, kernel k; j runs over the entries before the window",
            writes=("pooled attention",),
        ),
        protecting(r"i > n - w \;\Rightarrow\; \text{keep}", "the window"),
        EVICTION,
    )

    window: float = parameter(
        0.25,
        "Window",
        "Share of the turn's queries that vote, counted from its end; their tokens stay.",
        low=0,
        high=1,
    )
    kernel: int = parameter(
        5,
        "Kernel",
        "Neighbouring entries over which votes are pooled; 1 pools nothing, an even number counts "
        "as the next odd one.",
        low=1,
        high=63,
    )

    def last_queries(self, count: int) -> int:
        # At least one, except in a turn without tokens.
        return max(part(count, self.window).item(), min(count, 1))

    def voters(self, turn: Observation) -> Ints:
        """Return how many of the turn's queries vote (B, 1)."""
        counts = [*map(self.last_queries, turn.query_count.tolist())]
        return np.array(counts, np.intp)[:, None]

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the votes, pooled; 0 for the window itself."""
        w = self.voters(turn)
        votes = turn.attention_of_each(cache.token, w)  # (B, voters, C)
        share = votes.sum(axis=1) / np.maximum(w, 1).astype(np.float32)
        outside = cache.present & ~newest(cache, w)
        return {"pooled attention": self._pooled(np.where(outside, share, 0), outside)}

    def _pooled(self, share: Floats, outside: Bools) -> Floats:
        """Average over the kernel of neighbours, skipping empty slots (B, C)."""
        # 1. Move the entries outside the window to the front: neighbours then have no gaps.
        order = np.argsort(~outside, axis=1, kind="stable")
        dense = np.take_along_axis(share, order, axis=1)
        half = self.kernel // 2
        slots = share.shape[1]
        # 2. Average shifted copies, with zeros beyond the ends.
        padded = np.pad(dense, [(0, 0), (half, half)])
        pooled = np.zeros_like(dense)
        for shift in range(2 * half + 1):
            pooled += padded[:, shift : shift + slots]
        # 3. Back to the slots.
        result = np.zeros_like(share)
        np.put_along_axis(result, order, pooled / np.float32(2 * half + 1), axis=1)
        return np.where(outside, result, 0)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return newest(cache, np.minimum(self.voters(turn), budget))
