"""Attention arithmetic, and what a policy may observe in one turn.

The first axis of every array is rows: a row is a dialog or one head of it. Rows never mix.

Reproducibility, for the whole project:

**Bit-identical** on one machine with the same versions: the same settings and seed give the same
numbers in every run, with any number of workers, any chunk size, and when a run continues from any
turn. The other dialogs of a batch, their padding and turns without tokens do not change a dialog,
if the batch's turns times its tokens are at most `BLOCK`; longer dialogs run alone.

**Within a tolerance** where sums are rounded in another order: on another processor; with another
version of NumPy or another number of threads in one matrix product; in a stream that is fed turn by
turn; and for attention and output of a cache without a budget, which has as many slots as the
longest dialog of its batch has tokens. Numbers of a turn then agree to about 2e-5, relative or
absolute. Metrics of a run agree to `TOLERANCE`, as long as the same entries stay.

**Decisions** are the same everywhere, unless a score is within rounding of a cutoff. Scores that
differ by rounding alone tie, and the older entry stays; see `fdkvc.core.cache.select`. They are
those of double precision unless a score is within 3e-6 of the cutoff; see `fdkvc.core.cache.Ties`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.limits import MAX_CACHED_WORDS
from fdkvc.core.scripts import word_spans

Floats = NDArray[np.float32]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Columns = Mapping[str, Floats]
"""Arrays by name, such as numbers of every entry (B, C) or row (B,)."""
T = TypeVar("T")

EPSILON = 1e-8
"""The ε of Eq. 4."""

TOLERANCE = 1e-6
"""Relative or absolute difference that a mean over dialogs may have on another processor."""

SPEAKER_LABELS = {"user": "user", "system": "assistant", "prompt": "system prompt"}
"""What pages and files call each speaker."""

SPEAKERS = tuple(SPEAKER_LABELS)

KINDS = ("system", "user", "assistant", "call", "result")
"""Who or what wrote a token; `fdkvc.core.transcripts.SPAN_KINDS` has their labels."""

TRAITS = (
    "word",
    "user",
    "mark",
    "surprisal",
    "capital",
    "digit",
    "punctuation",
    "near_surprisal",
    "near_capital",
    "near_digit",
    "position",
)
"""Properties of a token that follow from its text; see `fdkvc.core.token_traits`.

