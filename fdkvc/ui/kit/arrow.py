"""Tables in the form in which they go to the browser.

A conversion takes about a millisecond whatever the table's size, and a step sends a dozen tables:
so each is converted once in its life, and those of all turns together.
"""

from __future__ import annotations

import weakref
from itertools import pairwise

import numpy as np
import pandas as pd
import pyarrow as pa

_converted: dict[int, pa.Table] = {}


def arrow_table(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table."""
    if id(frame) not in _converted:
        _keep(frame, pa.Table.from_pandas(frame, preserve_index=False))
    return _converted[id(frame)]


def cut_by_turn(frame: pd.DataFrame, turns: int) -> tuple[pd.DataFrame, ...]:
    """Cut a frame into one for each of so many turns, without the column `turn`."""
    ordered = frame.sort_values("turn", kind="stable", ignore_index=True)
    rows = ordered.drop(columns="turn")
    whole = pa.Table.from_pandas(rows, preserve_index=False)
    parts = []
    for first, end in pairwise(np.searchsorted(ordered["turn"], range(turns + 1)).tolist()):
        part = rows.iloc[first:end]
        _keep(part, whole.slice(first, end - first))
        parts.append(part)
    return tuple(parts)


def _keep(frame: pd.DataFrame, table: pa.Table) -> None:
    _converted[id(frame)] = table
    weakref.finalize(frame, _converted.pop, id(frame), None).atexit = False
