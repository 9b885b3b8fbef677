"""Text caches: the keys and values of one text, and which of them are still attended to.

A cache stores the vectors of every token, so that evicted tokens can be inspected and restored, but
attends only to those that its policy kept, and to its own turn. The life of a cache with budget 2::

    1. read(3 tokens)    vectors  0 1 2            the decoder calls `attend` in every layer:
                         turn    |0 1 2|           each token attends to those of its turn so far
    2. end_turn()        vectors  0 1 2            the policy keeps 0 and 2: `attended`;
                         attended 0   2            `evicted_in` of 1 is turn 0, and its vectors stay
    3. read(2 tokens)    vectors  0 1 2 3 4        3 and 4 attend to 0, 2 and their own turn,
                         attended 0   2|3 4|       which begins at `turn_start`
    4. end_turn()        vectors  0 1 2 3 4        of the four that were attended to, the policy
                         attended 0       4        keeps two
    5. before_turn(2, [1])   vectors  0 1 2 3 4    another cache, which attends to 1 again and
                             attended 0 1     4    never evicts

Each KV head of each layer has its own `attended`; `fdkvc.models.numpy.head_eviction` applies the
policy to them. Everything later is computed from what is attended to. Positions are those of the
text. A policy that modulates attention does so in its scores only: the model's attention is
unchanged.

`read`, `end_turn`, `follow`, `reserve` and `forget_queries` change a cache. `fork`, `before_turn`
and `without_hidden` change nothing, and return another cache, which shares the vectors (see
`fdkvc.models.numpy.token_vectors`). These three, and `follow`, copy by `TextCache._take`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.cache import EMPTY
from fdkvc.core.parameters import check_count
from fdkvc.engine.trace import Codes, Rule
from fdkvc.models.numpy.decoder import Decoder, ModelSizes, attention, unnormalized_attention
from fdkvc.models.numpy.features import with_new
from fdkvc.models.numpy.head_eviction import DECIDES, HeadEviction, check_keeps
from fdkvc.models.numpy.model_text import Kind
from fdkvc.models.numpy.token_vectors import TokenVectors
from fdkvc.policies import Policy

BLOCK = 96
"""Tokens whose attention is computed at once."""


class Reader(Protocol):
    """A model that reads texts: a `Decoder`, or a model of *transformers*."""

    @property
    def shape(self) -> ModelSizes:
        """Its sizes."""

    def read(self, ids: Ints, caches: Sequence[Any], *, last: int | None = None) -> Floats:
        """Read the next tokens of several texts; see `fdkvc.models.numpy.decoder.Decoder.read`."""


class ModelCache(Protocol):
    """The cache of one text, of any engine."""

    decoder: Reader
    """The model that reads the text."""
    ids: list[int]
    """The tokens read so far."""
    turn_kind: Kind | None = None
    """Kind of the passage being read; None if only the marks in its text tell."""

    leads: bool = False
    """Whether others are to `follow` what it reads next."""

    @property
    def engine(self) -> ModelCache:
        """The cache that the model reads with: this one, or one that it wraps."""
        return self

    @property
    def count(self) -> int:
        """Number of tokens read so far."""
        return len(self.ids)

    @property
    def whole(self) -> bool:
        """Whether nothing was evicted so far: it computes what a full cache does, and can follow.

        See `TextCache.follow`.
        """
        return False

    def end_turn(self) -> object:
        """End the turn: the policy, if any, evicts."""

    def fork(self, count: int | None = None) -> Self:
        """Return an independent copy, as of now or of an earlier point of this turn."""


class TextCache(ModelCache):
    """A cache that evicts nothing.

    It stores keys and values of all layers, and hidden states and queries of `layers`, by default
    all, too.
    """

    whole = True  # False for good after an eviction

    def __init__(self, decoder: Decoder, layers: Sequence[int] | None = None) -> None:
        shape = decoder.shape
        self.decoder: Decoder = decoder
        self.layers = range(shape.layers) if layers is None else layers
        self.ids: list[int] = []
        self.turn_start = 0  # the first token of this turn, whose tokens are all attended to
        h = shape.head_width
        # (layers, heads, width) of each kind of vector. Keys and values have the KV heads of
        # grouped-query attention, queries have all heads; a hidden state is one for all heads.
        sizes = dict.fromkeys(("keys", "values"), (shape.layers, shape.kv_heads, h))
        if self.layers:
            sizes["hidden"] = len(self.layers), 1, shape.width
            sizes["queries"] = len(self.layers), shape.heads, h
        self._vectors = TokenVectors(sizes)
        # These are replaced and never changed in place, so forks share them. The exception is
        # `_gathered`, which is filled on first use: any of the forks would compute the same.
        self.attended: Ints | None = None  # earlier tokens (L, K, S), −1 for none; None: all
        self.attended_by_turn: list[Ints | None] = []  # `attended` at the end of each turn
        self.ends: list[int] = []  # tokens read at the end of each turn
        self._evicted_in: Ints = np.empty((shape.layers, shape.kv_heads, 0), np.intp)
        self._evicted_by: Codes = self._evicted_in.astype(np.uint8)  # as of the last eviction
        self._gathered: dict[str, Floats] = {}  # keys and values of `attended` (L, K, S, h)

    @property
    def token_bytes(self) -> Mapping[str, int]:
        """Bytes of a token's vectors, by name; see `vectors`."""
        return self._vectors.token_bytes

    @property
    def evicted_in(self) -> Ints:
        """The turn that evicted each token (L, K, N), −1 for none."""
        return _extended(self._evicted_in, self.count, -1)

    @property
    def evicted_by(self) -> Codes:
        """The `Rule` that evicted each token (L, K, N)."""
        return _extended(self._evicted_by, self.count, Rule.none)

    def vectors(self, name: str) -> Floats:
        """Return the queries, keys, values or hidden states of all tokens so far (L, ·, N, ·).

        Those of an evicted token are as they were computed. Queries are of the last tokens only,
        once earlier ones are forgotten.
        """
        return self._vectors.before(name, self.count)

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """Store the vectors of the next tokens, and attend.

        What the decoder calls in each layer; see `fdkvc.models.numpy.decoder.AttentionCache`.
        """
        shape = self.decoder.shape
        start = self.count
        n = len(hidden)
        # 1. Store the vectors. The count grows after the last layer, when `read` notes the tokens.
        if layer == 0:
            self._vectors.extend(start, start + n)
        self._vectors.write(layer, start, {"keys": keys, "values": values})
        if layer in self.layers:
            stored = {"hidden": hidden[:, None], "queries": queries}
            self._vectors.write(self.layers.index(layer), start, stored)
        # 2. Attend.
        output = np.empty((n, shape.heads * shape.head_width), np.float32)
        # In blocks: the weights of a long turn would fill memory, and an early block need not
        # multiply by the keys of later ones only to mask them.
        for first in range(0, n, BLOCK):
            block = slice(first, min(first + BLOCK, n))
            output[block] = self._attend_block(layer, queries[block], start + block.stop)
        return output

    def _attend_block(self, layer: int, queries: Floats, end: int) -> Floats:
        """Return the attention output (m, H·h) of the m tokens up to an end."""
        shape = self.decoder.shape
        m = len(queries)
        # Query heads by the KV head that they share (m, K, G, h): head k·G + g reads KV head k.
        grouped = queries.reshape(m, shape.kv_heads, shape.group, shape.head_width)
        keys = self._attended_vectors("keys", layer, end)  # (K, S, h)
        values = self._attended_vectors("values", layer, end)
        masked = self._mask(layer, m, end)
        weights, totals = unnormalized_attention(grouped.transpose(1, 2, 0, 3), keys, masked)
        # The queries of a group are rows of one product with the values of their KV head.
        mixed = weights.reshape(shape.kv_heads, shape.group * m, -1) @ values
        by_head = mixed.reshape(shape.kv_heads, shape.group, m, shape.head_width)
        by_head /= totals  # not the weights: they are S numbers a query, the output is h
        return by_head.transpose(2, 0, 1, 3).reshape(m, -1)

    def _attended_vectors(self, name: str, layer: int, end: int) -> Floats:
        """Return the attended keys or values (K, S, h), then the turn's own up to an end."""
        stored = self._vectors.before(name, end)
        if self.attended is None:
            return np.asarray(stored[layer])
        if name not in self._gathered:
            # Once a turn, for all layers: every later token attends to the same entries. An empty
            # slot, −1, gathers the last token in the arrays, which `_mask` hides.
            layers, heads = np.ogrid[: stored.shape[0], : stored.shape[1]]
            self._gathered[name] = stored[layers[..., None], heads[..., None], self.attended]
        turn = stored[layer, :, self.turn_start :]
        return np.concatenate([self._gathered[name][layer], turn], axis=1)

    def _mask(self, layer: int, m: int, end: int) -> Bools:
        """Mark which keys the m tokens up to an end do not attend to (…, m, ·).

        The columns are the last of those keys: where nothing earlier is masked, only the m newest.
        """
        if self.attended is None or (self.attended[layer] >= 0).all():
            return later_tokens(m)
        empty = self.attended[layer] < 0  # (K, S)
        # (K, 1, m, S + turn): the query heads of a group see the same keys.
        slots = empty.shape[1]
        mask = np.zeros((len(empty), 1, m, slots + end - self.turn_start), np.bool_)
        mask[..., :slots] = empty[:, None, None]
        mask[..., -m:] = later_tokens(m)
        return mask

    def reserve(self, end: int) -> None:
        """Allocate room for so many tokens, but not for their queries.

        Without it the arrays grow as tokens are read, with copies.
        """
        self._vectors.reserve(self.count, end)

    def forget_queries(self) -> None:
        """Forget the queries of all tokens so far but the last.

        Policies look only at queries of the current turn, and queries take more memory than all
        other vectors. `attention` then works from the last token on only.
        """
        self._vectors.forget_queries(self.count)

    def end_turn(self) -> None:
        """End the turn: the policy, if any, evicts."""
        if self.count > self.turn_start:
            self._evict()
        self.ends = [*self.ends, self.count]
        self.attended_by_turn = [*self.attended_by_turn, self.attended]
        self.turn_start = self.count

    def _evict(self) -> None:
        """Set which tokens later turns attend to: here, all that were, and this turn's."""
        # `attended` is None unless this cache is what another one's `before_turn` returned: then
        # earlier turns were evicted from, though this cache evicts nothing more.
        if self.attended is not None:
            turn = range(self.turn_start, self.count)
            self._set_attended(_with_tokens(self.attended, turn))

    def _set_attended(self, attended: Ints | None) -> None:
        """Set the tokens of earlier turns that are attended to."""
        self.attended = attended
        self._gathered = {}
        # Fewer slots than tokens, or an empty slot: some head lacks a token.
        if attended is not None and (attended.shape[2] < self.count or (attended < 0).any()):
            self.whole = False

    def _take(self, other: TextCache, count: int) -> None:
        """Become a copy of the first tokens of a cache; vectors that are stored here are shared."""
        self.ids = other.ids[:count]
        self._vectors = other._vectors.fork(self._vectors.names)

    def follow(self, source: Any) -> None:
        """Take over what another `whole` cache of the same text has read since.

        While nothing is evicted, all caches of a text compute the same: one reads, the others
        follow.
        """
        self._take(source, source.count)

    def fork(self, count: int | None = None) -> Self:
        """Return an independent copy, as of now or of an earlier point of this turn.

        `count` is the number of tokens read by then. Raises a ValueError if that is before this
        turn began: the eviction between the turns cannot be undone.
        """
        count = self.count if count is None else count
        check_count("the count of a fork", count, self.turn_start, self.count)
        copied = copy.copy(self)
        copied._take(self, count)
        return copied

    def without_hidden(self) -> Self:
        """Return a fork that stores no hidden states: few policies need them."""
        copied = self.fork()
        names = [name for name in self._vectors.names if name != "hidden"]
        copied._vectors = self._vectors.fork(names)
        return copied

    def before_turn(self, turn: int, restored: Sequence[int] = ()) -> TextCache:
        """Return the cache that a turn began with, which attends to `restored` tokens, too.

        These are of earlier turns, and may never have been evicted; their entries are as first
        computed. More text can be read with it, but it evicts no more. Raises a ValueError if there
        was no such turn.
        """
        check_count("the turn", turn, 0, len(self.ends))
        # Without hidden states and queries, which only policies need.
        earlier = TextCache(self.decoder, ())
        if turn:
            earlier.turn_start = self.ends[turn - 1]
            earlier._take(self, earlier.turn_start)
            attended = self.attended_by_turn[turn - 1]
            earlier._set_attended(
                None if attended is None else _with_tokens(attended, restored)
            )
        return earlier

    def attention(self, position: int, *, whole_text: bool = False) -> Floats:
        """Return the attention weights of the token at a position (L, H, N).

        They determined which token was written after it. With `whole_text` they are over all tokens
        before it, evicted or not, instead of those attended to. `layers` must be all.
        """
        check_count("the position", position, 0, self.count - 1)
        shape = self.decoder.shape
        turn = int(np.searchsorted(self.ends, position, side="right"))
        start = self.ends[turn - 1] if turn else 0
        # Counted from the end, since the first queries stored may be those of a later token.
        queries = self.vectors("queries")[:, :, position - self.count]
        grouped = queries.reshape(-1, shape.kv_heads, shape.group, 1, shape.head_width)
        # 1. What the token sees: its turn up to itself, and what was attended to of earlier turns.
        sees = np.zeros((shape.layers, shape.kv_heads, self.count), np.bool_)
        sees[:, :, : position + 1] = True
        if turn and not whole_text:
            sees[:, :, :start] = self._saw(turn)
        # 2. The weights, computed again: they were not stored.
        masked = ~sees[:, :, None, None]
        by_layer = map(attention, grouped, self.vectors("keys"), masked)
        return np.stack([*by_layer]).reshape(shape.layers, shape.heads, self.count)

    def _saw(self, turn: int) -> Bools:
        """Mark which tokens before a turn, from 1 on, its queries saw (L, K, N)."""
        shape = self.decoder.shape
        start = self.ends[turn - 1]
        attended = self.attended_by_turn[turn - 1]
        if attended is None:
            return np.ones((shape.layers, shape.kv_heads, start), np.bool_)
        # One more column than tokens, which empty slots (−1) mark; it is cut off.
        saw = np.zeros((shape.layers, shape.kv_heads, start + 1), np.bool_)
        np.put_along_axis(saw, attended, True, axis=2)
        return saw[:, :, :start]