``word`` is a number, the same for equal words; ``mark`` is 1 for a token without text; ``near_…``
are properties of the words beside it in the turn; ``position`` grows from 0 for a turn's first word
towards 1, with 0.5 for the eleventh.
"""

BLOCK = 2**22
"""Numbers of one matrix product of a row; a larger one is computed in parts of this size."""

LANES = 8
"""NumPy sums a short contiguous row in so many interleaved partial sums."""
_ONE_PASS = 128  # the longest row it sums in one such pass


def entry_sum(x: Floats) -> Floats:
    """Sum over the entries (..., C), the same to the last bit however many zeros follow.

    Examples
    --------
    >>> row = np.linspace(0, 1, 100, dtype=np.float32)
    >>> padded = np.concatenate([row, np.zeros(300, np.float32)])
    >>> bool(entry_sum(row) == entry_sum(padded))
    True
    """
    # The order of a plain sum depends on the row's length; that of eight fixed lanes does not.
    # For short rows a plain sum over a multiple of eight is exactly those lanes.
    width = x.shape[-1]
    if width % LANES:
        missing = (*x.shape[:-1], -width % LANES)
        x = np.concatenate([x, np.zeros_like(x, shape=missing)], axis=-1)
    if width > _ONE_PASS:
        blocks = (*x.shape[:-1], x.shape[-1] // LANES, LANES)  # (..., C / 8, 8)
        x = x.reshape(blocks).sum(axis=-2)
    sums: Floats = x.sum(axis=-1)
    return sums


def entry_total(x: Floats) -> Floats:
    """Sum vectors or matrices over the entries (B, C, …), as `entry_sum` does numbers.

    Examples
    --------
    >>> entry_total(np.ones((1, 3, 2), np.float32)).tolist()
    [[3.0, 3.0]]
    """
    return entry_sum(np.moveaxis(x, 1, -1).copy())  # so that rows are contiguous


def softmax(logits: Floats) -> Floats:
    """Softmax over the last axis; −inf gets weight 0, and a row of −inf alone stays 0.

    Examples
    --------
    >>> softmax(np.array([0, 0, -np.inf], np.float32)).tolist()
    [0.5, 0.5, 0.0]
    """
    top = logits.max(axis=-1, keepdims=True)
    np.maximum(top, np.finfo(logits.dtype).min, out=top)  # −inf − −inf would be NaN
    weights = logits - top
    return normalize(np.exp(weights, out=weights))


def normalize(weights: Floats) -> Floats:
    """Divide by the sum over the last axis; a row of zeros stays zero."""
    total = entry_sum(weights)[..., None]
    total[total == 0] = 1
    return weights / total


def divide_by_max(x: Floats) -> Floats:
    """Divide non-negative numbers by the maximum over the last axis; zeros stay zero.

    Examples
    --------
    >>> divide_by_max(np.array([[1, 4, 0], [0, 0, 0]], np.float32)).tolist()
    [[0.25, 1.0, 0.0], [0.0, 0.0, 0.0]]
    """
    top: Floats = x.max(axis=-1, keepdims=True)
    top[top <= 0] = 1
    return x / top


def min_max(x: Floats, present: Bools | None = None) -> Floats:
    """Scale the values of each row (B, C) to [0, 1] by their minimum and maximum (Eq. 4).

    Where `present` is given, only values that are present count, and others become 0.

    Examples
    --------
    >>> x = np.array([[0.2, 0.6, 0.4, 9.0]], np.float32)
    >>> min_max(x, np.array([[True, True, True, False]])).round(4).tolist()
    [[0.0, 1.0, 0.5, 0.0]]
    """
    if present is None:
        low = x.min(axis=-1, keepdims=True)
        high = x.max(axis=-1, keepdims=True)
        return np.asarray((x - low) / (high - low + EPSILON))
    low = np.where(present, x, np.inf).min(axis=-1, keepdims=True)
    high = np.where(present, x, -np.inf).max(axis=-1, keepdims=True)
    with np.errstate(invalid="ignore"):  # inf − inf in a row without entries
        scaled = (x - low) / (high - low + EPSILON)
    return np.where(present, scaled, 0)


def lengths_of(x: Floats) -> Floats:
    """Length of each vector (...), with 1 for zero vectors."""
    length: Floats = np.sqrt(np.einsum("...d,...d->...", x, x))
    length[length == 0] = 1  # so that dividing by it leaves zero
    return length


def cosine(a: Floats, b: Floats) -> Floats:
    """Cosine over the last axis; 0 where either vector is zero.

    Examples
    --------
    >>> cosine(np.array([3.0, 4.0]), np.array([3.0, 0.0])).item()
    0.6
    """
    lengths = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    products = (a * b).sum(axis=-1)
    return np.asarray(products / np.where(lengths > 0, lengths, 1))


def _largest(cosines: Floats, position: Ints, new_position: Ints) -> Floats:
    """Return each entry's largest cosine (..., C) with newer tokens, at least 0.

    `cosines` (..., C, n) are those of entries at `position` (..., C) with tokens at `new_position`
    (..., n); those with tokens that are not newer are set to 0 in place.
    """
    before_turn = position < new_position.min(initial=0)
    if not before_turn.all():
        # Only the turn's own entries, which come last, may be newer than some of its tokens.
        in_all_rows = before_turn.reshape(-1, before_turn.shape[-1]).all(axis=0)
        first = int(in_all_rows.argmin())
        not_newer = new_position[..., None, :] <= position[..., first:, None]
        np.copyto(cosines[..., first:, :], 0, where=not_newer)
    return np.asarray(cosines.max(axis=-1, initial=0))


def _starts(x: Floats, turn: int) -> Ints:
    """Return the index (B, 1) at which a turn of each row begins in `x` (B, S, M), flattened."""
    rows, turns, columns = x.shape
    turns_so_far = np.arange(rows) * turns + turn
    return np.asarray((turns_so_far * columns)[:, None])


def row_products(
    a: Floats,
    b: Floats,
    real: Sequence[tuple[Ints, int]] | None = None,
    buffer: Floats | None = None,
) -> Floats:
    """Return the inner products (B, M, N) of each row's vectors in `a` (B, M, d) and `b` (B, N, d).

    For padded rows, `real` has the indices (m,) of the real vectors in `a`, and their number in
    `b`; all other products are zero. The result is written to `buffer`, if given.
    """
    if real is None:
        return np.matmul(a, b.swapaxes(-1, -2), out=buffer)
    # The shape of a matrix product may change its rounding, so each row is multiplied alone.
    shape = len(a), a.shape[1], b.shape[1]
    products = np.empty(shape, np.float32) if buffer is None else buffer
    products[:] = 0
    for row, (indices, count) in enumerate(real):
        products[row, indices, :count] = a[row, indices] @ b[row, :count].T
    return products


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_id(word: str) -> int:
    """Return the id of a word, the same in all dialogs and for upper and lower case.

    Examples
    --------
    >>> word_id("Rome") == word_id("rome") != word_id("Paris")
    True
    """
    # Not Python's own hash, which differs in each process. 0 stands for no word.
    digest = hashlib.sha256(word.casefold().encode("utf-8", "replace")).digest()
    return 1 + int.from_bytes(digest[:4], "little")


Product = Literal["logits", "similarities"]
Feature = Literal["surprisal", "speakers", "kinds", "words", "tools", "traits"]


class ObservedTokens(Protocol):
    """What an observation reads of the tokens of B rows.

    The last column of an array (B, S, M + 1) is for index −1, the empty slot. In the flattened
    array, index −1 of a row reads the last column of the row before, which has the same value; so
    no mask is needed.
    """

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return products of some turns, this one included, and the index of this turn.

        ``logits`` are scaled products of each turn's mean query with the keys so far (B, S, M + 1),
        −inf in the last column; ``similarities`` are cosines of its mean embedding with the
        embeddings so far (B, S, M + 1), 0 in the last column.
        """

    @property
    def embeddings(self) -> Floats:
        """Embeddings (B, N, d), or (B / g, N, d) if g adjacent rows share them."""

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
        """Return the indices of the turn's tokens (B, n), padded with −1."""

    def query_logits(self, turn: int) -> Floats:
        """Return scaled products of a turn's queries with keys so far (B, n, M + 1), −inf last."""

    @property
    def future_attention(self) -> Floats:
        """The full cache's attention to each token, from each turn to the end (B, T, N + 1)."""

    @property
    def positions(self) -> Ints | None:
        """Position of each token in its dialog (B, N); None if it is its index."""

    @property
    def born(self) -> Ints:
        """The turn in which each token arrived (B, N)."""

    @property
    def heads(self) -> int:
        """Number of consecutive rows that are the heads of one layer of a dialog."""

    @property
    def layers(self) -> int:
        """Number of layers of a dialog."""

    @property
    def first_layer(self) -> int:
        """The layer of the first row."""

    def parts(self) -> Iterable[tuple[slice, ObservedTokens]]:
        """Return groups of consecutive rows with their tokens, to be computed one by one."""

    def feature(self, name: Feature) -> NDArray[Any] | None:
        """Return a feature of each token (B, N, …), if known.

        ``surprisal`` is in nats; ``speakers`` are indices into `SPEAKERS`, ``kinds`` into `KINDS`,
        −1 where unknown; ``words`` are `word_id` of each token's word, ``tools`` that of the tool's
        name for calls and results, 0 for none; ``traits`` are `TRAITS` (B, N, F).
        """


