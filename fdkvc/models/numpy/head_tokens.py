"""A model's tokens as policies observe them; implements `fdkvc.core.attention.ObservedTokens`.

Each query head of a layer is a row. Logits are the model's own, q·k/√h after positional rotation;
embeddings are the hidden states that enter the layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Floats, Ints, Observation, Product

# 64 MB in single precision.
PART_NUMBERS = 2**24
"""Most products of queries and keys in memory at once."""

LEAST_NEW = 2**8
"""Fewest tokens that a turn counts for in this, since vectors take memory, too."""


Vectors = Callable[[str, Literal["slots", "turn"]], Floats]
"""Returns vectors of a layer: of its slots (heads, S, ·), or of the turn's tokens (heads, n, ·).
Those of an empty slot may be anything.

Names are ``queries`` (H heads), ``keys`` and ``values`` (K, each shared by a group of query heads)
and ``hidden`` (one per new token; for the slots, one per KV head).
"""


@dataclass(eq=False)
class HeadTokens:
    """The slots of a model's caches, followed by the tokens of a turn; computed on demand."""

    vectors: Sequence[Vectors]
    """The vectors of each layer."""
    new: Ints
    """Shape (L·H, n). The columns of the turn's tokens, the same in every row."""
    positions: Ints
    """Shape (L·H, S + n). The position of each column's token in the text."""
    features: Mapping[str, NDArray[Any]]
    """By name, of each token of the text (N, ...): its turn as ``born``, and those of
    `fdkvc.models.numpy.tokens.Tokens.features`."""
    future_attention: ClassVar[Any] = None  # a policy that looks at it is refused
    layers: int = 1
    """The layers of the model, or 1 if all decide as one."""
    first_layer: int = 0
    """The layer of the first row."""

    def __post_init__(self) -> None:
        self._group = len(self.new) // len(self.vectors)  # rows of a layer
        self.heads = self._group if self.layers > 1 else len(self.new)

    def feature(self, name: str) -> Any:
        """Return a feature of each token (L·H, S + n, ...), if known."""
        return self.features[name][self.positions] if name in self.features else None

    born = cached_property(lambda self: self.feature("born"))

    def parts(self) -> Iterator[tuple[slice, HeadTokens]]:
        """Yield the rows of one layer after the other, or of as many layers as memory allows.

        One layer if all decide as one; otherwise at most `PART_NUMBERS` products of the turn's
        queries, but at least one layer.
        """
        count = max(1, self.most_rows // self._group) if self.layers > 1 else 1
        if count >= len(self.vectors):  # not a copy: products that are computed already stay
            yield slice(None), self
            return
        for first in range(0, len(self.vectors), count):
            rows = slice(first * self._group, (first + count) * self._group)
            part = self._part(
                self.vectors[first : first + count], rows, self.first_layer + first
            )
            yield rows, part

    @property
    def most_rows(self) -> int:
        """How many rows can be observed at once, by `PART_NUMBERS`."""
        tokens = max(self.new.shape[1], LEAST_NEW) * self.positions.shape[1]
        return int(PART_NUMBERS // tokens)

    def _part(self, vectors: Sequence[Any], rows: slice, first_layer: int) -> Self:
        """Return the tokens of some rows."""
        new = self.new[rows]
        positions = self.positions[rows]
        return replace(
            self, vectors=vectors, new=new, positions=positions, first_layer=first_layer
        )

    def observe(self) -> Observation:
        """Return the turn, to be observed."""
        return Observation(0, self.new, self)

    def new_tokens(self, turn: int) -> Ints:
        """Return the tokens of the turn (R, n)."""
        return self.new

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return the products of the only turn that there is."""
        return (self.logits if name == "logits" else self.similarities), 0

    def _by_layer(self, of_layer: Callable[[Vectors], Floats]) -> Floats:
        """Return what a function computes of each layer, for all rows (R, …)."""
        return np.concatenate([*map(of_layer, self.vectors)])

    @cached_property
    def logits(self) -> Floats:
        """Scaled products of the turn's mean query with all keys (R, 1, N + 1), then −inf."""
        return self._by_layer(
            lambda layer: _products(
                layer, layer("queries", "turn").mean(axis=1, keepdims=True)
            )
        )

    def query_logits(self, turn: int) -> Floats:
        """Return scaled products of the turn's queries with all keys (R, n, N + 1), then −inf."""
        return self._by_layer(lambda layer: _products(layer, layer("queries", "turn")))

    @cached_property
    def similarities(self) -> Floats:
        """Cosines of the turn's mean hidden state with all (R, 1, N + 1), then 0."""

        def of_layer(layer: Vectors) -> Floats:
            # Hidden states are the same for all heads of a layer, but the slots differ by KV head.
            slot_vectors = layer("hidden", "slots")
            new = layer("hidden", "turn")
            mean = new.mean(axis=1, keepdims=True)

            def cosines(hidden: Floats) -> Floats:
                lengths = np.linalg.norm(hidden, axis=-1) * np.linalg.norm(mean, axis=-1)
                products = (mean @ hidden.swapaxes(1, 2))[:, 0]
                return self._per_row(products / np.where(lengths > 0, lengths, 1))

            of_tokens = np.concatenate([cosines(slot_vectors), cosines(new)], axis=1)
            return np.pad(of_tokens, [(0, 0), (0, 1)])[:, None]

        return self._by_layer(of_layer)

    def _per_row(self, vectors: Floats) -> Floats:
        return np.repeat(vectors, self._group // len(vectors), axis=0)

    @property
    def embeddings(self) -> Floats:
        """Hidden states that enter the layer (R, N, d), one row for each KV head."""

        def of_layer(layer: Vectors) -> Floats:
            slot_vectors = layer("hidden", "slots")
            new = layer("hidden", "turn")
            new = np.broadcast_to(new, (len(slot_vectors), *new.shape[1:]))
            return np.concatenate([slot_vectors, new], axis=1)

        return self._by_layer(of_layer)

    @property
    def keys(self) -> Floats:
        """Keys (R, N, h)."""
        return self._by_layer(lambda layer: self._per_row(_all(layer, "keys")))

    @property
    def values(self) -> Floats:
        """Values (R, N, h)."""
        return self._by_layer(lambda layer: self._per_row(_all(layer, "values")))

    @property
    def token_queries(self) -> Floats:
        """Each token's own query (R, N, h)."""
        return self._by_layer(lambda layer: self._per_row(_all(layer, "queries")))


def _all(vectors: Vectors, name: str) -> Floats:
    return np.concatenate([vectors(name, "slots"), vectors(name, "turn")], axis=1)


def _products(vectors: Vectors, queries: Floats) -> Floats:
    """Return scaled products of queries (H, m, h) with all keys (H, m, N + 1), then −inf."""
    keys = _all(vectors, "keys")
    heads, m, h = queries.shape
    # (K, G·m, h): the queries of a group are rows of one product with the keys that they share.
    grouped = queries.reshape(len(keys), -1, h) * np.float32(1 / np.sqrt(h))
    products = (grouped @ keys.swapaxes(1, 2)).reshape(heads, m, -1)
    return np.pad(products, [(0, 0), (0, 0), (0, 1)], constant_values=-np.inf)
