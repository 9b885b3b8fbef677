"""Features of a text's tokens, turn by turn: speakers, kinds, and the tools of results."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import KINDS


def with_new(
    features: Mapping[str, NDArray[Any]], new: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Return the features of a text with those of its new tokens.

    Speakers and kinds go on until the next mark; results have the tools of the calls before them,
    in their order.
    """
    for name in ("speakers", "kinds"):
        if features.get(name, np.empty(0)).size and name in new:
            new = {**new, name: np.where(new[name] == -1, features[name][-1], new[name])}
    if "tools" in new:
        new = {**new, "tools": _with_tools_of_results(features, new)}
    return {
        name: np.concatenate([features[name], column]) if name in features else column
        for name, column in new.items()
    }


def _with_tools_of_results(
    features: Mapping[str, NDArray[Any]], new: Mapping[str, NDArray[Any]]
) -> NDArray[Any]:
    """Return the tools of new tokens, with those of results."""
    tools, results = new["tools"].copy(), new["kinds"] == KINDS.index("result")
    if not results.any():
        return tools
    for start in np.flatnonzero(results & ~np.append(False, results[:-1])).tolist():
        end = start + int(np.append(results[start:], False).argmin())
        kinds = np.append(features.get("kinds", tools[:0]), new["kinds"][:start])
        tools[start:end] = _tool_of_next(
            kinds, np.append(features.get("tools", tools[:0]), tools[:start])
        )
    return tools


def _tool_of_next(kinds: NDArray[Any], tools: NDArray[Any]) -> int:
    """Return the tool of the next result, 0 if unknown: results are in the order of the calls."""
    begins = np.append(True, (np.diff(kinds) != 0) | (np.diff(tools) != 0))
    called, results = list[int](), 0
    for start in np.flatnonzero(begins[: len(kinds)])[::-1].tolist():
        kind = kinds[start]
        if kind == KINDS.index("call"):
            called.append(int(tools[start]))
        elif kind == KINDS.index("result") and not called:
            results += 1
        elif kind >= 0 and called:
            break
    return called[::-1][results] if results < len(called) else 0
