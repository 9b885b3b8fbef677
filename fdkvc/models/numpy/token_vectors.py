"""The vectors of a text's tokens, in arrays that forks share until their texts differ.

Each kind of vector has one array (layers, heads, room, width) with more room than tokens, so that
writing a token copies nothing. A fork has the same arrays, and sees the tokens before its own end::

    1. a.extend(0, 6), a.write(…)   a  |0 1 2 3 4 5 . .|    six places are taken, and two are free
    2. b = a.fork(a.names)       a, b  |0 1 2 3 4 5 . .|    shared: nothing is copied
    3. a.extend(6, 7), a.write(…)   a  |0 1 2 3 4 5 6 .|    still shared: b sees the first six
                                    b  |0 1 2 3 4 5|. .
    4. b.extend(6, 7)               a  |0 1 2 3 4 5 6 .|    the place 6 is taken: b moves to a copy
                                    b  |0 1 2 3 4 5 . .|    of its own
    5. b.write(…)                   b  |0 1 2 3 4 5 6'.|

Places are taken from the first on, and once for all stores with the same arrays: so nobody ever
overwrites what another one sees. A store moves if the place that it wants is taken, and if its
arrays have no room left.

The sessions of the app fork one chat in several threads. A lock guards who takes a place; the
vectors themselves are written without it, as no two stores write to the same place.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping
from threading import Lock

import numpy as np

from fdkvc.core.attention import Floats

SPARE = 32
"""Tokens to allocate beyond those needed."""

_CLAIMING = Lock()  # one for all stores: it is held for an instant


class TokenVectors:
    """The vectors of a text's tokens by name, such as ``keys``; `sizes` are (layers, heads, width).

    Those named ``queries`` can be forgotten. Their array then begins at a later token, and has its
    own room.
    """

    def __init__(self, sizes: Mapping[str, tuple[int, int, int]]) -> None:
        self._arrays = dict[str, Floats]()
        for name, (layers, heads, width) in sizes.items():
            shape = layers, heads, 0, width
            self._arrays[name] = np.zeros(shape, np.float32)
        self._first_query = 0  # the first token whose queries are stored
        # How many places are, in a list that all stores with these arrays share.
        self._taken = [0]

    @property
    def names(self) -> Collection[str]:
        """The names of the vectors."""
        return self._arrays.keys()

    @property
    def token_bytes(self) -> Mapping[str, int]:
        """Bytes of a token's vectors, by name."""
        shapes = {name: array.shape for name, array in self._arrays.items()}
        # Four bytes of a number in single precision.
        return {name: 4 * layers * heads * h for name, (layers, heads, _, h) in shapes.items()}

    def before(self, name: str, end: int) -> Floats:
        """Return the vectors of the tokens before an end (L, ·, N, ·), from the first stored on."""
        return self._arrays[name][:, :, : end - self._first(name)]

    def fork(self, names: Collection[str]) -> TokenVectors:
        """Return a store with these vectors only; both can be extended independently."""
        with _CLAIMING:
            copied = copy.copy(self)
            copied._arrays = {name: self._arrays[name] for name in names}
        return copied

    def reserve(self, count: int, end: int) -> None:
        """Allocate room for the tokens before an end, of which it has `count`; not for queries.

        Room grows by itself, too, in steps of an eighth.
        """
        if end > self._room:
            self._move(count, _grown(self._room, end))

    def extend(self, start: int, end: int) -> None:
        """Make the places from `start` to `end` writable, by a move if necessary.

        What this store has there is lost; other stores keep theirs.
        """
        self.reserve(start, end)
        with _CLAIMING:
            free = self._taken[0] <= start
            if free:
                self._taken[0] = end
        if not free:
            self._move(start, self._room)
            self._taken[0] = end
        if "queries" in self._arrays and end > self._query_room:
            room = _grown(self._query_room, end)
            self._arrays["queries"] = self._copy("queries", start, room)

    def write(self, layer: int, start: int, vectors: Mapping[str, Floats]) -> None:
        """Write a layer's vectors (n, ·, ·) of the tokens from `start` on, after `extend`.

        Vectors of names that it does not store are ignored, and so are forgotten queries.
        """
        for name, new in vectors.items():
            first = start - self._first(name)
            if name in self._arrays and first >= 0:
                self._arrays[name][layer, :, first : first + len(new)] = new.swapaxes(0, 1)

    def forget_queries(self, end: int) -> None:
        """Forget the queries of the tokens before an end, except for the last token's."""
        if "queries" in self._arrays:
            # A copy, as a view would hold the array of all queries.
            last = self._arrays["queries"] = self.before("queries", end)[:, :, -1:].copy()
            self._first_query = end - last.shape[2]

    @property
    def _room(self) -> int:
        return int(self._arrays["keys"].shape[2])

    @property
    def _query_room(self) -> int:
        return self._first_query + int(self._arrays["queries"].shape[2])

    def _first(self, name: str) -> int:
        """Return the first token whose vectors are stored."""
        return self._first_query if name == "queries" else 0

    def _move(self, count: int, room: int) -> None:
        """Copy its first tokens into arrays of its own, with room for `room` tokens."""
        rooms = dict.fromkeys(self._arrays, room)
        if "queries" in rooms:
            rooms["queries"] = self._query_room
        copied = {name: self._copy(name, count, room) for name, room in rooms.items()}
        with _CLAIMING:
            self._arrays = copied
            self._taken = [count]

    def _copy(self, name: str, count: int, room: int) -> Floats:
        """Return a copy of its first tokens' vectors, with room for the tokens before `room`."""
        vectors = self.before(name, count)
        size = room - self._first(name)
        copied = np.zeros((*vectors.shape[:2], size, vectors.shape[3]), np.float32)
        copied[:, :, : vectors.shape[2]] = vectors
        return copied


def _grown(room: int, end: int) -> int:
    """Return how much room to allocate for the tokens before an end, given the current room."""
    # By a share of the room, so that reading token by token copies each only a few times.
    return max(end + SPARE, room + room // 8)
