"""Eviction in all heads of a model: a policy's state over a text, without vectors.

Each query head of a layer is a row of one batch in `fdkvc.run.simulate.take_turn`. Heads that
decide together keep the same tokens; query heads that share a head of keys and values always do,
since they share one cache.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Arrivals, Ints, Observation
from fdkvc.cache import EMPTY
from fdkvc.lm.head_tokens import HeadTokens, Vectors
from fdkvc.parameters import Field, check_count
from fdkvc.policies import Policy
from fdkvc.policies.together import POOL, Together
from fdkvc.run.simulate import initial_state, take_turn
from fdkvc.run.trace import Codes

DECIDES = Field(
    "Who decides",
    "Whether each KV head evicts by itself, or all heads of a layer or of the model evict the same "
    "tokens.",
    name="decides",
    default="head",
    choices={
        "head": "each head of keys by itself",
        "layer": "all heads of a layer together",
        "model": "all heads of the model together",
    },
)


@dataclass(frozen=True)
class Heads:
    """The heads of a model.

    Attributes
    ----------
    layers : int
    heads, kv_heads : int
        Query heads of a layer, and the heads of keys and values that groups of them share.
    head_width : int
    """

    layers: int
    heads: int
    kv_heads: int
    head_width: int

    @property
    def group(self) -> int:
        """Query heads that share a head of keys and values."""
        return self.heads // self.kv_heads


@dataclass(frozen=True, eq=False)
class EvictionStep:
    """The result of a turn in each layer and KV head.

    Attributes
    ----------
    held : array (L, K, S)
        The tokens kept, −1 where a head keeps fewer than others.
    second_tier : array (L, K, R)
        The tokens in the second tier.
    sources : array (L, K, S + R)
        The slot of each of these before the eviction: the old slots (first tier, then second),
        followed by the turn's tokens.
    layer, head, token : array (E,)
        The evicted entries.
    rule : array (E,)
        The `Rule` that evicted each.
    """

    held: Ints
    second_tier: Ints
    sources: Ints
    layer: Ints
    head: Ints
    token: Ints
    rule: Codes


class HeadEviction:
    """The state of a policy over a text; immutable.

    Parameters
    ----------
    policy : Policy
    budget : int
        Most entries of a KV head at the end of a turn.
    heads : Heads
    decides : {"head", "layer", "model"}
        See `DECIDES`.
    pool : {"mean", "max"}
        How to combine the scores of query heads that decide together.

    Attributes
    ----------
    held : array (L, K, S)
        The tokens in each KV head, −1 where it has fewer than others.
    second_tier : array (L, K, R)
        The tokens in its second tier, if the policy has one.
    count, turns : int
        Tokens and turns so far.

    Raises
    ------
    ValueError
        For a budget below 1, or a policy that uses the future.
    """

    def __init__(
        self,
        policy: Policy,
        budget: int,
        heads: Heads,
        decides: str = DECIDES.default,
        pool: str = POOL.default,
    ) -> None:
        check_eviction(policy, budget, decides, pool)
        self.policy, self.budget, self.heads = policy, budget, heads
        rows = heads.layers * heads.heads
        together = {"head": heads.group, "layer": heads.heads, "model": rows}[decides]
        # Layers that decide together are treated as one: they share no budget.
        self._layers = 1 if decides == "model" else heads.layers
        self._together = Together(policy, together, pool)
        self._state = initial_state(
            self._together,
            rows,
            budget,
            heads.head_width,
            layers=self._layers,
            heads=rows // self._layers,
        )
        none = np.empty((heads.layers, heads.kv_heads, 0), np.intp)
        self.held: Ints = none
        self.second_tier: Ints = none
        self._born: Ints = none
        self.count = self.turns = 0

    def after(
        self,
        new: int,
        vectors: Vectors,
        surprisal: Sequence[float] | None = None,
        words: Ints | None = None,
    ) -> tuple[HeadEviction, EvictionStep]:
        """Return the state after a turn, and what the turn evicted.

        Parameters
        ----------
        new : int
            Number of new tokens, at least 1.
        vectors : Vectors
            Of the slots before the turn (first tier, then second) and of the new tokens.
        surprisal : sequence of float, optional
            Of each token so far, in nats.
        words : array (2, N), optional
            Word number and speaker of each token so far; see
            `fdkvc.lm.tokens.Tokens.words_and_speakers`.
        """
        heads, (layers, kv_heads, _) = self.heads, self.held.shape
        rows = layers * heads.heads
        slots = self.held.shape[2] + self.second_tier.shape[2]
        own = np.arange(self.count, self.count + new)
        ids = _joined(self.held, self.second_tier, np.broadcast_to(own, (layers, kv_heads, new)))
        born = _joined(self._born, np.full((layers, kv_heads, new), self.turns))
        arrivals = np.broadcast_to(np.arange(slots, slots + new), (rows, new))

        def of_rows(column: NDArray[Any]) -> NDArray[Any]:
            return np.repeat(column, heads.group, axis=1).reshape(rows, -1)

        def of_kv_heads(column: NDArray[Any]) -> NDArray[Any]:
            return column.reshape(layers, kv_heads, heads.group, -1)[:, :, 0]

        tokens = HeadTokens(
            vectors,
            arrivals,
            of_rows(ids),
            of_rows(born),
            self._layers,
            None if surprisal is None else of_rows(np.asarray(surprisal, np.float32)[ids]),
            None if words is None else (of_rows(words[0][ids]), of_rows(words[1][ids])),
        )
        turn = Observation(0, Arrivals(arrivals), tokens)
        capacity = self.policy.capacity(self.budget, self.count + new)
        state = self._state.with_tier(self.policy.tier_places(self.budget, self.count + new))
        result = take_turn(self._together, state, turn, capacity)

        token, rule = of_kv_heads(result.token), of_kv_heads(result.rule)
        layer, head, slot = np.nonzero(rule)
        evicted = ids[layer, head, token[layer, head, slot]]
        cache, tier = result.after.cache, result.after.tier
        kept = of_kv_heads(cache.token)
        used = (kept >= 0).any(axis=(0, 1))
        sources = _joined(kept[:, :, used], of_kv_heads(tier))
        there = sources >= 0
        after = copy.copy(self)
        stayed = np.where(there, np.take_along_axis(ids, sources, axis=2), EMPTY)
        after.held, after.second_tier = np.split(stayed, [used.sum()], axis=2)
        after._born = np.where(there, np.take_along_axis(born, sources, axis=2), EMPTY)
        after.count, after.turns = self.count + new, self.turns + 1
        # The next turn's observation comes from the model, so the state keeps none.
        after._state = dataclasses.replace(
            self._state,
            cache=dataclasses.replace(cache, token=_renumbered(cache.token, np.cumsum(used) - 1)),
            tier=_renumbered(tier, used.sum() + np.arange(tier.shape[1])),
        )
        rules = rule[layer, head, slot]
        return after, EvictionStep(
            after.held, after.second_tier, sources, layer, head, evicted, rules
        )


def _joined(*columns: Ints) -> Ints:
    return np.concatenate(columns, axis=2)


def _renumbered(token: Ints, number: Ints) -> Ints:
    """Replace the token in each slot (R, C) by the number of the slot (C,)."""
    return np.where(token >= 0, number, EMPTY)


def check_eviction(policy: Policy, budget: int, decides: str, pool: str = POOL.default) -> None:
    """Raise a ValueError for parameters that `HeadEviction` does not accept."""
    check_count("budget", budget)
    DECIDES.check(decides, "decides")
    POOL.check(pool, "pool")
    check_no_future(policy)


def check_no_future(policy: Policy) -> None:
    """Raise a ValueError for a policy that uses the future, which is not written yet."""
    if "future" in policy.looks_at:
        raise ValueError(
            f"{policy.label} looks at the future of the dialog, which a model has yet to write"
        )
