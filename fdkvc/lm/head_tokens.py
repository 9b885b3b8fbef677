"""A model's tokens as policies observe them; implements `fdkvc.attention.Tokens`.

Each query head of a layer is a row. Logits are the model's own, q·k/√h after positional rotation;
embeddings are the hidden states that enter the layer, as in `fdkvc.corpora.capture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Floats, Ints, Product


class Vectors(Protocol):
    """Vectors of L layers, for S slots and the n tokens of a turn.

    Names are ``queries`` (H heads), ``keys`` and ``values`` (K, each shared by a group of query
    heads) and ``hidden`` (one per new token; for the slots, one per KV head).
    """

    def held(self, name: str) -> Floats:
        """Return those of the slots (L, heads, S, ·); empty slots may contain anything."""

    def new(self, name: str) -> Floats:
        """Return those of the turn's tokens (L, heads, n, ·)."""


class HeadTokens:
    """The slots of a model's caches, followed by the tokens of a turn; computed on demand.

    `new` (L·H, n) are the turn's tokens, the same in every row; positions, born and features (L·H,
    S + n, ...) are those of all, as of `fdkvc.lm.tokens.Tokens.features`. So many `layers`, with
    equally many rows each, may share a budget.
    """

    def __init__(
        self,
        vectors: Vectors,
        new: Ints,
        positions: Ints,
        born: Ints,
        layers: int,
        features: Mapping[str, NDArray[Any]],
    ) -> None:
        self._vectors, self._new, self._rows = vectors, new, len(new)
        self.positions, self.born = positions, born
        self.surprisal: Floats | None = features.get("surprisal")
        self.words: Ints | None = features.get("words")
        self.spoken_by: Ints | None = features.get("speakers")
        self.traits: Floats | None = features.get("traits")
        self.layers, self.heads = layers, len(new) // layers

    def new_tokens(self, turn: int) -> Ints:
        """Return the tokens of the turn (R, n)."""
        return self._new

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return those of the turn, the only one."""
        return (self.logits if name == "logits" else self.similarities), 0

    @cached_property
    def logits(self) -> Floats:
        """Scaled products of the turn's mean query with all keys (R, 1, N + 1), then −inf."""
        return self._products(self._vectors.new("queries").mean(axis=2, keepdims=True))

    def query_logits(self, turn: int) -> Floats:
        """Return scaled products of the turn's queries with all keys (R, n, N + 1), then −inf."""
        return self._products(self._vectors.new("queries"))

    def _products(self, queries: Floats) -> Floats:
        """Return scaled products of queries (L, H, m, h) with all keys (R, m, N + 1), then −inf."""
        keys = self._all("keys")
        layers, _, m, h = queries.shape
        grouped = queries.reshape(layers, keys.shape[1], -1, h) * np.float32(1 / np.sqrt(h))
        products = (grouped @ keys.swapaxes(2, 3)).reshape(self._rows, m, -1)
        return np.concatenate([products, np.full((self._rows, m, 1), -np.inf, np.float32)], axis=2)

    @cached_property
    def similarities(self) -> Floats:
        """Cosines of the turn's mean hidden state with all (R, 1, N + 1), then 0."""
        held, new = self._vectors.held("hidden"), self._vectors.new("hidden")
        mean = new.mean(axis=2, keepdims=True)

        def cosines(hidden: Floats) -> Floats:
            lengths = np.linalg.norm(hidden, axis=-1) * np.linalg.norm(mean, axis=-1)
            products = (mean @ hidden.swapaxes(2, 3))[:, :, 0] / np.where(lengths > 0, lengths, 1)
            return np.repeat(products, self._rows // (len(hidden) * hidden.shape[1]), axis=1)

        found = np.concatenate([cosines(held), cosines(new)], axis=2)
        return np.pad(found, [(0, 0), (0, 0), (0, 1)]).reshape(self._rows, 1, -1)

    def _all(self, name: str) -> Floats:
        return np.concatenate([self._vectors.held(name), self._vectors.new(name)], axis=2)

    def _per_row(self, vectors: Floats) -> Floats:
        group = self._rows // (vectors.shape[0] * vectors.shape[1])
        return np.repeat(vectors, group, axis=1).reshape(self._rows, *vectors.shape[2:])

    @cached_property
    def embeddings(self) -> Floats:
        """Hidden states that enter the row's layer (R, N, d)."""
        held, new = self._vectors.held("hidden"), self._vectors.new("hidden")
        shared = np.broadcast_to(new, (*held.shape[:2], *new.shape[2:]))
        return self._per_row(np.concatenate([held, shared], axis=2))

    @cached_property
    def keys(self) -> Floats:
        """Keys (R, N, h)."""
        return self._per_row(self._all("keys"))

    @cached_property
    def values(self) -> Floats:
        """Values (R, N, h)."""
        return self._per_row(self._all("values"))

    @cached_property
    def token_queries(self) -> Floats:
        """Each token's own query (R, N, h)."""
        return self._per_row(self._all("queries"))

    @property
    def future_attention(self) -> Floats:
        """Unknown while the model is writing."""
        raise LookupError("what a model has yet to write is not known")
