"""Caches bounded by bytes, since files and runs differ in size."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from itertools import chain
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np
import pandas as pd

from fdkvc.corpora.recordings import Recording, Token
from fdkvc.limits import MAX_COMPUTED_MEGABYTES

_SIZES: weakref.WeakKeyDictionary[Recording, int] = weakref.WeakKeyDictionary()
_TABLES = (pd.DataFrame, pd.Series, pd.Index)
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)

Value = TypeVar("Value")
Arguments = TypeVarTuple("Arguments")


def size_of(value: object) -> int:
    """Return the bytes of a value and of all that it refers to, each once; no code.

    A recording has many parts and is shared by many values: it is measured once.
    """
    size, seen, found = 0, set[int](), [value]
    while found:
        fresh = {id(each): each for each in found if not isinstance(each, _SHARED)}
        new = [each for key, each in fresh.items() if key not in seen]
        seen.update(fresh)
        parts = [each for each in new if isinstance(each, Recording) and each is not value]
        size += sum(map(_size_of_recording, parts))
        new = [each for each in new if not any(each is part for part in parts)]
        # A table would also count what it refers to, which is counted here anyway, and faster.
        size += sum(sys.getsizeof(each) for each in new if not isinstance(each, _TABLES))
        # The many tokens of a dialog have their text and numbers for themselves.
        tokens = [each for each in new if type(each) is Token]
        size += sum(map(sys.getsizeof, chain.from_iterable(tokens)))
        found = gc.get_referents(*(each for each in new if type(each) is not Token))
        # The collector does not know the base of a view, nor the elements of an object array.
        for each in new:
            if isinstance(each, np.ndarray):
                found += [each.base, *(each.ravel().tolist() if each.dtype.hasobject else ())]
    return size


def _size_of_recording(recording: Recording) -> int:
    if recording not in _SIZES:
        _SIZES[recording] = size_of(recording)
    return _SIZES[recording]


class ByteLRU(Generic[Value]):
    """A cache of at most `most` bytes, shared by all sessions; least recently used first out.

    A value is measured once, and the newest stays whatever its size.
    """

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._held: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: Hashable, value: Value) -> None:
        """Store a value, replacing any of the same key."""
        size = size_of(value)
        with self._lock:
            self.size += size - self._held.pop(key, (value, 0))[1]
            self._held[key] = value, size
            while self.size > self.most and len(self._held) > 1:
                self.size -= self._held.popitem(last=False)[1][1]

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key or None; it counts as used."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]


_COMPUTED: ByteLRU[Any] = ByteLRU(MAX_COMPUTED_MEGABYTES * 1_000_000)


def cached(make: Callable[[*Arguments], Value]) -> Callable[[*Arguments], Value]:
    """Cache a function by its arguments, all such functions within one bound.

    An argument that is compared by identity, such as a run, is not kept alive by that.
    """

    @wraps(make)
    def find_or_make(*arguments: *Arguments) -> Value:
        key = make, _named(arguments)
        value: Value | None = _COMPUTED.get(key)
        if value is None:
            value = make(*arguments)
            _COMPUTED.put(key, value)
        return value

    return find_or_make


def _named(argument: Any) -> Hashable:
    """Return a key for an argument; a weak reference for one that is compared by identity."""
    if type(argument) is tuple:
        return tuple(map(_named, argument))
    hashed: object = type(argument).__hash__
    if argument is not None and hashed is object.__hash__:
        return weakref.ref(argument)
    named: Hashable = argument
    return named
