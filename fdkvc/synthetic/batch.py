"""A batch of dialogs: all that a run reads of them.

A batch stores every token's embedding, key and value once; caches hold indices into it. Rows may
differ in turns and tokens: nothing points to padding, because the tokens of a turn are the range
between two bounds, and a slot without a token is −1.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.attention import (
    Arrivals,
    Bools,
    Floats,
    Ints,
    Observation,
    row_products,
    softmax,
)
from fdkvc.parameters import check_count

TOPIC_THRESHOLD = 0.3
"""A token has a topic if its cosine with it exceeds this (the paper's evaluation metrics)."""

LARGEST = 1e15
"""Largest allowed coordinate of a vector, so that no inner product overflows float32."""

_BLOCK = 8  # dialogs whose embeddings stay in a core's cache together

Bits = NDArray[np.uint32]


class Workspace:
    """Arrays that a worker reuses for its next dialogs: allocation costs more than arithmetic."""

    def __init__(self) -> None:
        self._held: dict[str, Floats] = {}

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """Return an uninitialized array that reuses the memory of the last one of this name."""
        size = math.prod(shape)
        if name not in self._held or self._held[name].size < size:
            self._held[name] = np.empty(size, np.float32)
        return self._held[name][:size].reshape(shape)


@dataclass(frozen=True, eq=False)
class DialogBatch:
    """B dialogs (or heads of dialogs) with all their tokens.

    Attributes
    ----------
    embeddings : array (B, N, d)
    keys, values : array (B, N, h)
    bounds : array (B, T + 1)
        The tokens of turn t are ``bounds[t]`` up to, not including, ``bounds[t + 1]``.
    turn_counts : array (B,)
        Turns of each row; later ones are padding.
    topic_bits : array (B, N) of uint32
        Bit k is set if the token has topic k.
    current : array (B, T)
        The current topic of each turn; −1 for none.
    positions : array (B, N), optional
        Position of each token in its dialog; its index by default.
    queries : array (B, N, h), optional
        Each token's own query; by default projected from the embeddings.
    surprisal : array (B, N), optional
        −log of the probability of each token, in nats.
    topics : array (B, K, d), optional
        Unit vectors of the topics.
    projections : array (3, B, d, h), optional
        W_Q, W_K and W_V of each row.
    speakers : array (B, T), optional
        Speaker of each turn, as an index into `fdkvc.attention.SPEAKERS`.
    words : array (B, N), optional
        `fdkvc.attention.word_id` of each token's word, 0 for none.
    heads : int
        Number of consecutive rows that are the heads of a dialog.
    workspace : Workspace, optional
        Memory for its products; new memory by default.
    """

    embeddings: Floats
    keys: Floats
    values: Floats
    bounds: Ints
    turn_counts: Ints
    topic_bits: Bits
    current: Ints
    topic_names: tuple[str, ...]
    positions: Ints | None = None
    queries: Floats | None = None
    surprisal: Floats | None = None
    topics: Floats | None = None
    projections: Floats | None = None
    speakers: Ints | None = None
    words: Ints | None = None
    heads: int = 1
    workspace: Workspace | None = None

    layers: ClassVar[int] = 1

    @property
    def rows(self) -> int:
        """Number of rows B."""
        return len(self.embeddings)

    @property
    def turns(self) -> int:
        """Turns T of the longest row."""
        return int(self.bounds.shape[1]) - 1

    @cached_property
    def turn_tokens(self) -> int:
        """Tokens of the longest turn."""
        return int(np.diff(self.bounds).max(initial=0))

    def new_tokens(self, turn: int) -> Ints:
        """Return the indices of the turn's tokens (B, n), padded with −1."""
        low, high = self.bounds[:, turn, None], self.bounds[:, turn + 1, None]
        token = low + np.arange(int((high - low).max(initial=0)), dtype=np.intp)
        return np.where(token < high, token, -1)

    @cached_property
    def born(self) -> Ints:
        """The turn of each token (B, N)."""
        token = np.arange(self.embeddings.shape[1])
        return np.stack([np.searchsorted(row[1:-1], token, side="right") for row in self.bounds])

    @cached_property
    def spoken_by(self) -> Ints | None:
        """Speaker of each token (B, N), if known."""
        if self.speakers is None:
            return None
        return np.take_along_axis(self.speakers, np.minimum(self.born, self.turns - 1), axis=1)

    @cached_property
    def in_turns(self) -> Bools:
        """Whether a turn belongs to the row (B, T) or is padding."""
        belongs: Bools = np.arange(self.turns) < self.turn_counts[:, None]
        return belongs

    @cached_property
    def topic_counts(self) -> Ints:
        """Number of topics that occur in each row (B,)."""
        every: Bits = np.bitwise_or.reduce(self.topic_bits, axis=1)
        return np.bitwise_count(every).astype(np.intp)

    @cached_property
    def _real(self) -> list[tuple[Ints, int]] | None:
        """The turns of each row with tokens, and its number of tokens; None without padding."""
        has_tokens, tokens = np.diff(self.bounds) > 0, self.bounds[:, -1]
        if has_tokens.all() and (tokens == self.keys.shape[1]).all():
            return None
        turns = map(np.flatnonzero, has_tokens)
        return list(zip(turns, tokens.tolist(), strict=True))

    def _turn_means(self, x: Floats) -> Floats:
        """Mean over each turn's tokens (B, T, ·); zero for a turn without tokens."""
        steps = np.diff(self.bounds)
        n = int(steps[0, 0]) if steps.size else 0
        if n and (steps == n).all() and not self.bounds[:, 0].any():
            return _mean_of_tokens(x.reshape(self.rows, self.turns, n, x.shape[-1]))
        means = np.zeros((self.rows, self.turns, x.shape[-1]), x.dtype)
        for row, turn in np.argwhere(steps > 0):
            low, high = self.bounds[row, turn], self.bounds[row, turn + 1]
            means[row, turn] = _mean_of_tokens(x[row, low:high])
        return means

    @cached_property
    def mean_embeddings(self) -> Floats:
        """ē, the mean embedding of each turn (B, T, d)."""
        return self._turn_means(self.embeddings)

    @cached_property
    def mean_queries(self) -> Floats:
        """q̄, the mean query of each turn (B, T, h)."""
        if self.queries is not None:
            return self._turn_means(self.queries)
        # The mean of projected tokens is the projected mean.
        matrix = self.projection("query").swapaxes(-1, -2)
        width = matrix.shape[1]
        real = self._real and [(turns, width) for turns, _ in self._real]
        return row_products(self.mean_embeddings, matrix, real)

    @cached_property
    def logits(self) -> Floats:
        """q̄·k/√h of every turn's mean query with every token's key (B, T, N + 1), as in Eq. 1.

        The last column is −inf: index −1, the empty slot, finds it.
        """
        scale = np.float32(1 / np.sqrt(self.keys.shape[-1]))
        products = self._turn_products("logits", self.mean_queries * scale, self.keys)
        products[:, :, -1] = -np.inf
        return products

    @cached_property
    def similarities(self) -> Floats:
        """cos(e, ē) of every turn's mean embedding with every token's (B, T, N + 1), as in Eq. 4.

        The last column is 0: index −1, the empty slot, finds it.
        """
        means = self.mean_embeddings
        directions = means / _lengths_of(means)[:, :, None]
        products = self._turn_products("similarities", directions, self.embeddings, cosines=True)
        products[:, :, -1] = 0
        return products

    def _turn_products(
        self, name: str, by_turn: Floats, by_token: Floats, cosines: bool = False
    ) -> Floats:
        """Inner products of each row's turns with its tokens, and a spare last column."""
        shape = (self.rows, self.turns, by_token.shape[1] + 1)
        products = (self.workspace or Workspace()).array(name, shape)
        for some in _blocks(self.rows):
            real = self._real and self._real[some]
            own = by_token[some]
            row_products(by_turn[some], own, real, out=products[some, :, :-1])
            if cosines:
                products[some, :, :-1] *= (1 / _lengths_of(own))[:, None, :]
        return products

    @cached_property
    def token_queries(self) -> Floats:
        """Each token's own query (B, N, h)."""
        if self.queries is not None:
            return self.queries
        return row_products(
            self.embeddings,
            self.projection("query").swapaxes(-1, -2),
            self._real and [(np.arange(tokens), self.keys.shape[-1]) for _, tokens in self._real],
        )

    def query_logits(self, turn: int) -> Floats:
        """q·k/√h of each of a turn's own queries with the keys up to its end (B, n, M + 1).

        The last column is −inf: index −1, the empty slot, finds it.
        """
        token = self.new_tokens(turn)
        scale = np.float32(1 / np.sqrt(self.keys.shape[-1]))
        rows = np.arange(self.rows)[:, None]
        queries = self.token_queries[rows, token] * scale
        ends = self.bounds[:, turn + 1]
        counts = ends - self.bounds[:, turn]
        products = np.empty((self.rows, token.shape[1], int(ends.max()) + 1), np.float32)
        alike = (counts == counts[0]).all() and (ends == ends[0]).all()
        real = None if alike else list(zip(map(np.arange, counts), ends.tolist(), strict=True))
        row_products(queries, self.keys[:, : int(ends.max())], real, out=products[:, :, :-1])
        products[:, :, -1] = -np.inf
        return products

    @cached_property
    def full_attention(self) -> Floats:
        """Attention of each turn's mean query without eviction (B, T, N); 0 for later tokens."""
        seen = self.born[:, None, :] <= np.arange(self.turns)[:, None]
        seen &= np.arange(self.keys.shape[1]) < self.bounds[:, -1, None, None]
        seen &= (np.diff(self.bounds) > 0)[:, :, None]
        return softmax(np.where(seen, self.logits[:, :, :-1], np.float32(-np.inf)))

    @cached_property
    def full_output(self) -> Floats:
        """Context output of each turn without eviction (B, T, h)."""
        if self._real is None:
            return self.full_attention @ self.values
        output = np.zeros((self.rows, self.turns, self.values.shape[-1]), np.float32)
        for row, (turns, tokens) in enumerate(self._real):
            weights = self.full_attention[row, turns, :tokens]
            output[row, turns] = weights @ self.values[row, :tokens]
        return output

    @cached_property
    def future_attention(self) -> Floats:
        """Attention of the full cache to each token, from each turn to the end (B, T, N + 1).

        The last column is 0: index −1, the empty slot, finds it.
        """
        come = np.zeros((self.rows, self.turns, self.keys.shape[1] + 1), np.float32)
        come[:, :, :-1] = np.cumsum(self.full_attention[:, ::-1], axis=1)[:, ::-1]
        return come

    def observe(self, turn: int) -> Observation:
        """Return the observation of a turn."""
        if turn not in self._arrivals:
            self._arrivals[turn] = Arrivals(self.new_tokens(turn))
        return Observation(turn, self._arrivals[turn], self)

    @cached_property
    def _arrivals(self) -> dict[int, Arrivals]:
        return {}

    def projection(self, space: str) -> Floats:
        """Return W_Q, W_K or W_V of each row (B, d, h) for ``query``, ``key`` or ``value``.

        Raises
        ------
        ValueError
            If the space is unknown or these dialogs have no projections.
        """
        spaces = ("query", "key", "value")
        if space not in spaces:
            raise ValueError(f"projection {space!r} is unknown: choose from {', '.join(spaces)}")
        if self.projections is None:
            raise ValueError("these dialogs come without projection matrices")
        matrix: Floats = self.projections[spaces.index(space)]
        return matrix

    def topic_label(self, topic: int) -> str:
        """Return a topic's name, or a dash where there is none (topic −1)."""
        return self.topic_names[topic] if topic >= 0 else "–"

    def topics_of(self, row: int, token: Ints) -> list[str]:
        """Name the topics of tokens of a row, several joined by ``+``, none empty.

        Examples
        --------
        >>> from fdkvc.synthetic.draw import generate
        >>> from fdkvc.synthetic.scenarios import SCENARIOS
        >>> generate(SCENARIOS["shift"]).topics_of(0, np.array([0, 319]))
        ['A', 'B']
        """
        return [
            "+".join(name for k, name in enumerate(self.topic_names) if bits >> k & 1)
            for bits in self.topic_bits[row, token].tolist()
        ]

    def until(self, turn: int) -> DialogBatch:
        """Return these dialogs up to and including a turn, as if they ended there.

        Examples
        --------
        >>> from fdkvc.synthetic.draw import generate
        >>> from fdkvc.synthetic.scenarios import SCENARIOS
        >>> generate(SCENARIOS["shift"]).until(4).turns
        5
        """
        turns = turn + 1
        bounds = self.bounds[:, : turns + 1]
        ends = bounds[:, -1:]
        tokens = int(ends.max())
        kept = np.arange(tokens) < ends
        part = dataclasses.replace(
            self,
            workspace=None,
            embeddings=self.embeddings[:, :tokens],
            keys=self.keys[:, :tokens],
            values=self.values[:, :tokens],
            bounds=bounds,
            turn_counts=np.minimum(self.turn_counts, turns),
            topic_bits=np.where(kept, self.topic_bits[:, :tokens], np.uint32(0)),
            current=self.current[:, :turns],
            positions=None if self.positions is None else self.positions[:, :tokens],
            queries=None if self.queries is None else self.queries[:, :tokens],
            speakers=None if self.speakers is None else self.speakers[:, :turns],
            words=None if self.words is None else self.words[:, :tokens],
            surprisal=None if self.surprisal is None else self.surprisal[:, :tokens],
        )
        # Products of another shape may round differently, so these are sliced, not recomputed.
        kept_columns = [*range(tokens), -1]
        part.__dict__["logits"] = self.logits[:, :turns].take(kept_columns, axis=2)
        part.__dict__["similarities"] = self.similarities[:, :turns].take(kept_columns, axis=2)
        part.__dict__["token_queries"] = self.token_queries[:, :tokens]
        come = self.future_attention[:, :turns].take(kept_columns, axis=2)
        part.__dict__["future_attention"] = come
        return part

    def row(self, index: int) -> DialogBatch:
        """Return one row as a batch of its own, without padding."""
        turns = int(self.turn_counts[index])
        tokens = int(self.bounds[index, turns])
        one = slice(index, index + 1)
        return dataclasses.replace(
            self,
            workspace=None,
            embeddings=self.embeddings[one, :tokens],
            keys=self.keys[one, :tokens],
            values=self.values[one, :tokens],
            bounds=self.bounds[one, : turns + 1],
            turn_counts=self.turn_counts[one],
            topic_bits=self.topic_bits[one, :tokens],
            current=self.current[one, :turns],
            queries=None if self.queries is None else self.queries[one, :tokens],
            surprisal=None if self.surprisal is None else self.surprisal[one, :tokens],
            topics=None if self.topics is None else self.topics[one],
            projections=None if self.projections is None else self.projections[:, one],
            speakers=None if self.speakers is None else self.speakers[one, :turns],
            words=None if self.words is None else self.words[one, :tokens],
            heads=1,
        )


def _blocks(rows: int) -> Iterator[slice]:
    """Yield slices of a few rows, whose vectors fit into a core's cache."""
    for first in range(0, rows, _BLOCK):
        yield slice(first, first + _BLOCK)


def _lengths_of(x: Floats) -> Floats:
    """Length of each vector (...), with 1 for zero vectors."""
    length: Floats = np.sqrt(np.einsum("...d,...d->...", x, x))
    length[length == 0] = 1
    return length


def _mean_of_tokens(x: Floats) -> Floats:
    """Mean over the tokens of (..., n, d), as a matrix product, which is faster than a sum."""
    tokens = x.shape[-2]
    share = np.full((1, tokens), 1 / tokens, np.float32)
    mean: Floats = (share @ x)[..., 0, :]
    return mean


def _topic_cosines(embeddings: Floats, topics: Floats) -> Floats:
    """Cosine of every token with every topic (B, N, K); topics are unit vectors."""
    cosines: Floats = np.einsum("bnd,bkd->bnk", embeddings, topics)
    cosines /= _lengths_of(embeddings)[:, :, None]
    return cosines


def _pack_bits(of_topic: Bools) -> Bits:
    """Pack (..., K) booleans into one integer each, bit k for topic k."""
    weights = np.uint32(1) << np.arange(of_topic.shape[-1], dtype=np.uint32)
    packed: Bits = (of_topic * weights).sum(axis=-1, dtype=np.uint32)
    return packed


def one_dialog(
    *,
    embeddings: ArrayLike,
    queries: ArrayLike,
    keys: ArrayLike,
    values: ArrayLike,
    turn_lengths: Sequence[int],
    turn_topics: Sequence[str | None] | None = None,
    surprisal: ArrayLike | None = None,
) -> DialogBatch:
    """Make a batch of one dialog from arrays.

    Parameters
    ----------
    embeddings : array (N, d)
    queries, keys, values : array (N, h)
    turn_lengths : sequence of int
        Tokens of each turn; their sum is N. A turn may have none.
    turn_topics : sequence of str or None, optional
        The current topic of each turn and of its tokens.
    surprisal : array (N,), optional
        −log of the probability of each token, in nats.

    Raises
    ------
    ValueError
        If shapes differ, a number is not finite, or there are no tokens.
    """
    arrays = {"embeddings": embeddings, "queries": queries, "keys": keys, "values": values}
    checked = {name: check_vectors(name, array, 2) for name, array in arrays.items()}
    check_count("the number of turns", len(turn_lengths))
    for turn, length in enumerate(turn_lengths):
        check_count(f"the number of tokens in turn {turn}", length, low=0)
    lengths = np.array(turn_lengths, np.intp)
    tokens = int(lengths.sum())
    check_count("the number of tokens", tokens)
    for name, array in checked.items():
        if len(array) != tokens:
            raise ValueError(f"{name} holds {len(array)} tokens, but the turns add up to {tokens}")
    for name in ("queries", "values"):
        array = checked[name]
        if array.shape != checked["keys"].shape:
            raise ValueError(
                f"{name} has shape {array.shape}, but keys have {checked['keys'].shape}"
            )
    names = tuple(dict.fromkeys(topic for topic in turn_topics or () if topic is not None))
    if turn_topics is not None and len(turn_topics) != len(lengths):
        raise ValueError(f"there are {len(turn_topics)} turn topics for {len(lengths)} turns")
    if len(names) > 32:
        raise ValueError(f"the dialog has {len(names)} topics, but at most 32 are allowed")
    topics = turn_topics or [None] * len(lengths)
    current = np.array([-1 if each is None else names.index(each) for each in topics], np.intp)
    bits = np.where(current >= 0, np.uint32(1) << np.maximum(current, 0).astype(np.uint32), 0)
    return DialogBatch(
        embeddings=checked["embeddings"][None],
        queries=checked["queries"][None],
        surprisal=None if surprisal is None else check_surprisal(surprisal, tokens)[None],
        keys=checked["keys"][None],
        values=checked["values"][None],
        bounds=np.concatenate([[0], np.cumsum(lengths)])[None],
        turn_counts=np.array([len(lengths)]),
        topic_bits=np.repeat(bits.astype(np.uint32), lengths)[None],
        current=current[None],
        topic_names=names,
    )


def check_vectors(name: str, array: ArrayLike, axes: int) -> Floats:
    """Return `array` as float32, or raise a ValueError that names it."""
    try:
        with np.errstate(over="ignore"):  # infinity is rejected below
            checked = np.asarray(array, dtype=np.float32)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers in an array of {axes} axes") from None
    if checked.ndim != axes:
        raise ValueError(f"{name} has {checked.ndim} axes, but must have {axes}")
    if not checked.shape[-1]:
        raise ValueError(f"{name} has no dimensions, but must have at least 1")
    if not np.isfinite(checked).all():
        raise ValueError(f"{name} holds a number that is not finite (NaN or infinity)")
    if np.abs(checked).max(initial=0) > LARGEST:
        raise ValueError(f"{name} holds a number beyond ±{LARGEST:.0e}, whose products overflow")
    return checked


def check_surprisal(surprisal: ArrayLike, tokens: int) -> Floats:
    """Return the surprisal of the tokens (N,) as float32, or raise a ValueError."""
    checked = check_vectors("surprisal", surprisal, 1) if tokens else np.zeros(0, np.float32)
    if len(checked) != tokens:
        raise ValueError(f"surprisal holds {len(checked)} numbers, but there are {tokens} tokens")
    if (checked < 0).any():
        raise ValueError("surprisal holds a number below 0, but no probability is above 1")
    return checked


def stack(batches: Sequence[DialogBatch]) -> DialogBatch:
    """Put the rows of several batches into one, padded to the longest.

    Raises
    ------
    ValueError
        If the batches differ in dimensions, heads or topic names, or only some have their own
        queries or surprisal.
    """
    first = batches[0]
    for batch in batches:
        if batch.topic_names != first.topic_names:
            raise ValueError(f"topic names differ: {batch.topic_names} and {first.topic_names}")
        if batch.embeddings.shape[2] != first.embeddings.shape[2]:
            raise ValueError("the dialogs differ in embedding dimension")
        if batch.keys.shape[2] != first.keys.shape[2]:
            raise ValueError("the dialogs differ in head dimension")
        if batch.heads != first.heads:
            raise ValueError("the dialogs differ in their number of heads")
        if (batch.queries is None) != (first.queries is None):
            raise ValueError("some of the dialogs have their own queries, others do not")
        if (batch.surprisal is None) != (first.surprisal is None):
            raise ValueError("some of the dialogs have surprisal, others do not")
    tokens = max(batch.embeddings.shape[1] for batch in batches)
    turns = max(batch.turns for batch in batches)

    def joined(name: str, length: int, fill: str = "zero") -> NDArray[Any]:
        parts = []
        for batch in batches:
            array = getattr(batch, name)
            shape = (len(array), length - array.shape[1], *array.shape[2:])
            if fill == "edge":
                rest = np.broadcast_to(array[:, -1:], shape)
            else:
                rest = np.full(shape, -1 if fill == "none" else 0, array.dtype)
            parts.append(np.concatenate([array, rest], axis=1))
        return np.concatenate(parts)

    def in_all(name: str) -> bool:
        return all(getattr(batch, name) is not None for batch in batches)

    def shared(name: str, axis: int) -> Floats | None:
        arrays = [getattr(batch, name) for batch in batches]
        return np.concatenate(arrays, axis=axis) if in_all(name) else None

    return DialogBatch(
        embeddings=joined("embeddings", tokens),
        keys=joined("keys", tokens),
        values=joined("values", tokens),
        bounds=joined("bounds", turns + 1, "edge"),
        turn_counts=np.concatenate([batch.turn_counts for batch in batches]),
        topic_bits=joined("topic_bits", tokens),
        current=joined("current", turns, "none"),
        topic_names=first.topic_names,
        queries=joined("queries", tokens) if in_all("queries") else None,
        surprisal=joined("surprisal", tokens) if in_all("surprisal") else None,
        topics=shared("topics", 0),
        projections=shared("projections", 1),
        speakers=joined("speakers", turns, "none") if in_all("speakers") else None,
        words=joined("words", tokens) if in_all("words") else None,
        heads=first.heads,
    )
