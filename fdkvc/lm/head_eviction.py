"""Deciding: a policy over all heads of a model, turn after turn; it holds numbers and no vectors.

A query head of a layer is a row of one batch in the project's one loop
(`fdkvc.run.simulate.take_turn`). Heads that decide together keep the same tokens: those that share
a head of keys and values always do, since it is one cache.
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
    "Who decides what stays: each KV head for itself, all heads of a layer together, or all of the "
    "model's.",
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
        Of each layer: query heads, and the heads of keys and values that groups of them share.
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
    """What a turn came to in each layer and KV head.

    Attributes
    ----------
    held : array (L, K, S)
        The tokens that stay, −1 where a head holds fewer than others.
    waiting : array (L, K, R)
        Those of the second tier.
    places : array (L, K, S + R)
        Where all of them stood: among the slots before the turn, held and waiting, and then the
        turn's own tokens.
    layer, head, token : array (E,)
        Who was evicted from where.
    rule : array (E,)
        And by which `Rule`.
    """

    held: Ints
    waiting: Ints
    places: Ints
    layer: Ints
    head: Ints
    token: Ints
    rule: Codes


class HeadEviction:
    """What a policy remembers of a text; nothing in it is changed in place.

    Parameters
    ----------
    policy : Policy
    budget : int
        Entries that a KV head may hold at the end of a turn.
    heads : Heads
    decides : {"head", "layer", "model"}
        Whether each KV head decides for itself, or all heads of a layer or of the model together.
    pool : {"mean", "max"}
        How the scores of query heads that decide together become one.

    Attributes
    ----------
    held : array (L, K, S)
        The tokens that each KV head holds, −1 where it holds fewer than others.
    waiting : array (L, K, R)
        Those of its second tier, if the policy has one.
    count, turns : int
        Tokens and turns so far.

    Raises
    ------
    ValueError
        For a budget below 1, or a policy that looks at the future.
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
        # Layers that decide together share no budget among them: they are as one.
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
        self.waiting: Ints = none
        self._born: Ints = none
        self.count = self.turns = 0

    def after(
        self,
        new: int,
        vectors: Vectors,
        surprisal: Sequence[float] | None = None,
        said: Ints | None = None,
    ) -> tuple[HeadEviction, EvictionStep]:
        """Return what the policy remembers after a turn of new tokens, and what it decided.

        Parameters
        ----------
        new : int
            How many, at least 1.
        vectors : Vectors
            Of the slots before the turn, held and waiting, and of the new tokens.
        surprisal : sequence of float, optional
            How surprising each token of the text so far was to the model, in nats.
        said : array (2, N), optional
            Of what word each token of the text so far is, and who said it.
        """
        heads, (layers, kv_heads, _) = self.heads, self.held.shape
        rows = layers * heads.heads
        slots = self.held.shape[2] + self.waiting.shape[2]
        own = np.arange(self.count, self.count + new)
        ids = _joined(self.held, self.waiting, np.broadcast_to(own, (layers, kv_heads, new)))
        born = _joined(self._born, np.full((layers, kv_heads, new), self.turns))
        arrivals = np.broadcast_to(np.arange(slots, slots + new), (rows, new))

        def of_rows(column: NDArray[Any]) -> NDArray[Any]:
            return np.repeat(column, heads.group, axis=1).reshape(rows, -1)

        def of_kv_heads(column: NDArray[Any]) -> NDArray[Any]:
            return column.reshape(layers, kv_heads, heads.group, -1)[:, :, 0]

        known = None if surprisal is None else of_rows(np.asarray(surprisal, np.float32)[ids])
        heard = None if said is None else (of_rows(said[0][ids]), of_rows(said[1][ids]))
        tokens = HeadTokens(
            vectors, arrivals, of_rows(ids), of_rows(born), self._layers, known, heard
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
        places = _joined(kept[:, :, used], of_kv_heads(tier))
        there = places >= 0
        after = copy.copy(self)
        stood = np.where(there, np.take_along_axis(ids, places, axis=2), EMPTY)
        after.held, after.waiting = np.split(stood, [used.sum()], axis=2)
        after._born = np.where(there, np.take_along_axis(born, places, axis=2), EMPTY)
        after.count, after.turns = self.count + new, self.turns + 1
        # What it attends to is the model's to say, so the state keeps no way to work it out.
        after._state = dataclasses.replace(
            self._state,
            cache=dataclasses.replace(cache, token=_numbered(cache.token, np.cumsum(used) - 1)),
            tier=_numbered(tier, used.sum() + np.arange(tier.shape[1])),
        )
        rules = rule[layer, head, slot]
        return after, EvictionStep(after.held, after.waiting, places, layer, head, evicted, rules)


def _joined(*columns: Ints) -> Ints:
    return np.concatenate(columns, axis=2)


def _numbered(token: Ints, number: Ints) -> Ints:
    """Give each token of a slot (R, C) the number of its slot (C,)."""
    return np.where(token >= 0, number, EMPTY)


def check_eviction(policy: Policy, budget: int, decides: str, pool: str = POOL.default) -> None:
    """Raise a ValueError for what cannot decide."""
    check_count("budget", budget)
    DECIDES.check(decides, "decides")
    POOL.check(pool, "pool")
    check_no_future(policy)


def check_no_future(policy: Policy) -> None:
    """Raise a ValueError for a policy that looks at the future, which is yet to be written."""
    if "future" in policy.looks_at:
        raise ValueError(
            f"{policy.label} looks at the future of the dialog, which a model has yet to write"
        )
