"""Turns: each turn is compressed once, when it ends."""

import dataclasses
from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Columns, Observation
from fdkvc.core.cache import EXACT, Cache, contains, top_k
from fdkvc.core.parameters import parameter
from fdkvc.policies.base import EVICTION, Score, Step, Steps, Update, part, total
from fdkvc.policies.wrapper import Wrapper


@dataclass(frozen=True)
class Turns(Wrapper):
    """Score a turn's tokens when it ends, and never again.

    After Liu et al. 2025, *FlowKV: Enhancing Multi-Turn Conversational Coherence in LLMs via
    Isolated Key-Value Cache Management*, which never compresses older turns again. Its
    cache grows with the turns; here the budget limits it: tokens that were not picked are evicted
    first, then those picked longest ago.
    """

    key = "turns"
    label = "Turn by turn"
    idea = (
        "When a turn ends, the wrapped policy picks a share of that turn's tokens, once. Tokens "
        "that were not picked are evicted first, then those picked longest ago."
    )
    source = "after Liu et al. 2025, FlowKV"
    also_looks_at = ("positions", "history")
    ties = EXACT

    picks: float = parameter(
        0.25, "Picked", "Share of a turn's tokens to pick.", symbol="p", low=0, high=1
    )

    @property
    def steps(self) -> Steps:
        """Replace the score of the wrapped policy by what it picked."""
        return (
            *(step for step in self.policy.steps if step.kind not in ("value", "evict")),
            Step(
                "Compression of the turn",
                r"\begin{gathered} S_t = \text{the best } \lceil p\, n_t \rceil \text{ of the "
                r"turn's } n_t \\ z_i = \mathbb 1[i \in S_{t_i}], \quad s_i = i - (1 - z_i)\, N_t "
                r"\end{gathered}",
                "once, when the turn ends, by the score of the wrapped policy; N tokens so far",
                writes=("position", "passed over"),
            ),
            EVICTION,
        )

    def quantity_name(self, quantity: str) -> str:
        return (
            "deduction" if quantity == "passed over" else self.policy.quantity_name(quantity)
        )

    @property
    def channels(self) -> tuple[str, ...]:
        return (*self.policy.channels, "picked")

    def init_channels(self, turn: Observation) -> Columns:
        return {
            **self.policy.init_channels(turn),
            "picked": np.zeros_like(turn.new, np.float32),
        }

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Pick the best of the turn's own tokens."""
        updated = self.policy.after_insert(cache, turn)
        new = contains(updated.token, turn.new)
        new_count = new.sum(axis=1, keepdims=True)
        count = -part(-new_count, self.picks)  # rounded up
        # The wrapped policy's score; this wrapper's own is a position.
        score = total(self.policy.terms(updated, turn))
        candidates = Cache(np.where(new, updated.token, -1))
        picked = top_k(score, candidates, count, self.policy.ties)
        return updated.with_channels(picked=np.where(new, picked, updated["picked"]))

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Update the wrapped policy by its own scores, without its threshold."""
        policy = self.policy
        update = policy.update(cache, turn, lambda entries: total(policy.terms(entries, turn)))
        return dataclasses.replace(update, stale=None)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the position, minus the number of positions so far for a token not picked."""
        # In double precision, as in `Fifo`.
        position = turn.position(cache.token).astype(np.float64)
        so_far = position.max(axis=1, keepdims=True) + 1
        # Picked tokens have positions from 0, all others the same shifted below 0.
        return {"position": position, "passed over": so_far * (cache["picked"] - 1)}
