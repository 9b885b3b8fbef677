"""Attention arithmetic, and what a policy may observe in one turn.

Every array leads with rows: a row is a dialog, or a head of one, and nothing here mixes rows.

What is promised of numbers, here once for all of the lab:

**To the last bit**, on one machine with the same versions: the same settings and the same seed give
the same numbers, run again and again, by any number of workers, in chunks of any size, on from any
turn. A dialog is the same alone and beside any others, however much padding these bring, and
whatever turns without tokens lie between its own.

**Within a tolerance** wherever sums are rounded in another order: on another processor, whose
matrix products and whose instructions for NumPy are others; with other versions of NumPy, or
another number of threads in one matrix product; in a stream that is fed turn by turn; and for
attention and output of a cache without a budget, which has as many slots as the longest dialog of
its batch has tokens. There a number of a turn is the same to some 2e-5 of its size, or of 1. What
a run measures of its dialogs is the same to `TOLERANCE`, as long as the same entries stay.

**Decisions** are the same everywhere, unless a score is within rounding of where they change.
Equal scores are no such place: what rounding alone can tell apart ties, and the older entry stays;
see `fdkvc.cache.select`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fdkvc.limits import MAX_CACHED_WORDS

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

EPSILON = 1e-8
"""The ε of Eq. 4."""

TOLERANCE = 1e-6
"""By so much, of its size or of 1, may a mean over dialogs differ on another processor."""

SPEAKERS = ("user", "system")
"""Who may speak in a dialog."""


_LANES = 8  # NumPy sums a short contiguous row in eight interleaved partial sums
_ONE_PASS = 128  # the longest row it sums in one such pass


def entry_sum(x: Floats) -> Floats:
    """Sum over the entries, the same to the last bit however many zeros follow.

    Parameters
    ----------
    x : array (..., C)
        One number for each cache slot; empty slots hold zero.

    Returns
    -------
    array (...)

    Examples
    --------
    >>> row = np.linspace(0, 1, 100, dtype=np.float32)
    >>> padded = np.concatenate([row, np.zeros(300, np.float32)])
    >>> bool(entry_sum(row) == entry_sum(padded))
    True
    """
    # A plain sum associates differently for rows of different length. Eight fixed lanes do not,
    # and for rows short enough a plain sum over a multiple of eight is those lanes exactly.
    width = x.shape[-1]
    if width % _LANES:
        x = np.concatenate([x, np.zeros((*x.shape[:-1], -width % _LANES), x.dtype)], axis=-1)
    blocks = (*x.shape[:-1], x.shape[-1] // _LANES, _LANES)
    lanes = x if width <= _ONE_PASS else x.reshape(blocks).sum(axis=-2)
    total: Floats = lanes.sum(axis=-1)
    return total


def entry_total(x: Floats) -> Floats:
    """Sum vectors or matrices over the entries (B, C, …), as `entry_sum` does numbers.

    Examples
    --------
    >>> entry_total(np.ones((1, 3, 2), np.float32)).tolist()
    [[3.0, 3.0]]
    """
    entries_last: Floats = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    return entry_sum(entries_last)


def softmax(logits: Floats) -> Floats:
    """Softmax over the last axis; a slot at −inf gets weight 0, a row of nothing else stays 0.

    Parameters
    ----------
    logits : array (..., C)

    Returns
    -------
    array (..., C)
        Weights in [0, 1] that sum to 1 in every row with a finite logit.

    Examples
    --------
    >>> softmax(np.array([0, 0, -np.inf], np.float32)).tolist()
    [0.5, 0.5, 0.0]
    """
    top = logits.max(axis=-1, keepdims=True)
    np.maximum(top, np.finfo(logits.dtype).min, out=top)
    weights = np.exp(logits - top)
    return normalize(weights)


def normalize(weights: Floats) -> Floats:
    """Divide by the sum over the last axis; a row of zeros stays zero."""
    total = entry_sum(weights)[..., None]
    total[total == 0] = 1
    return weights / total


def divide_by_max(x: Floats) -> Floats:
    """Divide by the maximum over the last axis; a maximum of zero gives zeros.

    Parameters
    ----------
    x : array (B, C)
        Non-negative, zero in empty slots.

    Examples
    --------
    >>> divide_by_max(np.array([[1, 4, 0], [0, 0, 0]], np.float32)).tolist()
    [[0.25, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    top: Floats = x.max(axis=-1, keepdims=True)
    top[top <= 0] = 1
    return x / top


def min_max(x: Floats, present: Bools | None = None) -> Floats:
    """Scale to [0, 1] between the least and the greatest present value (Eq. 4); absent gives 0.

    Parameters
    ----------
    x : array (B, C)
    present : array (B, C) of bool, optional
        All by default.

    Examples
    --------
    >>> x = np.array([[0.2, 0.6, 0.4, 9.0]], np.float32)
    >>> min_max(x, np.array([[True, True, True, False]])).round(4).tolist()
    [[0.0, 1.0, 0.5, 0.0]]
    """
    if present is None:
        low, high = x.min(axis=-1, keepdims=True), x.max(axis=-1, keepdims=True)
        of_all: Floats = (x - low) / (high - low + np.float32(EPSILON))
        return of_all
    low = np.where(present, x, np.inf).min(axis=-1, keepdims=True)
    high = np.where(present, x, -np.inf).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # inf − inf in a row without entries
        scaled = (x - low) / (high - low + np.float32(EPSILON))
    return np.where(present, scaled, np.float32(0))


def cosine(a: Floats, b: Floats) -> Floats:
    """Cosine over the last axis; 0 where one of the two vectors is zero.

    Examples
    --------
    >>> cosine(np.array([3.0, 4.0]), np.array([3.0, 0.0])).item()
    0.6
    """
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    ratio: Floats = (a * b).sum(axis=-1) / np.where(lengths > 0, lengths, 1)
    return ratio


def masked_products(one: Floats, two: Floats, known: Bools, others: Bools) -> Floats:
    """Inner products of known vectors (B, m, ·) with other known ones (B, C, ·); 0 elsewhere."""
    if known.all() and others.all():
        return row_products(one, two)
    # The shape of a matrix product may change how it rounds, so what is unknown has no part in it.
    found = np.zeros((*known.shape, others.shape[1]), np.float32)
    for row in range(len(found)):
        own, theirs = np.flatnonzero(known[row]), np.flatnonzero(others[row])
        found[row, own[:, None], theirs] = one[row, own] @ two[row, theirs].T
    return found


def row_products(
    a: Floats,
    b: Floats,
    real: Sequence[tuple[Ints, int]] | None = None,
    out: Floats | None = None,
) -> Floats:
    """Inner products of every vector of a row in `a` with every vector of the same row in `b`.

    Parameters
    ----------
    a : array (B, M, d)
    b : array (B, N, d)
    real : sequence of (array (m,), n), optional
        Which vectors of each row in `a` are real, and how many in `b`, where that is not all; the
        rest of the result is zero.
    out : array (B, M, N), optional
        Where to put the result.

    Returns
    -------
    array (B, M, N)
    """
    if real is None:
        return np.matmul(a, b.swapaxes(-1, -2), out=out)
    # The shape of a matrix product may change how it rounds, so each row is multiplied in its own.
    products = np.empty((len(a), a.shape[1], b.shape[1]), np.float32) if out is None else out
    products[:] = 0
    for row, (which, n) in enumerate(real):
        products[row, which, :n] = a[row, which] @ b[row, :n].T
    return products


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_id(word: str) -> int:
    """Return the number by which a word is known in all dialogs, whatever the case of its letters.

    Examples
    --------
    >>> word_id("Rome") == word_id("rome") != word_id("Paris")
    True
    """
    digest = hashlib.sha256(word.casefold().encode("utf-8", "replace")).digest()
    return 1 + int.from_bytes(digest[:4], "little")


class Tokens(Protocol):
    """The tokens of B rows, as an observation reads them.

    The arrays over tokens end in one column more than there are tokens. An empty slot's index, −1,
    finds it, or that of the row before, which is the same; so nothing need be masked.
    """

    @property
    def logits(self) -> Floats:
        """Scaled products of each turn's mean query with every key (B, T, N + 1), then −inf."""

    @property
    def similarities(self) -> Floats:
        """Cosines of each turn's mean embedding with every embedding (B, T, N + 1), then 0."""

    @property
    def embeddings(self) -> Floats:
        """Embeddings (B, N, d)."""

    @property
    def surprisal(self) -> Floats | None:
        """Surprisal of each token in nats (B, N), where it is known."""

    @property
    def keys(self) -> Floats:
        """Keys (B, N, h)."""

    @property
    def values(self) -> Floats:
        """Values (B, N, h)."""

    @property
    def token_queries(self) -> Floats:
        """Each token's own query (B, N, h)."""

    def new_tokens(self, turn: int) -> Ints:
        """Return the indices of the turn's tokens (B, n), −1 where a row has fewer than others."""

    def query_logits(self, turn: int) -> Floats:
        """Return scaled products of a turn's queries with keys so far (B, n, M + 1), −inf last."""

    @property
    def future_attention(self) -> Floats:
        """Full cache's attention to each token, from each turn to the end (B, T, N + 1), then 0."""

    @property
    def positions(self) -> Ints | None:
        """Place of each token in its dialog (B, N), where that is not its index."""

    @property
    def born(self) -> Ints:
        """The turn that brought each token (B, N)."""

    @property
    def heads(self) -> int:
        """So many rows, one after the other, are the heads of one layer of one dialog."""

    @property
    def layers(self) -> int:
        """So many layers, one after the other, are of one dialog."""

    @property
    def spoken_by(self) -> Ints | None:
        """Who said each token, as its place in `SPEAKERS` (B, N), where that is known."""

    @property
    def words(self) -> Ints | None:
        """The `word_id` of the word that each token is of (B, N), 0 for none, where known."""


@dataclass(frozen=True, eq=False)
class Arrivals:
    """The tokens that a turn brings (B, n), −1 where a row has fewer."""

    new: Ints

    @cached_property
    def active(self) -> Bools:
        """Whether the row has tokens in this turn (B,)."""
        return np.asarray((self.new >= 0).any(axis=1))

    @cached_property
    def all_active(self) -> bool:
        """Whether every row has tokens in this turn."""
        return bool(self.active.all())


@dataclass(frozen=True, eq=False)
class Observation:
    """What a policy may look at in one turn, for any set of tokens.

    Every method takes `token` (B, C): indices of tokens, −1 for an empty slot, and answers for
    each slot.

    Attributes
    ----------
    turn : int
        The turn's number, from 0.
    """

    turn: int
    _arrivals: Arrivals
    _tokens: Tokens

    @property
    def new(self) -> Ints:
        """The turn's own tokens (B, n), −1 where a row has fewer."""
        return self._arrivals.new

    def with_new(self, token: Ints) -> Observation:
        """Return the same turn as if these tokens (B, n) were its own."""
        return replace(self, _arrivals=Arrivals(token))

    @property
    def active(self) -> Bools:
        """Whether the row has tokens in this turn (B,); a turn without tokens changes nothing."""
        return self._arrivals.active

    @property
    def all_active(self) -> bool:
        """Whether every row has tokens in this turn."""
        return self._arrivals.all_active

    @property
    def heads(self) -> int:
        """So many rows, one after the other, are the heads of one layer of one dialog."""
        return self._tokens.heads

    @property
    def layers(self) -> int:
        """So many layers, one after the other, are of one dialog."""
        return self._tokens.layers

    @cached_property
    def _turn_start(self) -> Ints:
        """Where this turn of each row begins in the flat arrays over rows, turns and tokens."""
        rows, turns, columns = self._tokens.logits.shape
        start: Ints = ((np.arange(rows) * turns + self.turn) * columns)[:, None]
        return start

    @cached_property
    def _row_start(self) -> Ints:
        rows, tokens = self._tokens.born.shape
        start: Ints = (np.arange(rows) * tokens)[:, None]
        return start

    def position(self, token: Ints) -> Ints:
        """Place of each token in its dialog, from 0 (B, C); −1 in empty slots."""
        positions = self._tokens.positions
        if positions is None:
            return token
        return np.where(token >= 0, positions.reshape(-1).take(token + self._row_start), -1)

    def born(self, token: Ints) -> Ints:
        """Turn that brought each token (B, C); −1 in empty slots."""
        return np.where(token >= 0, self._tokens.born.reshape(-1).take(token + self._row_start), -1)

    def spoken_by(self, token: Ints, speaker: str) -> Bools:
        """Whether one of `SPEAKERS` said each token (B, C); of no token where nobody knows."""
        said = self._tokens.spoken_by
        if said is None:
            return np.zeros(token.shape, np.bool_)
        found: Bools = said.reshape(-1).take(token + self._row_start) == SPEAKERS.index(speaker)
        return found & (token >= 0)

    def is_word(self, token: Ints, words: Sequence[str]) -> Bools:
        """Whether each token is of one of these words (B, C); none is where nobody knows."""
        said = self._tokens.words
        if said is None:
            return np.zeros(token.shape, np.bool_)
        found = np.isin(said.reshape(-1).take(token + self._row_start), [*map(word_id, words)])
        return np.asarray(found & (token >= 0))

    def logits(self, token: Ints) -> Floats:
        """Scaled product q̄·k/√h with the turn's mean query (B, C); −inf in empty slots."""
        return self._tokens.logits.reshape(-1).take(token + self._turn_start)

    def attention(self, token: Ints) -> Floats:
        """Attention of the mean query over exactly these tokens, a in Eq. 1 (B, C)."""
        return softmax(self.logits(token))

    def similarity(self, token: Ints) -> Floats:
        """Cosine cos(e, ē) with the turn's mean embedding (B, C), as in Eq. 4; 0 in empty slots."""
        return self._tokens.similarities.reshape(-1).take(token + self._turn_start)

    def cosines(self, token: Ints, other: Ints) -> Floats:
        """Cosine of each of these tokens with each of others (B, m), (B, C, m); 0 if empty."""
        return masked_products(
            self._directions(token), self._directions(other), token >= 0, other >= 0
        )

    def _directions(self, token: Ints) -> Floats:
        """Embedding of each token brought to length 1 (B, C, d)."""
        vectors = self._vectors(self._tokens.embeddings, token)
        length = np.sqrt(np.einsum("bcd,bcd->bc", vectors, vectors))[:, :, None]
        length[length == 0] = 1
        vectors /= length
        return vectors

    def surprisal(self, token: Ints) -> Floats:
        """Surprisal −log p of each token in nats (B, C); 0 in empty slots.

        Raises
        ------
        ValueError
            If it is not known of these dialogs.
        """
        known = self._tokens.surprisal
        if known is None:
            raise ValueError(
                "this policy weighs the surprisal of every token, which these dialogs do not have"
            )
        return np.where(token >= 0, known.reshape(-1).take(token + self._row_start), 0)

    def context(self, weights: Floats, token: Ints) -> Floats:
        """Context output Σ ŵ·v over these tokens (B, h): Algorithm 1's result."""
        output: Floats = (weights[:, None, :] @ self._vectors(self._tokens.values, token))[:, 0]
        return output

    def keys(self, token: Ints) -> Floats:
        """Key of each token (B, C, h); zero in empty slots."""
        return self._vectors(self._tokens.keys, token) * (token >= 0)[:, :, None]

    def values(self, token: Ints) -> Floats:
        """Value of each token (B, C, h); zero in empty slots."""
        return self._vectors(self._tokens.values, token) * (token >= 0)[:, :, None]

    def queries(self, token: Ints) -> Floats:
        """Each token's own query (B, C, h); zero in empty slots."""
        return self._vectors(self._tokens.token_queries, token) * (token >= 0)[:, :, None]

    def _vectors(self, vectors: Floats, token: Ints) -> Floats:
        return vectors.reshape(-1, vectors.shape[-1]).take(token + self._row_start, axis=0)

    @cached_property
    def _queried(self) -> Ints:
        """The tokens whose queries this turn asks (B, n)."""
        return self._tokens.new_tokens(self.turn)

    @cached_property
    def query_count(self) -> Ints:
        """How many queries the turn asks, one for each of its tokens (B,)."""
        return np.asarray((self._queried >= 0).sum(axis=1))

    @cached_property
    def query_age(self) -> Ints:
        """How many of the turn's queries come after each of them (B, n): 0 for the last."""
        return np.asarray(self.query_count[:, None] - 1 - np.arange(self._queried.shape[1]))

    def visible(self, token: Ints) -> Bools:
        """Whether each of the turn's queries sees each of these tokens (B, n, C).

        Attention is causal, as in the originals: a query sees what was there before the turn, its
        own token and those before it in the turn.
        """
        asked = self._queried[:, :, None]
        return (token[:, None, :] <= asked) & (token[:, None, :] >= 0)

    def attention_of_each(self, token: Ints) -> Floats:
        """Attention of each of the turn's queries over these tokens that it sees (B, n, C).

        The queries are in order; those that a row has fewer than the others pay no attention.
        """
        logits = np.take_along_axis(self._tokens.query_logits(self.turn), token[:, None, :], axis=2)
        return softmax(np.where(self.visible(token), logits, np.float32(-np.inf)))

    def future_attention(self, token: Ints) -> Floats:
        """Attention that the full cache pays to each token in this turn and all later ones (B, C).

        Only a dialog that is known to its end can say it.
        """
        return self._tokens.future_attention.reshape(-1).take(token + self._turn_start)
