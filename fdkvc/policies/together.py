"""Heads that decide once for all: by the mean of what each would."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache
from fdkvc.parameters import check_count
from fdkvc.policies.base import Update, Worth
from fdkvc.policies.wrapper import Wrapper


@dataclass(frozen=True)
class Together(Wrapper):
    """Make the heads of a dialog keep the same tokens.

    Each head remembers what it would remember alone. What an entry is worth is the mean of what
    it is worth to the heads, term by term, wherever the policy asks for it: at eviction, at its
    threshold, in its learning rate. What all heads protect is protected, and what most of them
    recall comes back.

    Attributes
    ----------
    heads : int
        Rows of a batch, one after the other, that are the heads of one dialog.

    Raises
    ------
    ValueError
        For fewer than one head.
    """

    key = "together"
    label = "Heads together"
    idea = "The heads of a dialog keep the same tokens, by the mean of their scores."
    source = "this project"

    heads: int

    def __post_init__(self) -> None:
        """Check the number of heads."""
        super().__post_init__()
        check_count("heads", self.heads)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return the mean of each term over the heads."""
        terms = self.policy.terms(cache, turn)
        return {name: self._mean(term) for name, term in terms.items()}

    def update(self, cache: Cache, turn: Observation, worth: Worth) -> Update:
        """Let the threshold evict what it evicts in all heads."""
        update = self.policy.update(cache, turn, worth)
        stale = update.stale
        return dataclasses.replace(update, stale=None if stale is None else self._share(stale) == 1)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Protect what all heads protect."""
        return np.asarray(self._share(self.policy.protects(cache, turn, budget)) == 1)

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Bring back what most heads bring back."""
        return np.asarray(self._share(self.policy.recalls(cache, tier, turn)) > 0.5)

    def _share(self, marked: Bools) -> Floats:
        """Share of the heads that mark each entry."""
        return self._mean(marked.astype(np.float32))

    def _mean(self, x: Floats) -> Floats:
        """Mean over each dialog's heads, for each of them (B, C)."""
        grouped = x.reshape(-1, self.heads, x.shape[-1]).mean(axis=1, keepdims=True)
        return np.broadcast_to(grouped, (len(grouped), self.heads, x.shape[-1])).reshape(x.shape)
