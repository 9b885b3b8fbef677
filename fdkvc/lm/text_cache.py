"""Memories: the keys and values of one text, and what of them is still attended to.

Everything that a text brought is kept aside, so that one can ask what became of it; a cache
attends only to what it holds. What comes later is computed from that. Positions stay those of the
text.

Every KV head of every layer is a cache of its own; who decides what stays in it, says
`fdkvc.lm.head_eviction`. A policy that bends attention decides here as it would elsewhere, but the
model's attention is its own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.cache import EMPTY
from fdkvc.lm.decoder import Decoder, ModelSizes, attention, unnormalized_attention
from fdkvc.lm.head_eviction import DECIDES, HeadEviction
from fdkvc.parameters import Parameter, check_count, check_parameter
from fdkvc.policies import Policy
from fdkvc.policies.retrieval import Retrieval
from fdkvc.run.trace import Codes, Rule

Numbers = NDArray[Any]

BLOCK = 96
"""Tokens whose attention is worked out at once."""


ROOM = 32
"""Tokens for which room is made beyond those that need it."""


class Reader(Protocol):
    """What reads texts: a decoder in NumPy, or a model of a library."""

    @property
    def shape(self) -> ModelSizes:
        """Its sizes."""

    def read(self, ids: Ints, caches: Sequence[Any], *, last: int | None = None) -> Floats:
        """Let texts go on by the next tokens; see `fdkvc.lm.decoder.Decoder.read`."""


class ModelCache(Protocol):
    """What remembers one text as far as it has been read: a `TextCache`, or a library's cache."""

    ids: list[int]

    @property
    def decoder(self) -> Reader:
        """What reads the text."""

    @property
    def count(self) -> int:
        """Tokens read so far."""

    @property
    def surprisal(self) -> Sequence[float] | None:
        """How surprising each of them was, where that is noted; see `TextCache`."""

    @property
    def needs_logits(self) -> bool:
        """Whether it needs the logits of every token for that."""

    def append(self, ids: Sequence[int], logits: Floats) -> None:
        """Note what was read, and the logits of what comes after; see `TextCache.append`."""

    def vectors(self, name: str) -> Floats:
        """Return the vectors of all tokens so far (L, heads, N, ·); see `TextCache.vectors`."""

    def end_turn(self) -> None:
        """Let the turn end: the policy evicts, if there is one."""

    def fork(self, count: int | None = None) -> Self:
        """Return one that goes on by itself, from here or from earlier in this turn."""


