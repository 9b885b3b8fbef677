"""What a server keeps to show it again, bounded by bytes: a count says little of files and runs."""

from __future__ import annotations

import ctypes
import gc
import sys
import threading
from collections import OrderedDict
from collections.abc import Hashable
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Generic, TypeVar

import numpy as np
import pandas as pd

_TABLES = (pd.DataFrame, pd.Series, pd.Index)
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)

Value = TypeVar("Value")


def size_of(value: object) -> int:
    """Return the bytes of a value with all that it refers to, each of it once; no code."""
    size, seen, found = 0, set[int](), [value]
    while found:
        fresh = {id(each): each for each in found if not isinstance(each, _SHARED)}
        new = [each for key, each in fresh.items() if key not in seen]
        seen.update(fresh)
        size += sum(map(sys.getsizeof, new))
        # A table says its own size, with all that it holds; a view of an array does not tell the
        # collector whose memory it shows.
        found = gc.get_referents(*(each for each in new if not isinstance(each, _TABLES)))
        found += [each.base for each in new if isinstance(each, np.ndarray)]
    return size


def give_back() -> None:
    """Give the system what is not used any more, sessions that have ended among it.

    After something large: Streamlit's closed sessions refer to themselves, and the C library keeps
    what was freed for each of the threads that its runs had.
    """
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


class Memory(Generic[Value]):
    """Values by their keys, of so many bytes together; for all sessions of the process.

    Parameters
    ----------
    most : int
        Bytes. When a value comes, what was used the longest ago leaves until all fit; the one that
        came stays, whatever its size. A value is measured once, when it comes.
    """

    def __init__(self, most: int) -> None:
        self.most, self.size = most, 0
        self._kept: OrderedDict[Hashable, tuple[Value, int]] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, key: Hashable, value: Value) -> None:
        """Keep a value in the place of what its key stood for."""
        size = size_of(value)
        with self._lock:
            self.size += size - self._kept.pop(key, (value, 0))[1]
            self._kept[key] = value, size
            while self.size > self.most and len(self._kept) > 1:
                self.size -= self._kept.popitem(last=False)[1][1]

    def find(self, key: Hashable) -> Value | None:
        """Return the value of a key, or None if it is not kept; to look is to use."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]
