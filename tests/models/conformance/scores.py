"""Scores of policies that depend on queries and keys alone."""

from __future__ import annotations

import numpy as np

from fdkvc.core.attention import Floats, softmax


def last_attention(queries: Floats, keys: Floats) -> Floats:
    """Return the attention of the turn's last query, averaged over heads (S,): as TOVA."""
    weights: Floats = softmax(queries[:, -1] @ keys.T / np.sqrt(keys.shape[1]).astype(keys.dtype))
    return np.asarray(weights.mean(axis=0))


def key_difference(queries: Floats, keys: Floats) -> Floats:
    """Return each key's dissimilarity from the mean direction of all keys (S,): as KeyDiff."""
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    anchor = unit.mean(axis=0)
    return np.asarray(-(unit @ anchor) / np.linalg.norm(anchor))
