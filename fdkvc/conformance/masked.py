"""Masked attention, plainly: what the checks hold every cache against.

In double precision and one head at a time, with nothing of the caches that are checked by it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints

Pairs = NDArray[np.complex128]
"""Queries or keys (heads, N, h / 2), the two numbers that one angle turns as one complex number."""


def mixed(
    queries: Pairs,
    keys: Pairs,
    values: Floats,
    sees: Bools,
    scaling: float,
    turned: NDArray[np.float64] | None = None,
) -> Floats:
    """Return what attention gives each token (H, N, h).

    Parameters
    ----------
    queries : array (H, N, h / 2)
    keys : array (K, N, h / 2)
        After positional rotation.
    values : array (K, N, h)
    sees : array (K, N, N) of bool
        What each token sees, in every KV head; itself at least.
    scaling : float
        Of the logits.
    turned : array (K, N, N, h / 2), optional
        Angles by which a query and a key stand further apart than their rotations say.
    """
    group = len(queries) // len(keys)
    found = np.empty((*queries.shape[:2], values.shape[2]), np.float32)
    for head, asked in enumerate(queries):
        own = head // group
        if turned is None:
            logits = (asked @ keys[own].conj().T).real
        else:
            products = asked[:, None] * keys[own].conj()
            logits = (products * np.exp(1j * turned[own])).sum(axis=-1).real
        logits = np.where(sees[own], logits * scaling, -np.inf)
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        found[head] = weights @ values[own].astype(np.float64)
    return found


def further(distances: Ints, frequencies: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the angles by which distances (K, N, N) differ from those of the places in a text."""
    places = np.arange(distances.shape[-1])
    return (distances - (places[:, None] - places))[..., None] * frequencies
