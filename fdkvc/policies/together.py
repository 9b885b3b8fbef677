"""Heads that decide once for all: by the mean or the greatest of what each would."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache
from fdkvc.parameters import Field, check_count
from fdkvc.policies.base import Policy, Score, Update
from fdkvc.policies.wrapper import Wrapper

POOL = Field(
    "Pooled",
    "How the scores of query heads that decide together become one.",
    name="pool",
    default="mean",
    choices={"mean": "their mean", "max": "the greatest of them"},
)


@dataclass(frozen=True)
class Together(Wrapper):
    """Make the heads of a dialog keep the same tokens.

    Each head remembers what it would remember alone. What an entry is worth is the mean of what
    it is worth to the heads, term by term, wherever the policy asks for it: at eviction, at its
    threshold, in its learning rate. What all heads protect is protected, and what most of them
    recall comes back.

    Raises
    ------
    ValueError
        For fewer than one head, or another way to pool.
    """

    key = "together"
    label = "Heads together"
    idea = "The heads of a dialog keep the same tokens, by the mean of their scores."
    source = "this project"

    heads: int
    """Rows of a batch, one after the other, that are the heads of one dialog."""
    pool: str = POOL.default
    """``mean`` or ``max``: whether the greatest counts instead of the mean."""

    def __post_init__(self) -> None:
        Policy.__post_init__(self)  # it goes around any, also around one that evicts nothing
        check_count("heads", self.heads)
        POOL.check(self.pool, "pool")

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return each term as the heads have it together."""
        parts = [self.policy.terms(cache.rows(rows), part) for rows, part in turn.parts()]
        terms = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
        return {name: self._pooled(term, self.pool) for name, term in terms.items()}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Update channels and state of each head."""
        parts = [self.policy.after_insert(cache.rows(rows), part) for rows, part in turn.parts()]
        channels = {name: np.concatenate([each[name] for each in parts]) for name in cache.channels}
        state = {name: np.concatenate([each.state[name] for each in parts]) for name in cache.state}
        return cache.with_channels(**channels).with_state(**state)

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Let the threshold evict what it evicts in all heads."""
        update = self.policy.update(cache, turn, score)
        stale = update.stale
        return dataclasses.replace(update, stale=None if stale is None else self._share(stale) == 1)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect what all heads protect."""
        protected: Bools = self._share(self.policy.protects(cache, turn, budget)) == 1
        return protected

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Bring back what most heads bring back."""
        parts = (
            self.policy.recalls(cache.rows(rows), tier[rows], part) for rows, part in turn.parts()
        )
        recalled: Bools = self._share(np.concatenate([*parts])) > 0.5
        return recalled

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return as many as those who decide apart may have."""
        return self.policy.slots(budget, layers, heads // self.heads)

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Share out among those that decide together, of whom one speaks for all."""
        one = slice(None, None, self.heads)
        own = budgets if isinstance(budgets, int) else budgets[one]
        cached = Cache(cache.token[one])
        found = self.policy.places(score[one], cached, protected[one], own, heads // self.heads)
        return found if isinstance(found, int) else np.repeat(found, self.heads, axis=0)

    def _share(self, marked: Bools) -> Floats:
        """Share of the heads that mark each entry."""
        return self._pooled(marked.astype(np.float32), "mean")

    def _pooled(self, x: Floats, pool: str) -> Floats:
        """Mean or max over each dialog's heads, for each of them (B, C)."""
        by_dialog = x.reshape(-1, self.heads, x.shape[-1])
        pooled = by_dialog.mean(axis=1) if pool == "mean" else by_dialog.max(axis=1)
        return np.repeat(pooled, self.heads, axis=0)