class EvictingCache(TextCache):
    """A cache whose policy evicts in every layer and KV head after every turn.

    For `budget`, `decides` and errors, see `fdkvc.models.numpy.head_eviction.HeadEviction`.
    """

    def __init__(
        self, decoder: Decoder, policy: Policy, budget: int, decides: str = DECIDES.default
    ) -> None:
        check_keeps(policy)
        super().__init__(decoder)
        self._features: dict[str, NDArray[Any]] = {}  # of the turns that have ended
        self._eviction = HeadEviction(policy, budget, decoder.shape, decides)

    def resize(self, budget: int) -> None:
        """Hold so many entries in each head from the end of this turn on."""
        self._eviction = self._eviction.resized(budget)

    def _evict(self) -> None:
        previous_eviction = self._eviction
        # 1. Features of the turn's text, for policies that look at words, speakers and the like.
        new = self.ids[self.turn_start :]
        if self.decoder.features is not None:
            features = self.decoder.features(
                new, previous_eviction.policy.looks_at, self.turn_kind
            )
            self._features = with_new(self._features, features)
        # 2. Let the policy decide in every head. A policy gets functions that return the vectors
        #    of a layer, since most policies need few of them, and copies are large.
        layers = enumerate(previous_eviction.slots)
        vectors = [functools.partial(self._of_layer, *layer_slots) for layer_slots in layers]
        self._eviction, step = previous_eviction.after(len(new), vectors, self._features)
        # 3. Note what was evicted. The properties return copies: forks may share the originals.
        evicted_in = self.evicted_in
        evicted_by = self.evicted_by
        evicted, rule = step.find_evicted()
        evicted_in[evicted] = len(self.ends)
        evicted_by[evicted] = rule
        self._evicted_in = evicted_in
        self._evicted_by = evicted_by
        # 4. Attend to what is held; vectors of evicted tokens stay in memory.
        self._set_attended(self._eviction.slots)

    def _of_layer(self, layer: int, slots: Ints, name: str, part: str) -> Floats:
        """Return vectors of a layer's slots (K, S) or of its turn; see `head_tokens.Vectors`."""
        vectors = self.vectors(name)
        if part == "turn":
            return vectors[layer, :, self.turn_start - self.count :]
        # Slots are those of KV heads. Queries have more heads: each row of slots is repeated for
        # the heads of its group. Hidden states have one row, which every KV head reads.
        token = np.repeat(slots, max(vectors.shape[1] // len(slots), 1), axis=0)
        head = np.minimum(np.arange(len(token)), vectors.shape[1] - 1)
        return np.asarray(vectors[layer, head[:, None], token])


def read(caches: Sequence[ModelCache], ids: ArrayLike, last: int | None = None) -> Floats:
    """Read the next tokens of texts, and return the logits after each; see `Decoder.read`.

    The caches have the same decoder. `ids` are the same tokens for all texts (n,), or different
    ones (C, n). Raises a ValueError if a text would exceed the model's length, or a token is
    unknown.
    """
    caches = [cache.engine for cache in caches]
    next_ids = np.asarray(ids, np.intp)
    new = np.broadcast_to(next_ids, (len(caches), next_ids.shape[-1]))
    with _noting(caches, [*new]):
        return caches[0].decoder.read(new, caches, last=last)


def read_each(caches: Sequence[ModelCache], ids: Sequence[Ints]) -> list[Floats]:
    """Read the next tokens (n,) of texts, with n different for each, where `reads_each` is true.

    Returns the logits (n, V) of each text. Raises the errors of `read`.
    """
    caches = [cache.engine for cache in caches]
    decoder: Any = caches[0].decoder
    with _noting(caches, ids):
        logits: list[Floats] = decoder.read_each(ids, caches)
        return logits


def reads_each(decoder: Reader) -> bool:
    """Whether a model can read different numbers of tokens of several texts at once."""
    return hasattr(decoder, "read_each")


@contextmanager
def _noting(caches: Sequence[ModelCache], ids: Sequence[Ints]) -> Iterator[None]:
    """Check the next tokens of texts, and add them to `ids` once they are read without error."""
    counts = [cache.count for cache in caches]
    decoder = caches[0].decoder
    for count, new in zip(counts, ids, strict=True):
        check_length(decoder, count + len(new))
        if new.size and not 0 <= new.min() <= new.max() < decoder.shape.vocabulary:
            raise ValueError(
                f"a token is not one of the {decoder.shape.vocabulary:,} of the model"
            )
    yield
    for cache, count, new in zip(caches, counts, ids, strict=True):
        # Replaced rather than appended: a cache of llama.cpp has already added them itself.
        cache.ids[count:] = new.tolist()


def check_length(decoder: Reader, tokens: int) -> None:
    """Raise a ValueError if a text has more tokens than a model holds."""
    limit = decoder.shape.positions
    if tokens > limit:
        raise ValueError(
            f"the text has {tokens:,} tokens, but the model holds at most {limit:,}"
        )


def _extended(column: NDArray[Any], count: int, value: int) -> NDArray[Any]:
    """Return a copy with a value added for each token that it lacks, up to `count` (L, K, N)."""
    missing = count - column.shape[2]
    return np.pad(column, [(0, 0), (0, 0), (0, missing)], constant_values=value)


def _with_tokens(attended: Ints, tokens: Sequence[int]) -> Ints:
    """Return what each head attends to (L, K, S), with n more tokens (L, K, S + n)."""
    added = np.array(tokens, np.intp)
    requested = np.broadcast_to(added, (*attended.shape[:2], len(added)))
    # A head that attends to a token already gets an empty slot: twice would double its weight.
    present = (attended[..., None] == requested[..., None, :]).any(axis=2)
    return np.concatenate([attended, np.where(present, EMPTY, requested)], axis=2)


# At most `BLOCK` of these are kept: no longer part of a turn is attended to at once.
@functools.cache
def later_tokens(m: int) -> Bools:
    """Return the causal mask of m tokens (m, m): True where the column is a later token."""
    return np.arange(m) > np.arange(m)[:, None]
