"""Heads that decide together, by the mean of their scores."""

from dataclasses import dataclass

import numpy as np

from fdkvc.core.attention import Bools, Columns, Floats, Ints, Observation
from fdkvc.core.cache import Cache, joined
from fdkvc.core.parameters import check_count
from fdkvc.policies.base import Policy
from fdkvc.policies.wrapper import Wrapper


@dataclass(frozen=True)
class Together(Wrapper):
    """Make the heads of a dialog keep the same tokens.

    Channels stay those of each head. The terms of a score are the means over the heads wherever the
    policy uses them: at eviction, at its threshold, in its learning rate. An entry is protected if
    all heads protect it. Raises a ValueError for fewer than one head.
    """

    key = "together"
    label = "Heads together"
    idea = "The heads of a dialog keep the same tokens, by the mean of their scores."
    source = "this project"

    heads: int
    """Number of consecutive rows of a batch that are the heads of one dialog."""

    def __post_init__(self) -> None:
        # Not `Wrapper`'s checks: it may wrap any policy, even one that evicts nothing.
        Policy.__post_init__(self)
        check_count("heads", self.heads)

    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the mean of each term over the heads."""
        parts = []
        for rows, part in turn.parts():
            parts.append(self.policy.terms(cache.rows(rows), part))
        means = {}
        for name, term in joined(parts).items():
            means[name] = self._mean(term)
        return means

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Update channels and state of each head."""
        channels = []
        states = []
        for rows, part in turn.parts():
            updated = self.policy.after_insert(cache.rows(rows), part)
            channels.append(updated.channels)
            states.append(updated.state)
        return cache.with_channels(**joined(channels)).with_state(**joined(states))

    def threshold_evicts(self, stale: Bools, cache: Cache, turn: Observation) -> Bools:
        """Evict only what the threshold evicts in every head."""
        return self._in_all(stale)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect what all heads protect."""
        return self._in_all(self.policy.protects(cache, turn, budget))

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return what heads that decide separately may hold."""
        return self.policy.slots(budget, layers, heads // self.heads)

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Return the places of one head of each group that decides together, for all of them."""
        # Heads that decide together have the same score, so the first stands for its group.
        first = slice(None, None, self.heads)
        budgets = budgets if isinstance(budgets, int) else budgets[first]
        entries = Cache(cache.token[first])
        groups = heads // self.heads
        places = self.policy.places(score[first], entries, protected[first], budgets, groups)
        if isinstance(places, int):
            return places
        return np.repeat(places, self.heads, axis=0)

    def _in_all(self, marked: Bools) -> Bools:
        """Mark the entries that all heads mark."""
        # Exact: the sum of ones is their number, whose quotient by itself is 1.
        return np.asarray(self._mean(marked.astype(np.float32)) == 1)

    def _mean(self, x: Floats) -> Floats:
        """Mean over each dialog's heads, for each of them (B, C)."""
        by_dialog = x.reshape(-1, self.heads, x.shape[-1])
        return np.repeat(by_dialog.mean(axis=1), self.heads, axis=0)