class TextCache:
    """A cache that evicts nothing.

    Parameters
    ----------
    decoder : Decoder
        What reads the text.
    with_surprisal : bool
        Whether it notes how surprising each token is.

    Attributes
    ----------
    ids : list of int
        The tokens read so far.
    surprisal : list of float, optional
        How surprising each of them is, in nats: by itself, where the decoder knows how rare tokens
        are; otherwise −log of the probability that the model gave it before it was read, from what
        it attended to then, and of the first that of any token alike.
    began : int
        Where the turn that is being read began; its own tokens are all attended to.
    near : array (L, K, S), optional
        The tokens before it that are attended to, for each layer and KV head; −1 for none. Where
        there is no such array, all are.
    ends : list of int
        The tokens read at the end of each turn.
    left : list of array (L, K, S) or None
        `near` as each turn left it.
    evicted_in, evicted_by : array (L, K, N)
        The turn that evicted each token, −1 for none, and its `Rule`.
    """

    def __init__(self, decoder: Decoder, with_surprisal: bool = False) -> None:
        shape = decoder.shape
        self.decoder = decoder
        self.ids: list[int] = []
        self.surprisal: list[float] | None = [] if with_surprisal else None
        # Logits of the turn's tokens and of the next.
        self._foretold = [np.zeros(shape.vocabulary, np.float32)]
        self.turn_start = 0
        self.attended: Ints | None = None
        self.ends: list[int] = []
        self.attended_by_turn: list[Ints | None] = []
        heads, kv_heads, h = shape.heads, shape.kv_heads, shape.head_width
        sizes = {
            "hidden": (1, shape.width),
            "queries": (heads, h),
            "keys": (kv_heads, h),
            "values": (kv_heads, h),
        }
        self._vectors = {
            name: np.zeros((shape.layers, own, 0, width), np.float32)
            for name, (own, width) in sizes.items()
        }
        self._evicted_in: Ints = np.empty((shape.layers, kv_heads, 0), np.intp)
        self._evicted_by: Codes = np.empty(self._evicted_in.shape, np.uint8)
        self._gathered: dict[str, Floats] = {}

    @property
    def count(self) -> int:
        """Tokens read so far."""
        return len(self.ids)

    @property
    def evicted_in(self) -> Ints:
        """The turn that evicted each token (L, K, N), −1 for none."""
        return self._evicted_in[:, :, : self.count]

    @property
    def evicted_by(self) -> Codes:
        """The `Rule` that did (L, K, N)."""
        return self._evicted_by[:, :, : self.count]

    def vectors(self, name: str) -> Floats:
        """Return the queries, keys, values or hidden states of all tokens so far (L, ·, N, ·).

        Those of an evicted token are as they were computed.
        """
        return self._vectors[name][:, :, : self.count]

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """Store what the next tokens bring, and attend; see `fdkvc.lm.decoder.AttentionCache`."""
        shape, start, n = self.decoder.shape, self.count, len(hidden)
        self._make_room(start + n)
        new = {"hidden": hidden[:, None], "queries": queries, "keys": keys, "values": values}
        for name, vectors in new.items():
            self._vectors[name][layer, :, start : start + n] = vectors.swapaxes(0, 1)
        mixed = np.empty((n, shape.heads * shape.head_width), np.float32)
        for first in range(0, n, BLOCK):  # which have less to look at than the last has
            some = slice(first, min(first + BLOCK, n))
            mixed[some] = self._mixed(layer, queries[some], start + some.stop)
        return mixed

    def _mixed(self, layer: int, queries: Floats, end: int) -> Floats:
        """Return what the attention of the tokens up to an end gives (m, H·h)."""
        shape, m = self.decoder.shape, len(queries)
        grouped = queries.reshape(m, shape.kv_heads, shape.group, shape.head_width)
        keys, values = (self._seen(name, layer, end) for name in ("keys", "values"))
        unseen = self._unseen(layer, grouped, end)
        weights, totals = unnormalized_attention(grouped.transpose(1, 2, 0, 3), keys, unseen)
        mixed = weights.reshape(shape.kv_heads, shape.group * m, -1) @ values
        apart = mixed.reshape(shape.kv_heads, shape.group, m, shape.head_width)
        apart /= totals  # of which there are fewer than weights
        return apart.transpose(2, 0, 1, 3).reshape(m, -1)

    def _seen(self, name: str, layer: int, end: int) -> Floats:
        """Return keys or values (K, S, h) that there are up to an end: near, then the turn's."""
        stored = self._vectors[name]
        own = stored[layer, :, self.turn_start : end]
        if self.attended is None:
            return stored[layer, :, :end]
        if name not in self._gathered:
            self._gathered[name] = np.take_along_axis(stored, self.attended[..., None], axis=2)
        return np.concatenate([self._gathered[name][layer], own], axis=1)

    def _unseen(self, layer: int, queries: Floats, end: int) -> Bools:
        """Mark what queries (m, K, G, h) do not see up to an end: its last columns (…, m, ·)."""
        m = len(queries)
        if self.attended is None or (self.attended[layer] >= 0).all():
            return later_tokens(m)
        near = self.attended[layer] < 0
        unseen = np.zeros((len(near), 1, m, near.shape[1] + end - self.turn_start), np.bool_)
        unseen[..., : near.shape[1]] = near[:, None, None]
        unseen[..., -m:] = later_tokens(m)
        return unseen

    def _make_room(self, end: int) -> None:
        room = self._evicted_in.shape[2]
        if end <= room:
            return
        more = max(end + ROOM, room + room // 8) - room

        def longer(array: Numbers) -> Numbers:
            made = np.zeros((*array.shape[:2], room + more, *array.shape[3:]), array.dtype)
            made[:, :, :room] = array
            return made

        self._vectors = {name: longer(array) for name, array in self._vectors.items()}
        self._evicted_in, self._evicted_by = longer(self._evicted_in), longer(self._evicted_by)
        self._evicted_in[:, :, room:] = -1

    def end_turn(self) -> None:
        """Let the turn end: the policy evicts, if there is one."""
        if self.count > self.turn_start:
            self._evict()
        self.ends.append(self.count)
        self.attended_by_turn.append(self.attended)
        self._foretold = self._foretold[-1:]
        self.turn_start = self.count

    def _evict(self) -> None:
        """Set what is near from now on."""

    @property
    def needs_logits(self) -> bool:
        """Whether it needs the logits of every token."""
        return self.surprisal is not None and self.decoder.rarity is None

    def append(self, ids: Sequence[int], logits: Floats) -> None:
        """Note what was read, and the logits of what comes after each of it (n, V), if needed."""
        self.ids += ids
        if self.surprisal is None:
            return
        if self.decoder.rarity is not None:
            self.surprisal += self.decoder.rarity[list(ids)].tolist()
            return
        first = len(self._foretold) - 1
        self._foretold += [row.copy() for row in logits]
        foretold = np.stack(self._foretold[first:-1])
        foretold -= foretold.max(axis=1, keepdims=True)
        came = foretold[np.arange(len(ids)), list(ids)]
        self.surprisal += (np.log(np.exp(foretold).sum(axis=1)) - came).tolist()

    def _hold(self, near: Ints | None) -> None:
        self.attended, self._gathered = near, {}

    def fork(self, count: int | None = None) -> Self:
        """Return a cache that goes on by itself, from here or from earlier in this turn.

        Parameters
        ----------
        count : int, optional
            Tokens that it has read, at least up to where this turn began; all by default.

        Raises
        ------
        ValueError
            If it has another number of tokens.
        """
        count = self.count if count is None else count
        within = Parameter("", "", low=self.turn_start, high=self.count)
        check_parameter("the count of a fork", within, count, int)
        other = copy.copy(self)
        other.ids, other.ends, other.attended_by_turn = (
            self.ids[:count],
            [*self.ends],
            [*self.attended_by_turn],
        )
        other._foretold = self._foretold[: count - self.turn_start + 1]
        if self.surprisal is not None:
            other.surprisal = self.surprisal[:count]
        other._vectors = {name: each[:, :, :count].copy() for name, each in self._vectors.items()}
        other._evicted_in = self._evicted_in[:, :, :count].copy()
        other._evicted_by = self._evicted_by[:, :, :count].copy()
        other._gathered = {**self._gathered}
        return other

    def restored(self, first: int, end: int, *, read_again: bool = False) -> TextCache:
        """Return a cache in which tokens of earlier turns are attended to, evicted or not.

        They are until the policy decides again.

        Parameters
        ----------
        first, end : int
            The tokens, the end not included.
        read_again : bool
            Whether their entries are computed anew from what is held now of the text before them.
            Otherwise they are as they were computed when they were read.

        Raises
        ------
        ValueError
            If they are not tokens of earlier turns.
        """
        within = Parameter("", "", low=0, high=self.turn_start)
        for name, value in (("the first token", first), ("the end", end)):
            check_parameter(name, within, value, int)
        other, near = self.fork(), self.attended
        if near is None:
            return other
        if read_again and first < end:
            other._read_again(first, end, np.where(near < first, near, EMPTY))
            other.turn_start = self.turn_start
        span = np.broadcast_to(np.arange(first, end), (*near.shape[:2], max(end - first, 0)))
        there = (near[..., None] == span[..., None, :]).any(axis=2)
        other._hold(np.concatenate([near, np.where(there, EMPTY, span)], axis=2))
        return other

    def _read_again(self, first: int, end: int, near: Ints) -> None:
        """Compute the entries of tokens anew, from what is near of those before them."""
        ids = self.ids
        self.ids, self.turn_start = ids[:first], first
        self._hold(near)
        self.decoder.read(np.array([ids[first:end]]), [self], last=0)
        self.ids = ids

    def attention(self, position: int, *, whole_text: bool = False) -> Floats:
        """Return what the token at a position attended to, in each layer and query head (L, H, N).

        The token that is written after it was chosen by that.

        Parameters
        ----------
        position : int
        whole_text : bool
            Whether to say what it would have attended to if all of the text had been there, as it
            was computed.

        Raises
        ------
        ValueError
            If there is no such token.
        """
        check_parameter(
            "the position", Parameter("", "", low=0, high=self.count - 1), position, int
        )
        shape, turn = self.decoder.shape, int(np.searchsorted(self.ends, position, side="right"))
        began = self.ends[turn - 1] if turn else 0
        near = (
            self.attended
            if turn == len(self.ends)
            else self.attended_by_turn[turn - 1]
            if turn
            else None
        )
        sees = np.zeros((shape.layers, shape.kv_heads, self.count + 1), np.bool_)
        if near is not None and not whole_text:
            np.put_along_axis(sees, near, True, axis=2)  # −1 is the column beyond
            sees[:, :, began:] = False
        sees[:, :, 0 if near is None or whole_text else began : position + 1] = True
        grouped = self.vectors("queries")[:, :, position : position + 1].reshape(
            shape.layers * shape.kv_heads, shape.group, 1, shape.head_width
        )
        keys = self.vectors("keys").reshape(len(grouped), self.count, shape.head_width)
        unseen = ~sees[:, :, :-1].reshape(len(grouped), 1, 1, self.count)
        return attention(grouped, keys, unseen).reshape(shape.layers, shape.heads, self.count)


class EvictingCache(TextCache):
    """A cache whose policy evicts in every layer and KV head after every turn.

    Parameters
    ----------
    decoder : Decoder
    policy : Policy
    budget : int
        Entries that a KV head may hold at the end of a turn.
    decides : {"head", "layer", "model"}
        See `fdkvc.lm.head_eviction.HeadEviction`.

    Raises
    ------
    ValueError
        For a budget below 1, or a policy that looks at the future.
    """

    def __init__(
        self, decoder: Decoder, policy: Policy, budget: int, decides: str = DECIDES.default
    ) -> None:
        super().__init__(decoder, with_surprisal="surprisal" in policy.looks_at)
        listens = {"words", "speakers"} & {*policy.looks_at}
        self._said = np.zeros((2, 0), np.intp) if listens and decoder.said else None
        self._deciding = HeadEviction(policy, budget, decoder.shape, decides)

    def _evict(self) -> None:
        before = self._deciding
        stood = np.concatenate([before.held, before.waiting], axis=2)
        new = self.count - self.turn_start
        if self._said is not None and self.decoder.said is not None:
            said = np.array(self.decoder.said(self.ids[self.turn_start :]), np.intp)
            self._said = np.concatenate([self._said, said], axis=1)
        self._deciding, decision = before.after(
            new, _Stood(self, stood), self.surprisal, self._said
        )
        where = decision.layer, decision.head, decision.token
        self._evicted_in[where] = len(self.ends)
        self._evicted_by[where] = decision.rule
        near = decision.held
        if decision.waiting.shape[2]:  # what came back from there is evicted no more
            layer, head, slot = np.nonzero(near >= 0)
            self._evicted_in[layer, head, near[layer, head, slot]] = -1
            self._evicted_by[layer, head, near[layer, head, slot]] = Rule.none
        self._hold(near)


@dataclass(frozen=True, eq=False)
class _Stood:
    """The vectors of what stood before the turn that is being read, and of the turn."""

    cache: TextCache
    stood: Ints

    def held(self, name: str) -> Floats:
        vectors = self.cache.vectors(name)
        rows, heads = self.stood.shape[1], vectors.shape[1]
        token = np.repeat(self.stood, max(heads // rows, 1), axis=1)
        layer, head = np.ogrid[: len(token), : token.shape[1]]
        found: Floats = vectors[layer[..., None], np.minimum(head, heads - 1)[..., None], token]
        return found

    def new(self, name: str) -> Floats:
        return self.cache.vectors(name)[:, :, self.cache.turn_start :]


class RetrievalCache(TextCache):
    """A cache that stores everything; each token reads what is nearest to its queries.

    Of earlier turns each token reads in every KV head as many entries as the budget allows, those
    that `Retrieval` finds nearest to any of the head's queries; of its own turn it reads all, as
    under every policy. Nothing is evicted.

    Parameters
    ----------
    decoder : Decoder
    policy : Retrieval
    budget : int

    Raises
    ------
    ValueError
        For a budget below 1.
    """

    def __init__(self, decoder: Decoder, policy: Retrieval, budget: int) -> None:
        super().__init__(decoder)
        check_count("budget", budget)
        self.policy, self.budget = policy, budget

    def _unseen(self, layer: int, queries: Floats, end: int) -> Bools:
        m, began = len(queries), self.turn_start
        if began <= self.budget:
            return super()._unseen(layer, queries, end)
        keys = self._vectors["keys"][layer, :, :began]
        nearness = self._bounds(queries.transpose(1, 0, 2, 3), keys).max(axis=2)
        size = min(self.policy.size, self.budget)
        pages = self.budget // size
        last = np.partition(nearness, -pages, axis=2)[:, :, -pages, None]
        # Of pages as near as the last the older are read.
        above, tied = nearness > last, nearness == last
        room = pages - above.sum(axis=2, keepdims=True)
        read = above | (tied & (np.cumsum(tied, axis=2) <= room))
        unseen = np.zeros((len(keys), 1, m, end), np.bool_)
        unseen[:, 0, :, :began] = ~np.repeat(read, size, axis=2)[:, :, :began]
        unseen[..., -m:] |= later_tokens(m)
        return unseen

    def _bounds(self, queries: Floats, keys: Floats) -> Floats:
        """Return what no key of a page exceeds with each query (K, m, G, pages)."""
        size = min(self.policy.size, self.budget)
        first = np.arange(0, keys.shape[1], size)
        low, high = (each.reduceat(keys, first, axis=1) for each in (np.minimum, np.maximum))
        up, down = np.maximum(queries, 0), np.minimum(queries, 0)
        turned = (each.swapaxes(1, 2)[:, None] for each in (high, low))
        most, least = turned
        return np.asarray(up @ most + down @ least)


class CutTextCache(TextCache):
    """A cache that reads the last tokens of the text afresh after every turn, and nothing else.

    Parameters
    ----------
    decoder : Decoder
    budget : int
        So many tokens.
    """

    def __init__(self, decoder: Decoder, budget: int) -> None:
        super().__init__(decoder)
        check_count("budget", budget)
        self.budget = budget

    def _evict(self) -> None:
        shape, end = self.decoder.shape, self.count
        first = max(end - self.budget, 0)
        gone = self._evicted_in[:, :, :first]
        self._evicted_by[:, :, :first] = Rule.budget
        gone[gone < 0] = len(self.ends)
        if first:
            self._read_again(first, end, np.empty((shape.layers, shape.kv_heads, 0), np.intp))
        last = np.arange(first, end)
        self._hold(np.broadcast_to(last, (shape.layers, shape.kv_heads, len(last))))


def read(caches: Sequence[ModelCache], ids: ArrayLike, last: int | None = None) -> Floats:
    """Let texts go on, and return the logits of what comes next; see `Decoder.read`.

    Parameters
    ----------
    caches : sequence of ModelCache
        Of one decoder.
    ids : array_like (n,) or (C, n)
        The next tokens, the same for all texts or those of each.
    last : int, optional

    Raises
    ------
    ValueError
        If a text would be longer than the model can hold, or a token is unknown.
    """
    decoder = caches[0].decoder
    new = np.broadcast_to(np.asarray(ids, np.intp), (len(caches), np.shape(ids)[-1]))
    most = decoder.shape.positions
    longest = max(cache.count for cache in caches) + new.shape[1]
    if longest > most:
        raise ValueError(f"the text has {longest:,} tokens, but the model holds at most {most:,}")
    if new.size and not 0 <= new.min() <= new.max() < decoder.shape.vocabulary:
        raise ValueError(f"a token is not one of the {decoder.shape.vocabulary:,} of the model")
    wanted = new.shape[1] if last is None else last
    logits = np.empty((*new.shape, decoder.shape.vocabulary), np.float32)[:, :wanted]
    for needs_logits in (False, True):
        some = [at for at, each in enumerate(caches) if each.needs_logits == needs_logits]
        if some:
            own = [caches[at] for at in some]
            found = decoder.read(new[some], own, last=None if needs_logits else last)
            logits[some] = found[:, found.shape[1] - wanted :]
            for cache, read_now, each in zip(own, new[some].tolist(), found, strict=True):
                cache.append(read_now, each)
    return logits


@cache
def later_tokens(m: int) -> Bools:
    """Mark which of m tokens come after each of them (m, m)."""
    return np.arange(m) > np.arange(m)[:, None]
