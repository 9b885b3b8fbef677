"""A batch of dialogs: everything that a run reads of them.

A batch stores every token's embedding, key and value once; caches hold indices into it. Rows may
differ in turns and tokens: nothing points to padding, because the tokens of a turn are the range
between two bounds, and a slot without a token is −1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import (
    BLOCK,
    Bools,
    Feature,
    Floats,
    Ints,
    Observation,
    Product,
    lengths_of,
    row_products,
    softmax,
)
from fdkvc.core.limits import MAX_QUERY_LOGITS

BY_TOKEN = (
    "embeddings",
    "keys",
    "values",
    "topic_bits",
    "positions",
    "queries",
    "surprisal",
    "speakers",
    "kinds",
    "tools",
    "words",
    "traits",
)
"""Arrays of a batch with an axis of tokens."""

Bits = NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class DialogBatch:
    """B dialogs (or heads of dialogs) with all their tokens."""

    embeddings: Floats
    """Shape (B, N, d)."""
    keys: Floats
    """Shape (B, N, h)."""
    values: Floats
    """Shape (B, N, h)."""
    bounds: Ints
    """Shape (B, T + 1). Turn t has the tokens from ``bounds[t]`` up to, not including,
    ``bounds[t + 1]``."""
    turn_counts: Ints
    """Shape (B,). Turns of each row; later ones are padding."""
    topic_bits: Bits
    """Shape (B, N). Bit k is set if the token has topic k."""
    current: Ints
    """Shape (B, T). The current topic of each turn; −1 for none."""
    topic_names: tuple[str, ...]
    """Shape (K,)."""
    positions: Ints | None = None
    """Shape (B, N). Position of each token in its dialog; its index by default."""
    queries: Floats | None = None
    """Shape (B, N, h). Each token's own query; by default projected from the embeddings."""
    surprisal: Floats | None = None
    """Shape (B, N). −log of the probability of each token, in nats."""
    topics: Floats | None = None
    """Shape (B, K, d). Unit vectors of the topics."""
    projections: Floats | None = None
    """Shape (3, B, d, h). W_Q, W_K and W_V of each row."""
    speakers: Ints | None = None
    """Shape (B, N). Speaker of each token, as an index into `fdkvc.core.attention.SPEAKERS`."""
    kinds: Ints | None = None
    """Shape (B, N). Kind of each token, as an index into `fdkvc.core.attention.KINDS`; −1 where
    unknown."""
    tools: Ints | None = None
    """Shape (B, N). `fdkvc.core.attention.word_id` of the name of the tool of each call and result,
    0 for none."""
    words: Ints | None = None
    """Shape (B, N). `fdkvc.core.attention.word_id` of each token's word, 0 for none."""
    traits: Floats | None = None
    """Shape (B, N, F). `fdkvc.core.attention.TRAITS` of each token."""
    heads: int = 1
    """Number of consecutive rows that are the heads of a dialog."""

    layers: ClassVar[int] = 1
    first_layer: ClassVar[int] = 0

    def parts(self) -> Iterator[tuple[slice, DialogBatch]]:
        """Yield all rows as one group."""
        yield slice(None), self

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
        low = self.bounds[:, turn, None]
        high = self.bounds[:, turn + 1, None]
        longest = int((high - low).max(initial=0))
        token = low + np.arange(longest, dtype=np.intp)
        return np.where(token < high, token, -1)

    @cached_property
    def born(self) -> Ints:
        """The turn of each token (B, N)."""
        # Only inner bounds count, so that padding after the last token belongs to the last turn.
        token = np.arange(self.embeddings.shape[1])
        return np.stack(
            [np.searchsorted(row[1:-1], token, side="right") for row in self.bounds]
        )

    def feature(self, name: Feature) -> NDArray[Any] | None:
        """Return a feature of each token, if known; see `ObservedTokens`."""
        feature: NDArray[Any] | None = getattr(self, name)
        return feature

    @cached_property
    def in_turns(self) -> Bools:
        """Whether a turn belongs to the row (B, T) or is padding."""
        return np.arange(self.turns) < self.turn_counts[:, None]

    @cached_property
    def topic_counts(self) -> Ints:
        """Number of topics that occur in each row (B,)."""
        bits: Bits = np.bitwise_or.reduce(self.topic_bits, axis=1)
        return np.bitwise_count(bits).astype(np.intp)

    def _real(self, turns: slice = slice(None)) -> list[tuple[Ints, int]] | None:
        """Return for each row the turns of these with tokens, and its number of tokens so far.

        Turns count from the first of these. None without padding; see `row_products`.
        """
        has_tokens = np.diff(self.bounds)[:, turns] > 0
        tokens = self.bounds[:, 1:][:, turns][:, -1]
        if has_tokens.all() and (tokens == tokens.max()).all():
            return None
        indices = map(np.flatnonzero, has_tokens)
        return list(zip(indices, tokens.tolist(), strict=True))

    def _turn_means(self, x: Floats) -> Floats:
        """Mean over each turn's tokens (B, T, ·); zero for a turn without tokens."""
        lengths = np.diff(self.bounds)
        n = int(lengths[0, 0]) if lengths.size else 0
        # Equal turns without padding, as in synthetic dialogs: one product for all.
        # Before the first turn of a stream stand the tokens that are cached already.
        if n and (lengths == n).all() and not self.bounds[:, 0].any():
            return _mean_of_tokens(x.reshape(self.rows, self.turns, n, x.shape[-1]))
        means = np.zeros((self.rows, self.turns, x.shape[-1]), x.dtype)
        for row, turn in np.argwhere(lengths > 0):
            low = self.bounds[row, turn]
            high = self.bounds[row, turn + 1]
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
        # The mean of projected tokens is the projected mean: T products instead of N.
        matrix = self.projection("query").swapaxes(-1, -2)
        real = self._real()
        if real is not None:
            # The matrix has no padding: all of its columns are real.
            real = [(turns, matrix.shape[1]) for turns, _ in real]
        return row_products(self.mean_embeddings, matrix, real)

    def products(self, name: Product, turn: int) -> tuple[Floats, int]:
        """Return the logits or similarities of some turns, and this turn's index among them.

        Logits are q̄·k/√h of a turn's mean query with the keys, as in Eq. 1, similarities cos(e, ē)
        of its mean embedding with the embeddings, as in Eq. 4. Those of as many turns as are few
        numbers, all if possible, are computed at once, with the tokens up to them, and stored in
        place of earlier ones. Runs in other threads may still be reading the earlier ones.
        """
        span = max(1, BLOCK // (self.keys.shape[1] + 1))
        first = turn - turn % span
        recent = self._recent.get(name)
        if recent is None or recent[0] != first:
            recent = None  # so that the old products are freed before new ones are computed
            self._recent.pop(name, None)
            turns = slice(first, min(first + span, self.turns))
            recent = first, self._turn_products(name, turns)
            self._recent[name] = recent
        return recent[1], turn - first

    @cached_property
    def _recent(self) -> dict[Product, tuple[int, Floats]]:
        """By name, the stored products and the first turn that they are of."""
        return {}

    def _turn_products(self, name: Product, turns: slice) -> Floats:
        """Products of S turns of each row with its tokens until the last of them (B, S, M + 1).

        Index −1, the empty slot, finds the last column: −inf for logits, 0 for similarities.
        """
        if name == "logits":
            scale = np.float32(1 / np.sqrt(self.keys.shape[-1]))
            by_turn = self.mean_queries[:, turns] * scale
            by_token = self.keys
        else:
            by_turn = self.mean_embeddings[:, turns]
            by_turn = by_turn / lengths_of(by_turn)[:, :, None]
            by_token = self.embeddings
        count = int(self.bounds[:, turns.stop].max())
        by_token = by_token[:, :count]
        products = np.empty((*by_turn.shape[:2], count + 1), np.float32)
        row_products(by_turn, by_token, self._real(turns), buffer=products[:, :, :-1])
        if name == "similarities":
            products[:, :, :-1] *= (1 / lengths_of(by_token))[:, None, :]
        products[:, :, -1] = -np.inf if name == "logits" else 0
        return products

    @cached_property
    def token_queries(self) -> Floats:
        """Each token's own query (B, N, h)."""
        if self.queries is not None:
            return self.queries
        matrix = self.projection("query").swapaxes(-1, -2)
        real = self._real()
        if real is not None:
            real = [(np.arange(tokens), matrix.shape[1]) for _, tokens in real]
        return row_products(self.embeddings, matrix, real)

    def query_logits(self, turn: int) -> Floats:
        """q·k/√h of each of a turn's own queries with the keys up to its end (B, n, M + 1).

        The last column is −inf: index −1, the empty slot, finds it. Raises a ValueError if they
        exceed `MAX_QUERY_LOGITS`.
        """
        token = self.new_tokens(turn)
        end = self.bounds[:, turn + 1]
        tokens = int(end.max())
        if token.size * tokens > MAX_QUERY_LOGITS:
            raise ValueError(
                f"turn {turn} has {token.size:,} queries over {tokens:,} tokens, but a policy that "
                f"looks at each query computes at most {MAX_QUERY_LOGITS:,} products at once: "
                "choose another policy"
            )
        scale = np.float32(1 / np.sqrt(self.keys.shape[-1]))
        rows = np.arange(self.rows)[:, None]
        queries = self.token_queries[rows, token] * scale
        counts = end - self.bounds[:, turn]
        products = np.empty((self.rows, token.shape[1], tokens + 1), np.float32)
        real = None
        if (counts != counts[0]).any() or (end != end[0]).any():
            real = list(zip(map(np.arange, counts), end.tolist(), strict=True))
        row_products(queries, self.keys[:, :tokens], real, buffer=products[:, :, :-1])
        products[:, :, -1] = -np.inf
        return products

    @cached_property
    def full_attention(self) -> Floats:
        """Attention of each turn's mean query without eviction (B, T, N); 0 for later tokens."""
        # Causal, without padding, and only for turns that have a query.
        visible = self.born[:, None, :] <= np.arange(self.turns)[:, None]
        visible &= np.arange(self.keys.shape[1]) < self.bounds[:, -1, None, None]
        visible &= (np.diff(self.bounds) > 0)[:, :, None]
        logits = self._turn_products("logits", slice(0, self.turns))
        masked = np.where(visible, logits[:, :, :-1], -np.inf)
        return softmax(masked)

    @cached_property
    def full_output(self) -> Floats:
        """Context output of each turn without eviction (B, T, h)."""
        real = self._real()
        if real is None:
            return self.full_attention @ self.values
        output = np.zeros((self.rows, self.turns, self.values.shape[-1]), np.float32)
        for row, (turns, tokens) in enumerate(real):
            weights = self.full_attention[row, turns, :tokens]
            output[row, turns] = weights @ self.values[row, :tokens]
        return output

    @cached_property
    def future_attention(self) -> Floats:
        """Attention of the full cache to each token, from each turn to the end (B, T, N + 1).

        The last column is 0: index −1, the empty slot, finds it.
        """
        # A cumulative sum from the last turn backwards.
        future = np.zeros((self.rows, self.turns, self.keys.shape[1] + 1), np.float32)
        last_turn_first = self.full_attention[:, ::-1]
        future[:, :, :-1] = np.cumsum(last_turn_first, axis=1)[:, ::-1]
        return future

    def observe(self, turn: int) -> Observation:
        """Return the observation of a turn."""
        return Observation(turn, self.new_tokens(turn), self)

    def projection(self, space: str) -> Floats:
        """Return W_Q, W_K or W_V of each row (B, d, h) for ``query``, ``key`` or ``value``."""
        spaces = ("query", "key", "value")
        if space not in spaces:
            raise ValueError(
                f"projection {space!r} is unknown: choose from {', '.join(spaces)}"
            )
        if self.projections is None:
            raise ValueError("these dialogs come without projection matrices")
        return np.asarray(self.projections[spaces.index(space)])

    def topic_label(self, topic: int) -> str:
        """Return a topic's name, or a dash where there is none (topic −1)."""
        return self.topic_names[topic] if topic >= 0 else "–"

    def topics_of(self, row: int, token: Ints) -> NDArray[Any]:
        """Name the topics of tokens of a row: several are joined by ``+``, none is empty.

        Examples
        --------
        >>> from fdkvc import SCENARIOS, generate
        >>> generate(SCENARIOS["shift"]).topics_of(0, np.array([0, 319])).tolist()
        ['A', 'B']
        """
        # There are many tokens, but few patterns of topics to be named.
        patterns, index = np.unique(self.topic_bits[row, token], return_inverse=True)
        labels = []
        for bits in patterns.tolist():
            names = (name for k, name in enumerate(self.topic_names) if bits >> k & 1)
            labels.append("+".join(names))
        return np.array(labels, object)[index]

    def row(self, index: int) -> DialogBatch:
        """Return one row as a batch of its own, without padding."""
        rows = slice(index, index + 1)
        turns = int(self.turn_counts[index])
        tokens = int(self.bounds[index, turns])
        columns = {}
        for name in BY_TOKEN:
            column = getattr(self, name)
            if column is not None:
                columns[name] = column[rows, :tokens]
        return dataclasses.replace(
            self,
            bounds=self.bounds[rows, : turns + 1],
            turn_counts=self.turn_counts[rows],
            current=self.current[rows, :turns],
            topics=None if self.topics is None else self.topics[rows],
            projections=None if self.projections is None else self.projections[:, rows],
            heads=1,
            **columns,
        )


def topic_bit(topic: Ints) -> Bits:
    """Return a number with the bit of each topic (...); 0 for topic −1."""
    # `maximum`: a shift by −1 is undefined, even where `where` drops its result.
    bit = 1 << np.maximum(topic, 0)
    return np.where(topic >= 0, bit, 0).astype(np.uint32)


def _mean_of_tokens(x: Floats) -> Floats:
    """Mean over the tokens of (..., n, d), as a matrix product, which is faster than a sum."""
    tokens = x.shape[-2]
    share = np.full((1, tokens), 1 / tokens, np.float32)
    return (share @ x)[..., 0, :]


def stack(batches: Sequence[DialogBatch]) -> DialogBatch:
    """Put the rows of several batches into one, padded to the longest.

    Raises a ValueError if they differ in dimensions, heads, topic names or which optional arrays
    they have.
    """
    first = batches[0]
    if len(batches) == 1:
        return first
    for batch in batches:
        for noun, value, expected in (
            ("topic names", batch.topic_names, first.topic_names),
            ("embedding dimension", batch.embeddings.shape[2], first.embeddings.shape[2]),
            ("head dimension", batch.keys.shape[2], first.keys.shape[2]),
            ("number of heads", batch.heads, first.heads),
        ):
            if value != expected:
                raise ValueError(f"the dialogs differ in their {noun}: {value} and {expected}")
        for name in (*BY_TOKEN, "topics", "projections"):
            if (getattr(batch, name) is None) != (getattr(first, name) is None):
                raise ValueError(f"some of the dialogs have {name}, others do not")
    tokens = max(batch.embeddings.shape[1] for batch in batches)
    turns = max(batch.turns for batch in batches)

    def joined(name: str, length: int | None = None, axis: int = 0, **padding: Any) -> Any:
        """Join an array of each batch, padded to so many columns; None if they have none."""
        if getattr(first, name) is None:
            return None
        arrays = [getattr(batch, name) for batch in batches]
        for index, array in enumerate(arrays):
            if length is not None:
                widths = [(0, 0)] * array.ndim
                widths[1] = (0, length - array.shape[1])
                arrays[index] = np.pad(array, widths, **padding)
        return np.concatenate(arrays, axis=axis)

    return DialogBatch(
        **{name: joined(name, tokens) for name in BY_TOKEN},
        current=joined("current", turns, constant_values=-1),
        bounds=joined("bounds", turns + 1, mode="edge"),  # padded turns are empty ranges
        turn_counts=joined("turn_counts"),
        topic_names=first.topic_names,
        topics=joined("topics"),
        projections=joined("projections", axis=1),
        heads=first.heads,
    )
