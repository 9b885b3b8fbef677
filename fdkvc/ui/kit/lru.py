"""Caches bounded by bytes: a count says little of files and runs."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, TypeVar, TypeVarTuple

import numpy as np
import pandas as pd

from fdkvc.limits import MAX_COMPUTED_MEGABYTES

_TABLES = (pd.DataFrame, pd.Series, pd.Index)
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)

Value = TypeVar("Value")
Arguments = TypeVarTuple("Arguments")


def size_of(value: object) -> int:
    """Return the bytes of a value with all that it refers to, each of it once; no code."""
    size, seen, found = 0, set[int](), [value]
    while found:
        fresh = {id(each): each for each in found if not isinstance(each, _SHARED)}
        new = [each for key, each in fresh.items() if key not in seen]
        seen.update(fresh)
        # A table would count what it refers to, which comes to its turn here; that is slower.
        size += sum(sys.getsizeof(each) for each in new if not isinstance(each, _TABLES))
        found = gc.get_referents(*new)
        # What the collector does not know of: whose memory a view shows, and what an array of
        # objects holds.
        for each in new:
            if isinstance(each, np.ndarray):
                found += [each.base, *(each.ravel().tolist() if each.dtype.hasobject else ())]
    return size


class ByteLRU(Generic[Value]):
    """A cache of at most so many bytes, least recently used first out; all sessions share it.

    Parameters
    ----------
    most : int
        Bytes. The value that came last stays, whatever its size. A value is measured once, when it
        comes.
    """

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._held: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, key: Hashable, value: Value) -> None:
        """Store a value in the place of what its key stood for."""
        size = size_of(value)
        with self._lock:
            self.size += size - self._held.pop(key, (value, 0))[1]
            self._held[key] = value, size
            while self.size > self.most and len(self._held) > 1:
                self.size -= self._held.popitem(last=False)[1][1]

    def get(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None if there is none; to look is to use."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key][0]


_COMPUTED: ByteLRU[Any] = ByteLRU(MAX_COMPUTED_MEGABYTES * 1_000_000)


def cached(make: Callable[[*Arguments], Value]) -> Callable[[*Arguments], Value]:
    """Cache what a function makes by its arguments, within one bound for all such functions.

    An argument that equals only itself, such as a run or a file, is not kept alive by that.
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
    """Return what tells an argument from others; of what is compared as itself, no more."""
    if type(argument) is tuple:
        return tuple(map(_named, argument))
    hashed: object = type(argument).__hash__
    if argument is not None and hashed is object.__hash__:
        return weakref.ref(argument)
    named: Hashable = argument
    return named