@dataclass(frozen=True, eq=False)
class Observation:
    """What a policy may look at in one turn (counted from 0), for any set of tokens.

    Every method takes `token` (B, C), indices of tokens with −1 for an empty slot, and returns one
    value per slot.
    """

    turn: int
    """From 0 over the dialog."""
    new: Ints
    """The turn's own tokens (B, n), padded with −1."""
    tokens: ObservedTokens
    """All tokens of the rows."""

    def remembered(self, name: str, token: Ints, compute: Callable[[], T]) -> T:
        """Return `compute()` for these tokens, computed once while `token` is the same array."""
        stored = self._remembered.get(name)
        # The same object, not equal numbers: to compare them would cost as much as many results.
        if stored is None or stored[0] is not token:
            stored = token, compute()
            self._remembered[name] = stored
        value: T = stored[1]
        return value

    @cached_property
    def _remembered(self) -> dict[str, tuple[Ints, Any]]:
        return {}

    def with_new(self, token: Ints) -> Observation:
        """Return the same turn with these tokens (B, n) as its own."""
        return replace(self, new=token)

    @cached_property
    def active(self) -> Bools:
        """Whether the row has tokens in this turn (B,); a turn without tokens changes nothing."""
        return np.asarray((self.new >= 0).any(axis=1))

    def parts(self) -> Iterator[tuple[slice, Observation]]:
        """Yield groups of rows with their observations, so that one group is copied at a time."""
        for rows, tokens in self.tokens.parts():
            yield rows, replace(self, new=self.new[rows], tokens=tokens)

    @cached_property
    def _turn_start(self) -> Ints:
        """Start of this turn of each row in the flattened products (B, S, M + 1)."""
        return _starts(*self.tokens.products("logits", self.turn))

    @cached_property
    def _row_start(self) -> Ints:
        """Start of each row in flattened columns of tokens (B, N): (B, 1)."""
        rows, tokens = self.tokens.born.shape
        return np.asarray((np.arange(rows) * tokens)[:, None])

    def position(self, token: Ints) -> Ints:
        """Position of each token in its dialog, from 0 (B, C); −1 in empty slots."""
        positions = self.tokens.positions
        return token if positions is None else self._of_token(positions, token, -1)

    def born(self, token: Ints) -> Ints:
        """Turn in which each token arrived (B, C); −1 in empty slots."""
        return self._of_token(self.tokens.born, token, -1)

    def _of_token(self, column: NDArray[Any], token: Ints, missing: int) -> NDArray[Any]:
        """Return a number (B, N) of each token (B, C), `missing` in empty slots."""
        # An empty slot reads a token of another row, so it is masked.
        numbers = column.reshape(-1).take(token + self._row_start)
        return np.where(token >= 0, numbers, missing)

    def spoken_by(self, token: Ints, speaker: str) -> Bools:
        """Whether a speaker of `SPEAKERS` said each token (B, C); false where unknown.

        The system's words include its prompt.
        """
        names = SPEAKERS[1:] if speaker == "system" else (speaker,)
        return self._among("speakers", token, map(SPEAKERS.index, names))

    def is_word(self, token: Ints, words: Sequence[str]) -> Bools:
        """Whether each token belongs to one of these words (B, C); false where unknown.

        In a script without spaces, each character of a word counts as a word.
        """
        ids = []
        for word in words:
            ids += [word_id(word[start:end]) for start, end in word_spans(word)]
        return self._among("words", token, ids)

    def is_kind(self, token: Ints, *kinds: str) -> Bools:
        """Whether each token is of one of these kinds of `KINDS` (B, C); false where unknown."""
        return self._among("kinds", token, map(KINDS.index, kinds))

    def is_tool(self, token: Ints, names: Sequence[str]) -> Bools:
        """Whether each token is of a call or result of one of these tools (B, C)."""
        return self._among("tools", token, map(word_id, names))

    def _among(self, name: Feature, token: Ints, numbers: Iterable[int]) -> Bools:
        """Whether a feature of each token is one of these numbers (B, C); never in empty slots."""
        column = self.tokens.feature(name)
        if column is None:
            return np.zeros(token.shape, np.bool_)
        return np.isin(self._of_token(column, token, -1), [*numbers])

    def traits(self, token: Ints) -> Floats:
        """Return the `TRAITS` of each token (B, C, F); 0 in empty slots and where unknown."""
        traits = self.tokens.feature("traits")
        if traits is None:
            return np.zeros((*token.shape, len(TRAITS)), np.float32)
        return self._present_vectors(traits, token)

    def logits(self, token: Ints) -> Floats:
        """Scaled product q̄·k/√h with the turn's mean query (B, C); −inf in empty slots."""
        return self._products("logits", token)

    def attention(self, token: Ints) -> Floats:
        """Attention of the mean query over exactly these tokens, a in Eq. 1 (B, C)."""
        return softmax(self.logits(token))

    def similarity(self, token: Ints) -> Floats:
        """Cosine cos(e, ē) with the turn's mean embedding (B, C), as in Eq. 4; 0 in empty slots."""
        return self._products("similarities", token)

    def _products(self, name: Product, token: Ints) -> Floats:
        """Return the product of this turn with each token (B, C)."""
        products, _ = self.tokens.products(name, self.turn)
        return products.reshape(-1).take(token + self._turn_start)

    def repetition(self, token: Ints) -> Floats:
        """Largest cosine of each token with a newer one of this turn (B, C), at least 0.

        This costs cached × new cosines; rows that share embeddings and tokens are computed once.
        """
        embeddings = self.tokens.embeddings
        group = len(token) // len(embeddings)  # rows that share embeddings
        if (token != np.repeat(token[::group], group, axis=0)).any():
            group = 1  # they hold different tokens
        largest = self._repetition(token, embeddings, slice(None, None, group))
        return np.repeat(largest, group, axis=0)

    def _repetition(self, token: Ints, embeddings: Floats, rows: slice) -> Floats:
        """Return the `repetition` of some rows."""
        position = self.position(token)[rows]
        new_position = self.position(self.new)[rows]
        token = token[rows]
        new = self.new[rows]
        in_cache = token >= 0
        in_turn = new >= 0
        cached = self._directions(embeddings, token)  # (B, C, d)
        added = self._directions(embeddings, new)  # (B, n, d)
        max_numbers = BLOCK // 4  # stays in a core's cache
        is_small = token.shape[1] * self.new.size <= max_numbers
        if is_small and in_cache.all() and in_turn.all():
            return _largest(row_products(cached, added), position, new_position)
        # The shape of a matrix product may change its rounding, so each row is multiplied alone.
        largest = np.zeros(token.shape, np.float32)
        for row in range(len(token)):
            columns = added[row, in_turn[row]].T  # (d, n)
            new_positions = new_position[row, in_turn[row]]  # (n,)
            slots = np.flatnonzero(in_cache[row])
            # Blocks of slots whose cosines have at most so many numbers; one buffer serves all.
            step = max(1, max_numbers // max(1, len(new_positions)))
            shape = min(step, len(slots)), len(new_positions)
            cosines = np.empty(shape, np.float32)
            for first in range(0, len(slots), step):
                block = slots[first : first + step]
                part = np.matmul(cached[row, block], columns, out=cosines[: len(block)])
                largest[row, block] = _largest(part, position[row, block], new_positions)
        return largest

    def _directions(self, embeddings: Floats, token: Ints) -> Floats:
        """Embedding of each token, scaled to length 1 (B, C, d)."""
        vectors = self._vectors(embeddings, token)
        vectors /= lengths_of(vectors)[:, :, None]
        return vectors

    def surprisal(self, token: Ints) -> Floats:
        """Surprisal −log p of each token in nats (B, C); 0 in empty slots.

        Raises a ValueError if these dialogs have none.
        """
        surprisal = self.tokens.feature("surprisal")
        if surprisal is None:
            raise ValueError(
                "this policy needs the surprisal of every token, which these dialogs do not have"
            )
        return self._of_token(surprisal, token, 0)

    def context(self, weights: Floats, token: Ints) -> Floats:
        """Context output Σ ŵ·v over these tokens (B, h), the result of Algorithm 1."""
        # An empty slot has the weight 0, so it does not matter which value it reads.
        values = self._vectors(self.tokens.values, token)
        return (weights[:, None, :] @ values)[:, 0]

    def keys(self, token: Ints) -> Floats:
        """Key of each token (B, C, h); zero in empty slots."""
        return self._present_vectors(self.tokens.keys, token)

    def values(self, token: Ints) -> Floats:
        """Value of each token (B, C, h); zero in empty slots."""
        return self._present_vectors(self.tokens.values, token)

    def queries(self, token: Ints) -> Floats:
        """Each token's own query (B, C, h); zero in empty slots."""
        return self._present_vectors(self.tokens.token_queries, token)

    def _present_vectors(self, vectors: Floats, token: Ints) -> Floats:
        """Return the vector (B, N, ·) of each token (B, C, ·); zero for an empty slot."""
        return self._vectors(vectors, token) * (token >= 0)[:, :, None]

    def _vectors(self, vectors: Floats, token: Ints) -> Floats:
        """Return the vector (B, N, ·) of each token (B, C, ·); any vector for an empty slot."""
        start = self._row_start[: len(vectors)]
        if len(vectors) < len(token):  # groups of rows share them
            start = np.repeat(start, len(token) // len(vectors), axis=0)
        return vectors.reshape(-1, vectors.shape[-1]).take(token + start, axis=0)

    @cached_property
    def _queried(self) -> Ints:
        """The tokens whose queries belong to this turn (B, n)."""
        return self.tokens.new_tokens(self.turn)

    @cached_property
    def query_count(self) -> Ints:
        """Number of queries of the turn, one for each of its tokens (B,)."""
        return np.asarray((self._queried >= 0).sum(axis=1))

    def visible(self, token: Ints) -> Bools:
        """Whether each of the turn's queries attends to each of these tokens (B, n, C).

        Attention is causal: a query sees its own token and all before it.
        """
        # Tokens are numbered in the order in which they are read.
        query_token = self._queried[:, :, None]
        return (token[:, None, :] <= query_token) & (token[:, None, :] >= 0)

    def attention_of_each(self, token: Ints, count: Ints | None = None) -> Floats:
        """Attention of each of the turn's queries over what it sees (B, n, C); padding is 0.

        With a `count` (B, 1), only so many last queries of each row, in order (B, max(count), C).
        """
        products = self.tokens.query_logits(self.turn)
        stop = self.query_count
        start = np.zeros_like(stop) if count is None else stop - count[:, 0]
        width = products.shape[1] if count is None else int(count.max(initial=0))
        logits = np.full((len(token), width, token.shape[1]), -np.inf, np.float32)
        for row, row_token in enumerate(token):
            source = row % len(products)  # one dialog may have several rows of tokens
            queries = slice(start[source], stop[source])
            row_logits = logits[row, : queries.stop - queries.start]  # (queries, C)
            # "wrap": index −1 of an empty slot reads the last column, −inf.
            np.take(products[source, queries], row_token, axis=1, out=row_logits, mode="wrap")
            # Causal: a query does not see later tokens.
            later = row_token > self._queried[source, queries, None]
            np.copyto(row_logits, -np.inf, where=later)
        return softmax(logits)

    def future_attention(self, token: Ints) -> Floats:
        """Attention of the full cache to each token, from this turn to the dialog's end (B, C)."""
        future = self.tokens.future_attention
        return future.reshape(-1).take(token + _starts(future, self.turn))
