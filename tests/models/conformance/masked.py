"""Masked attention in its plainest form: the reference of the checks.

It computes in double precision, one head at a time, and shares no code with the caches under test.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Floats, Ints

Pairs = NDArray[np.complex128]
"""Queries or keys (heads, N, h / 2): the two dimensions that one angle rotates, as a complex."""


def mixed(
    queries: Pairs,
    keys: Pairs,
    values: Floats,
    sees: Bools,
    scaling: float,
    distances: Ints | None = None,
    frequencies: NDArray[np.float64] | None = None,
    cap: float | None = None,
    sinks: Floats | None = None,
) -> Floats:
    """Return the output of attention (H, N, h), of values (K, N, h).

    `sees` (K, N, N) marks which tokens each token attends to in every KV head, at least itself.
    Queries (H, N, h / 2) and keys (K, N, h / 2) are rotated to their places in the text.
    `distances` (K, N, N) say how far before each token the others are, if not by their places; a
    distance of 1 rotates by `frequencies` (h / 2,). Logits are at most `cap`; `sinks` (H,) are
    logits of no token.
    """
    angles = None if distances is None else _angles(distances, frequencies)
    group = len(queries) // len(keys)
    outputs = np.empty((*queries.shape[:2], values.shape[2]), values.dtype)
    for head, query in enumerate(queries):
        kv_head = head // group
        turned = None if angles is None else angles[kv_head]
        logits = scaling * _products(query, keys[kv_head], turned)
        if cap is not None:
            logits = cap * np.tanh(logits / cap)
        logits = np.where(sees[kv_head], logits, -np.inf)
        largest = logits.max(axis=1, keepdims=True)
        weights = np.exp(logits - largest)
        total = weights.sum(axis=1, keepdims=True)
        if sinks is not None:
            total += np.exp(sinks[head] - largest)
        outputs[head] = weights / total @ values[kv_head].astype(np.float64)
    return outputs


def seen_by_turns(
    shape: tuple[int, int], ends: Sequence[int], held_by_turn: Sequence[Ints | None]
) -> Bools:
    """Return which tokens each token attended to (L, K, N, N), by what each turn left (L, K, S).

    `shape` is of layers and KV heads; a turn may have left everything (None).
    """
    total, start = ends[-1], 0
    sees = np.zeros((*shape, total, total + 1), np.bool_)
    held: Ints | None = None
    for end, left in zip(ends, held_by_turn, strict=True):
        if held is None:
            sees[:, :, start:end, :start] = True
        else:
            tokens = np.repeat(held[:, :, None], end - start, axis=2)
            np.put_along_axis(sees[:, :, start:end], tokens, True, axis=3)  # −1 is the last column
        sees[:, :, start:end, start:end] |= np.tri(end - start, dtype=np.bool_)
        start, held = end, left
    return sees[..., :-1]


def _products(query: Pairs, keys: Pairs, turned: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Return the products (N, N) of queries and keys that are rotated further by angles."""
    if turned is None:
        return np.asarray((query @ keys.conj().T).real)
    products = query[:, None] * keys.conj() * np.exp(1j * turned)
    return np.asarray(products.sum(axis=-1).real)


def _angles(distances: Ints, frequencies: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Return the angles by which distances (K, N, N) differ from those in the text, if any do."""
    places = np.arange(distances.shape[-1])
    differences = distances - (places[:, None] - places)
    if not differences.any():
        return None
    assert frequencies is not None, "positions that are not rotary cannot be changed"
    return differences[..., None] * frequencies
