"""Observed: what a policy may look at of a text that a model reads, see `fdkvc.attention.Tokens`.

A row is a query head of a layer. Logits are the model's own, q·k/√h after positional rotation; the
embedding of a token is the hidden state that enters the layer, as in `fdkvc.said.capture`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from fdkvc.attention import Floats, Ints


class Observed:
    """The tokens of a text so far, as an observation of its last turn reads them.

    What no policy asks for is not worked out.

    Parameters
    ----------
    vectors : function
        Of ``queries``, ``keys``, ``values`` or ``hidden`` to those of all tokens (L, heads, N, ·),
        where queries have H heads, and keys and values K, each for a group of them.
    ends : sequence of int
        Where the turns before this one ended.
    new : array (L·H, n)
        The tokens of this one, the same in every row.
    """

    positions = None

    def __init__(self, vectors: Callable[[str], Floats], ends: Sequence[int], new: Ints) -> None:
        self._vectors, self._ends, self._new = vectors, ends, new
        self._rows, self._turn = len(new), slice(int(new[0, 0]), None)

    def new_tokens(self, turn: int) -> Ints:
        """Return the tokens of the turn (R, n)."""
        return self._new

    @cached_property
    def logits(self) -> Floats:
        """Scaled products of the turn's mean query with all keys (R, 1, N + 1), then −inf."""
        asked = self._vectors("queries")[:, :, self._turn]
        return self._products(asked.mean(axis=2, keepdims=True))

    def query_logits(self, turn: int) -> Floats:
        """Scaled products of the turn's own queries with all keys (R, n, N + 1), then −inf."""
        return self._products(self._vectors("queries")[:, :, self._turn])

    def _products(self, queries: Floats) -> Floats:
        """Scaled products of queries (L, H, m, h) with all keys (R, m, N + 1), then −inf."""
        keys = self._vectors("keys")
        layers, _, m, h = queries.shape
        grouped = queries.reshape(layers, keys.shape[1], -1, h) * np.float32(1 / np.sqrt(h))
        products = np.full((self._rows, m, keys.shape[2] + 1), -np.inf, np.float32)
        products[:, :, :-1] = (grouped @ keys.swapaxes(2, 3)).reshape(self._rows, m, -1)
        return products

    @cached_property
    def similarities(self) -> Floats:
        """Cosines of the turn's mean hidden state with all (R, 1, N + 1), then 0."""
        hidden = self._vectors("hidden")[:, 0]
        mean = hidden[:, self._turn].mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(hidden, axis=-1) * np.linalg.norm(mean, axis=-1)
        products = (mean @ hidden.swapaxes(1, 2))[:, 0] / np.where(lengths > 0, lengths, 1)
        padded = np.pad(products, [(0, 0), (0, 1)])
        return np.repeat(padded, self._rows // len(padded), axis=0)[:, None]

    def _of_rows(self, name: str) -> Floats:
        vectors = self._vectors(name)
        group = self._rows // (vectors.shape[0] * vectors.shape[1])
        return np.repeat(vectors, group, axis=1).reshape(self._rows, *vectors.shape[2:])

    @cached_property
    def keys(self) -> Floats:
        """Keys (R, N, h)."""
        return self._of_rows("keys")

    @cached_property
    def values(self) -> Floats:
        """Values (R, N, h)."""
        return self._of_rows("values")

    @cached_property
    def token_queries(self) -> Floats:
        """Each token's own query (R, N, h)."""
        return self._of_rows("queries")

    @cached_property
    def born(self) -> Ints:
        """The turn that brought each token (R, N)."""
        turns = np.searchsorted(
            self._ends, np.arange(self._vectors("hidden").shape[2]), side="right"
        )
        return np.broadcast_to(turns, (self._rows, len(turns)))

    @property
    def attention_to_come(self) -> Floats:
        """What is yet to be written is not known."""
        raise LookupError("what a model has yet to write is not known")
