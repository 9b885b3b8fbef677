"""Heads that decide once for all: by the mean of their scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache
from fdkvc.parameters import check_count
from fdkvc.policies import Policy
from fdkvc.policies.base import Update


def together(policy: Policy, heads: int) -> Policy:
    """Return a policy under which the heads of a dialog keep the same tokens.

    Each head remembers what it would remember alone. What an entry is worth is the mean of what
    it is worth to the heads, term by term, wherever the policy asks for it: at eviction, at its
    threshold, in its learning rate. What all heads protect is protected, and what most of them
    recall comes back.

    Parameters
    ----------
    policy : Policy
    heads : int
        Rows of a batch, one after the other, that are the heads of one dialog.

    Raises
    ------
    ValueError
        For fewer than one head.

    Examples
    --------
    >>> from fdkvc.policies import policy_named
    >>> together(policy_named("h2o", window=0.25), heads=12)
    H2O(window=0.25, queries='mean', heads=12)
    """
    check_count("heads", heads)
    settings = {
        field.name: getattr(policy, field.name)
        for field in dataclasses.fields(policy)
        if field.init
    }
    joined: Policy = _together(type(policy))(**settings, heads=heads)
    return joined


@cache
def _together(kind: type[Policy]) -> Any:
    class Together(kind):  # type: ignore[misc, valid-type]
        """The policy, with the answers of each dialog's heads made one."""

        def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
            terms = super().terms(cache, turn)
            return {name: _mean(term, self.heads) for name, term in terms.items()}

        def update(self, cache: Cache, turn: Observation) -> Update:
            update: Update = super().update(cache, turn)
            stale = update.stale
            return dataclasses.replace(
                update, stale=None if stale is None else self._share(stale) == 1
            )

        def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
            return np.asarray(self._share(super().protects(cache, turn, budget)) == 1)

        def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
            return np.asarray(self._share(super().recalls(cache, tier, turn)) > 0.5)

        def _share(self, marked: Bools) -> Floats:
            """Share of the heads that mark each entry."""
            return _mean(marked.astype(np.float32), self.heads)

    return dataclasses.make_dataclass(
        kind.__name__, [("heads", int)], bases=(Together,), frozen=True, kw_only=True
    )


def _mean(x: Floats, heads: int) -> Floats:
    """Mean over each dialog's heads, for each of them (B, C)."""
    grouped = x.reshape(-1, heads, x.shape[-1]).mean(axis=1, keepdims=True)
    return np.broadcast_to(grouped, (len(grouped), heads, x.shape[-1])).reshape(x.shape)
