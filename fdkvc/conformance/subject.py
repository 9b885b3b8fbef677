"""The subject of the checks: a cache, its model, and what the cache promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, softmax
from fdkvc.parameters import Parameter, check_parameter

LEAST = 8
"""The smallest budget to which the checks apply."""

Scores = Callable[[Floats, Floats], Floats]
"""Scores of tokens for a KV head (S,), from the turn's queries (G, n, h) of the heads that share it
and the keys (S, h) present, of which the last n are the turn's."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A cache's outputs for some tokens, and the tokens that it holds after them.

    Attributes
    ----------
    outputs : array (C, n, V)
        Logits after each of the tokens, for C texts.
    held : array (C, L, K, S)
        The tokens that each KV head of each layer holds now, by their place in the text; −1 for
        none.
    before : array (C, L, K, S), optional
        The tokens held while these were read, where that differs from `held` of the previous call:
        for a cache that evicts at the start of a turn. It must not depend on the new tokens.
    """

    outputs: Floats
    held: Ints
    before: Ints | None = None


class EvictionCache(Protocol):
    """A cache under test, of C texts at once, with its model."""

    def feed(self, tokens: Ints) -> Turn:
        """Read the next turn (C, n) at once and end it."""

    def write(self, tokens: Ints) -> Turn:
        """Read a token of each text (C, 1) as if the model wrote it; the turn continues."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A model's pass over a text with a given attention mask.

    Attributes
    ----------
    outputs : array (N, V)
    queries : array (L, H, N, h)
    keys : array (L, K, N, h)
        After positional rotation, each at its own position.
    """

    outputs: Floats
    queries: Floats
    keys: Floats


class FullModel(Protocol):
    """The model without a cache: a text in one pass."""

    @property
    def vocabulary(self) -> int:
        """The size of its vocabulary."""

    def read(self, tokens: Ints, sees: Bools, distances: Ints | None = None) -> Reading:
        """Read a text with a given attention mask.

        Parameters
        ----------
        tokens : array (N,)
        sees : array (L, K, N, N) of bool
            Which tokens (columns) each token (row) attends to, in every KV head.
        distances : array (L, K, N, N), optional
            How far before each token the others are; by their places in the text if None.
        """


@dataclass(frozen=True, eq=False)
class Subject:
    """A cache, and what it promises.

    Attributes
    ----------
    begin : function
        Takes a number of texts and returns a new, deterministic cache for as many. It may refuse
        several with a ValueError.
    model : FullModel
    budget : int
        Entries that every KV head may hold after a turn, at least 8.
    every : int, optional
        Tokens after which it evicts while the model writes; None if it does not.
    samples : int
        Texts that it takes at once.
    sinks : int
        First tokens of a text that it never evicts.
    positions : {"seen", "slots"}
        Whether entries keep their positions and the next token follows all tokens seen, or entries
        close the gaps and the next token follows them.
    recalls : bool
        Whether evicted entries may return.
    scores : function, optional
        Its policy's scores, if they depend on queries and keys alone, as `last_attention`.
    tolerance : float
        Allowed deviation of its outputs, relative to the largest or to 1.

    Raises
    ------
    ValueError
        For a budget below 8, or one of which sinks are more than a half.
    """

    begin: Callable[[int], EvictionCache]
    model: FullModel
    budget: int
    every: int | None = None
    samples: int = 1
    sinks: int = 0
    positions: Literal["seen", "slots"] = "seen"
    recalls: bool = False
    scores: Scores | None = None
    tolerance: float = 1e-4

    def __post_init__(self) -> None:
        check_parameter("the budget of a subject", Parameter("", "", low=LEAST), self.budget, int)
        most = Parameter("", "", low=0, high=self.budget // 2)
        check_parameter("the sinks of a subject", most, self.sinks, int)


def last_attention(queries: Floats, keys: Floats) -> Floats:
    """Return the attention of the turn's last query, averaged over heads (S,): as TOVA."""
    weights: Floats = softmax(queries[:, -1] @ keys.T / np.sqrt(keys.shape[1]).astype(keys.dtype))
    mean: Floats = weights.mean(axis=0)
    return mean


def key_difference(queries: Floats, keys: Floats) -> Floats:
    """Return each key's dissimilarity from the mean direction of all keys (S,): as KeyDiff."""
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    anchor = unit.mean(axis=0)
    unlike: Floats = -(unit @ anchor) / np.linalg.norm(anchor)
    return unlike
