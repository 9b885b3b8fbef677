"""Features of a text's tokens, added turn by turn: speakers, kinds, and the tools of results."""

from collections.abc import Mapping
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
    """Return the tools of new tokens, also those of results, which name none themselves."""
    tools, results = new["tools"].copy(), new["kinds"] == KINDS.index("result")
    if not results.any():
        return tools
    # Each run of tokens of results is one result.
    for start in np.flatnonzero(results & ~np.append(False, results[:-1])).tolist():
        end = start + int(np.append(results[start:], False).argmin())
        kinds = np.append(features.get("kinds", tools[:0]), new["kinds"][:start])
        tools[start:end] = _tool_of_next(
            kinds, np.append(features.get("tools", tools[:0]), tools[:start])
        )
    return tools


def _tool_of_next(kinds: NDArray[Any], tools: NDArray[Any]) -> int:
    """Return the tool of the next result, 0 if unknown, as results come in the order of calls."""
    begins = np.append(True, (np.diff(kinds) != 0) | (np.diff(tools) != 0))
    # Backwards: count the results since the last calls, then take these calls, up to any other
    # kind of message. Kinds below 0, of marks, are skipped.
    called, results = list[int](), 0
    for start in np.flatnonzero(begins[: len(kinds)])[::-1].tolist():
        kind = kinds[start]
        if kind == KINDS.index("call"):
            called.append(int(tools[start]))
        elif kind == KINDS.index("result") and not called:
            results += 1
        elif kind >= 0 and called:
            break
    in_order = called[::-1]
    return in_order[results] if results < len(in_order) else 0
