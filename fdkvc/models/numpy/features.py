"""Features of a text's tokens, added turn by turn: speakers, kinds, and the tools of results."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import KINDS


def with_new(
    features: Mapping[str, NDArray[Any]], new: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the features of a text and of its new tokens.

    New tokens before any mark have the speaker and kind of the last token: a turn may be a part of
    a message. Results get the tools of the calls before them, in order.
    """
    for name in ("speakers", "kinds"):
        if features.get(name, np.empty(0)).size and name in new:
            unknown = new[name] == -1
            new = {**new, name: np.where(unknown, features[name][-1], new[name])}
    if "tools" in new:
        new = {**new, "tools": _with_tools_of_results(features, new)}
    joined = dict(new)
    for name in new.keys() & features.keys():
        joined[name] = np.concatenate([features[name], new[name]])
    return joined


def _with_tools_of_results(
    features: Mapping[str, NDArray[Any]], new: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the tools of new tokens, also those of results, which name none themselves."""
    unknown = np.empty(0, np.intp)
    call = KINDS.index("call")
    kinds = np.append(features.get("kinds", unknown), new["kinds"])
    tools = np.append(features.get("tools", unknown), new["tools"])
    first = len(tools) - len(new["tools"])
    # Where messages start; calls may follow each other without a mark.
    starts = (np.diff(kinds) != 0) | ((np.diff(tools) != 0) & (kinds[1:] == call))
    # The tools of the calls that results answer, in order, and how many have been answered.
    called = list[int]()
    results = 0
    calling = False
    for start, end in pairwise([0, *(np.flatnonzero(starts) + 1).tolist(), len(kinds)]):
        kind = kinds[start]
        if kind == call:
            if not calling:
                called = []
                results = 0
            called.append(int(tools[start]))
        elif kind == KINDS.index("result"):
            if results < len(called):  # it may have begun in an earlier turn
                tools[max(start, first) : end] = called[results]
            results += 1
        if kind >= 0:  # marks are below 0
            calling = kind == call
    return tools[first:]
