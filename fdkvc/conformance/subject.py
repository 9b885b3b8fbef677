"""What is put through the checks: a cache, the model that it serves, and what it promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, softmax
from fdkvc.parameters import Parameter, check_parameter

LEAST = 8
"""The smallest budget that the checks can say something of."""

Scores = Callable[[Floats, Floats], Floats]
"""What tokens are worth to a KV head, by the turn's queries (G, n, h) of the heads that share it,
and by the keys (S, h) of what stands, of which the last n are the turn's own: array (S,)."""


@dataclass(frozen=True, eq=False)
class Turn:
    """What a cache answered to some tokens, and what it holds after them.

    Attributes
    ----------
    outputs : array (C, n, V)
        Logits of what comes after each of the tokens, for C texts.
    held : array (C, L, K, S)
        The tokens that each KV head of each layer holds now, counted from the first of its text;
        −1 for none.
    before : array (C, L, K, S), optional
        The same as the tokens were read, where that is not what the call before left: for a cache
        that lets go of what the model wrote when the next turn comes. It must not depend on the
        tokens that come.
    """

    outputs: Floats
    held: Ints
    before: Ints | None = None


class EvictionCache(Protocol):
    """A cache under test, of C texts at once, with the model that reads by it."""

    def feed(self, tokens: Ints) -> Turn:
        """Read the next turn (C, n) at once, and let it end."""

    def write(self, tokens: Ints) -> Turn:
        """Read tokens (C, 1) as one that the model has just written; its turn goes on."""


@dataclass(frozen=True, eq=False)
class Reading:
    """What a model comes to where it is said what each token sees.

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
    """The model without any cache: all of a text in one pass."""

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""

    def read(self, tokens: Ints, sees: Bools, distances: Ints | None = None) -> Reading:
        """Read a text in which every token sees what it is told to see.

        Parameters
        ----------
        tokens : array (N,)
        sees : array (L, K, N, N) of bool
            What each token, in the rows, sees of the others, in every KV head.
        distances : array (L, K, N, N), optional
            How far before each token the others stand, where that is not by their places in the
            text.
        """


@dataclass(frozen=True, eq=False)
class Subject:
    """A cache, and what it promises.

    Attributes
    ----------
    begin : function
        Of a number of texts to a new cache for as many, which does the same as another with the
        same texts. It may refuse several by a ValueError.
    model : FullModel
    budget : int
        Entries that every KV head may hold when a turn has ended, at least 8.
    every : int, optional
        Tokens after which it evicts while the model writes; None if it does not.
    samples : int
        Texts that it takes at once.
    sinks : int
        First tokens of a text that it never evicts.
    positions : {"seen", "slots"}
        Whether what stays keeps its place in the text, and the next token has the place after all
        tokens seen; or what stays closes up, and the next token follows the entries held.
    recalls : bool
        Whether what was evicted may come back.
    scores : function, optional
        What its policy makes of queries and keys, where that is all that it goes by, as
        `last_attention`; see `Scores`.
    tolerance : float
        How far its outputs may be away, of the largest or of 1.

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
    """Return what the turn's last query attends to, on average over the heads (S,): as TOVA."""
    weights: Floats = softmax(queries[:, -1] @ keys.T / np.sqrt(keys.shape[1]).astype(keys.dtype))
    mean: Floats = weights.mean(axis=0)
    return mean


def key_difference(queries: Floats, keys: Floats) -> Floats:
    """Return how unlike the mean direction of all keys each of them is (S,): as KeyDiff."""
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    anchor = unit.mean(axis=0)
    unlike: Floats = -(unit @ anchor) / np.linalg.norm(anchor)
    return unlike
