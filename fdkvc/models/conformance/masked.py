"""Masked attention in plain form: the reference of the checks.

In double precision, one head at a time, sharing no code with the caches under test.
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

    Queries (H, N, h / 2) and keys (K, N, h / 2) are rotated to their positions. `sees` (K, N, N)
    marks which tokens each token attends to, in every KV head; at least itself. `distances`
    (K, N, N) say how far before it the others are, by default by their places in the text, and
    `frequencies` (h / 2,) by which angles a distance of 1 rotates. Raises a ValueError for other
    distances if positions are not rotary. `stored` has keys and values as they come back from where
    they are stored, and which tokens each token sees so (N, N).
    """
    turned = None if distances is None else _turned(distances, frequencies)
    group = len(queries) // len(keys)
    outputs = np.empty((*queries.shape[:2], values.shape[2]), values.dtype)
    for head, query in enumerate(queries):
        at = head // group

        def products(keys: Pairs, query: Pairs = query, at: int = at) -> NDArray[np.float64]:
            if turned is None:
                return np.asarray((query @ keys[at].conj().T).real)
            turned_keys = query[:, None] * keys[at].conj() * np.exp(1j * turned[at])
            return np.asarray(turned_keys.sum(axis=-1).real)

        logits = products(keys)
        if stored is not None:
            logits = np.where(stored[2], products(stored[0]), logits)
        logits = np.where(sees[at], logits * scaling, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixture = weights @ values[at].astype(np.float64)
        if stored is not None:
            mixture += (weights * stored[2]) @ (stored[1][at] - values[at])
        outputs[head] = mixture
    return outputs


def _turned(distances: Ints, frequencies: NDArray[np.float64] | None) -> NDArray[np.float64] | None:
    """Return the angles that distances (K, N, N) add to those in the text, if they differ."""
    places = np.arange(distances.shape[-1])
    differences = distances - (places[:, None] - places)
    if not differences.any():
        return None
    if frequencies is None:
        raise ValueError("this model's positions are not rotary, so they cannot be changed")
    return differences[..., None] * frequencies
