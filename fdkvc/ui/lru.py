"""Caches bounded by bytes, since files and runs differ in size."""

import sys
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np
import pandas as pd

from fdkvc.core.limits import MAX_STORED_MEGABYTES
from fdkvc.core.recordings import Token

Value = TypeVar("Value")
Arguments = TypeVarTuple("Arguments")


_PLAIN = frozenset((str, int, float, bool, bytes, type(None)))
"""Types of most parts: they hold nothing."""


def size_of(value: object) -> int:
    """Return the bytes of a value and of all that it holds, each once.

    Code is not counted, nor what has a true `counted_elsewhere`, such as a model.
    """
    return sum(_sizes(value).values())


def _sizes(value: object) -> dict[int, int]:
    """Return the bytes of each array that a value holds, by its id, and of the rest."""
    arrays = {}
    size = 0
    visited = set[int]()
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if id(part) in visited:
            continue
        visited.add(id(part))
        if type(part) is Token:  # there are many: their fields are plain, and not queued
            size += sys.getsizeof(part) + sum(map(sys.getsizeof, part))
            continue
        if type(part) in _PLAIN:
            size += sys.getsizeof(part)
            continue
        if isinstance(part, type | ModuleType) or callable(part):
            continue
        if getattr(part, "counted_elsewhere", False):
            continue
        if isinstance(part, pd.DataFrame | pd.Series | pd.Index):
            size += int(np.sum(part.memory_usage(deep=True)))
            continue
        if isinstance(part, np.ndarray):
            arrays[id(part)] = sys.getsizeof(part)
            # A view keeps the array alive that it looks into; objects have sizes of their own.
            waiting += [part.base, *(part.ravel().tolist() if part.dtype.hasobject else ())]
            continue
        size += sys.getsizeof(part)
        if isinstance(part, Mapping):
            waiting += [*part, *part.values()]
        elif isinstance(part, list | tuple | set | frozenset):
            waiting += part
        elif hasattr(part, "__dict__"):
            waiting += vars(part).values()
    # What is no array belongs to this value alone, so it is listed under its id.
    return {**arrays, id(value): arrays.get(id(value), 0) + size}


class ByteLRU(Generic[Value]):
    """A cache of at most `most` bytes, shared by all sessions; least recently used first out.

    A value is measured once, arrays that several values hold count once, and the newest value stays
    whatever its size.
    """

    def __init__(self, max_bytes: int) -> None:
        self.most = max_bytes
        self.size = 0
        # Each value with the sizes of its parts, and by how many values each part is held.
        self._held: OrderedDict[Hashable, tuple[Value, dict[int, int]]] = OrderedDict()
        self._holders: Counter[int] = Counter()
        self._lock = threading.Lock()

    def put(self, key: Hashable, value: Value) -> None:
        """Store a value, replacing any of the same key."""
        sizes = _sizes(value)
        with self._lock:
            if key in self._held:
                self._drop(key)
            self._held[key] = value, sizes
            self.size += sum(size for part, size in sizes.items() if not self._holders[part])
            self._holders.update(sizes.keys())
            while self.size > self.most and len(self._held) > 1:
                self._drop(next(iter(self._held)))

    def _drop(self, key: Hashable) -> None:
        _, sizes = self._held.pop(key)
        self._holders.subtract(sizes.keys())
        self.size -= sum(size for part, size in sizes.items() if not self._holders[part])
        self._holders = +self._holders  # without those at zero

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key or None; it counts as used."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]


STORE: ByteLRU[Any] = ByteLRU(MAX_STORED_MEGABYTES * 1_000_000)
"""What all pages of all sessions keep, in one bound: uploads, what a model read, runs, tables.

So the sessions of closed windows, whose files stay for a reload, take no more than the open ones.
"""


class Shelf(Generic[Value]):
    """Values of one kind in `STORE`, with keys of their own."""

    def put(self, key: Hashable, value: Value) -> None:
        """Store a value, replacing any of the same key."""
        STORE.put((self, key), value)

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key or None; it counts as used."""
        value: Value | None = STORE.get((self, key))
        return value


def cached(make: Callable[[*Arguments], Value]) -> Callable[[*Arguments], Value]:
    """Cache a function by its arguments, in `STORE`.

    An argument that is compared by identity, such as a run, is not kept alive by that.
    """

    @wraps(make)
    def find_or_make(*arguments: *Arguments) -> Value:
        key = make, _key(arguments)
        value: Value | None = STORE.get(key)
        if value is None:
            value = make(*arguments)
            STORE.put(key, value)
        return value

    return find_or_make


def _key(argument: Any) -> Hashable:
    """Return a key for an argument; a weak reference for one that is compared by identity."""
    if type(argument) is tuple:
        return tuple(map(_key, argument))
    hashed: object = type(argument).__hash__
    by_identity = argument is not None and hashed is object.__hash__
    key: Hashable = weakref.ref(argument) if by_identity else argument
    return key
