"""A model's tokens as policies observe them; implements `fdkvc.attention.Tokens`.

Each query head of a layer is a row. Logits are the model's own, q·k/√h after positional rotation;
embeddings are the hidden states that enter the layer, as in `fdkvc.corpora.capture`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from fdkvc.attention import Floats, Ints


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

    Parameters
    ----------
    vectors : Vectors
    new : array (L·H, n)
        Indices of the turn's tokens, which follow the slots; the same in every row.
    positions, born : array (L·H, S + n)
        Position of each token in the text, and its turn.
    layers : int
        Layers that may share a budget, with equally many rows each.
    surprisal : array (L·H, S + n), optional
        In nats.
    words : two arrays (L·H, S + n), optional
        Word number and speaker of each token.
    """

    def __init__(
        self,
        vectors: Vectors,
        new: Ints,
        positions: Ints,
        born: Ints,
        layers: int,
        surprisal: Floats | None = None,
        words: tuple[Ints, Ints] | None = None,
    ) -> None:
        self._vectors, self._new, self._rows = vectors, new, len(new)
        self.positions, self.born, self.surprisal = positions, born, surprisal
        self.words: Ints | None = None if words is None else words[0]
        self.spoken_by: Ints | None = None if words is None else words[1]
        self.layers, self.heads = layers, len(new) // layers

    def new_tokens(self, turn: int) -> Ints:
        """Return the tokens of the turn (R, n)."""
        return self._new

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
        products = np.full((self._rows, m, keys.shape[2] + 1), -np.inf, np.float32)
        products[:, :, :-1] = (grouped @ keys.swapaxes(2, 3)).reshape(self._rows, m, -1)
        return products

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
