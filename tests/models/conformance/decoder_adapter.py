"""Adapters of the project's NumPy decoder and its caches to the checks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.cache import padded
from fdkvc.models.numpy.decoder import Decoder
from fdkvc.models.numpy.text_cache import TextCache, read
from tests.models.conformance.masked import Pairs, mixed
from tests.models.conformance.subject import Reading, TurnCache


class DecoderModel:
    """A decoder that reads a text in one pass; implements `FullModel`."""

    count = 0  # as the cache of the decoder, it has read nothing

    def __init__(self, decoder: Decoder) -> None:
        self.decoder, self.vocabulary = decoder, decoder.shape.vocabulary
        half = np.arange(0, decoder.shape.head_width, 2) / decoder.shape.head_width
        self._frequencies = decoder.shape.theta**-half

    def read(self, tokens: Ints, sees: Bools, distances: Ints | None = None) -> Reading:
        """Read a text with a given attention mask."""
        self._sees, self._distances = sees, distances
        self._noted: list[list[Floats]] = []  # queries and keys of each layer, from `attend`
        outputs = self.decoder.read(np.asarray(tokens)[None], [self])[0]
        return Reading(outputs, *map(np.stack, zip(*self._noted, strict=True)))

    def attend(
        self, layer: int, hidden: Floats, queries: Floats, keys: Floats, values: Floats
    ) -> Floats:
        """See `fdkvc.models.numpy.decoder.AttentionCache`."""
        heads_first = [np.ascontiguousarray(vectors.swapaxes(0, 1)) for vectors in (queries, keys)]
        self._noted.append(heads_first)
        q, k = map(_pairs, heads_first)
        distances = None if self._distances is None else self._distances[layer]
        scaling, v = queries.shape[2] ** -0.5, values.swapaxes(0, 1)
        mixture = mixed(q, k, v, self._sees[layer], scaling, distances, self._frequencies)
        return mixture.swapaxes(0, 1).reshape(len(queries), -1)


def _pairs(vectors: Floats) -> Pairs:
    """Return pairs as complex numbers: in the decoder, neighbours are a pair."""
    return vectors.astype(np.float32).view(np.complex64).astype(np.complex128)


class DecoderCache(TurnCache):
    """New caches of a decoder, one for each text; `every` as for `TurnCache`."""

    def __init__(self, caches: Sequence[TextCache], every: int | None = None) -> None:
        def end_turn() -> None:
            for cache in caches:
                cache.end_turn()

        def held() -> Ints:
            return np.stack(padded([*map(_held, caches)]))

        self.caches = caches
        super().__init__(lambda tokens: read(caches, tokens), held, end_turn, every)

    def fork(self) -> DecoderCache:
        """Return an independent copy."""
        return DecoderCache([cache.fork() for cache in self.caches], self._every)


def _held(cache: TextCache) -> Ints:
    """Return the tokens attended to now (L, K, S), −1 for none."""
    shape, attended = cache.decoder.shape, cache.attended
    new = np.arange(0 if attended is None else cache.turn_start, cache.count)
    turn = np.broadcast_to(new, (shape.layers, shape.kv_heads, len(new)))
    return turn if attended is None else np.concatenate([attended, turn], axis=2)
