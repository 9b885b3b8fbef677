"""Masked attention in its plainest form: the reference of the checks.

It computes in double precision, one head at a time, and shares no code with the caches under test.
"""

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
    stored: tuple[Pairs, Floats, Bools] | None = None,
) -> Floats:
    """Return the output of attention (H, N, h), of values (K, N, h).

    `sees` (K, N, N) marks which tokens each token attends to in every KV head, at least itself.
    Queries (H, N, h / 2) and keys (K, N, h / 2) are rotated to their places in the text.
    `distances` (K, N, N) say how far before each token the others are, if not by their places; a
    distance of 1 rotates by `frequencies` (h / 2,). Raises a ValueError for such distances if
    positions are not rotary. `stored` is for a cache that stores entries in few bits: keys and
    values as they come back, and which tokens each token sees in this form (N, N).
    """
    angles = None if distances is None else _angles(distances, frequencies)
    group = len(queries) // len(keys)
    outputs = np.empty((*queries.shape[:2], values.shape[2]), values.dtype)
    for head, query in enumerate(queries):
        kv_head = head // group
        # 1. Logits (N, N): of the keys themselves, or as they come back.
        turned = None if angles is None else angles[kv_head]
        logits = _products(query, keys[kv_head], turned)
        if stored is not None:
            logits = np.where(stored[2], _products(query, stored[0][kv_head], turned), logits)
        # 2. A softmax over the tokens that each token sees.
        logits = np.where(sees[kv_head], logits * scaling, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        # 3. The mixture of values (N, h), corrected where they come back otherwise.
        mixture = weights @ values[kv_head].astype(np.float64)
        if stored is not None:
            mixture += (weights * stored[2]) @ (stored[1][kv_head] - values[kv_head])
        outputs[head] = mixture
    return outputs


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
    if frequencies is None:
        raise ValueError("this model's positions are not rotary, so they cannot be changed")
    return differences[..., None] * frequencies
