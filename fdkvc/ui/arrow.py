"""Tables in the form in which they go to the browser."""

from __future__ import annotations

import weakref

import pandas as pd
import pyarrow as pa

_converted: dict[int, pa.Table] = {}


def arrow_table(frame: pd.DataFrame) -> pa.Table:
    """Convert a frame to Arrow, once in its life.

    A conversion takes about a millisecond whatever the frame's size, and a step sends a dozen
    frames, most of them the same in every turn.
    """
    if id(frame) not in _converted:
        _converted[id(frame)] = pa.Table.from_pandas(frame, preserve_index=False)
        weakref.finalize(frame, _converted.pop, id(frame), None).atexit = False
    return _converted[id(frame)]
