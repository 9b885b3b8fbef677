"""The subject of the checks: a cache, its model, and what the cache promises.

Shapes: C texts, n new tokens of N in all, L layers, H query heads, K KV heads, S entries, V words
of the vocabulary, h numbers of a head.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from fdkvc.core.attention import Bools, Floats, Ints, softmax

Scores = Callable[[Floats, Floats], Floats]
"""Returns the scores of tokens for a KV head (S,), from the turn's queries (G, n, h) of the heads
that share it and the keys (S, h) present, of which the last n are the turn's."""


@dataclass(frozen=True, eq=False)
class Turn:
    """A cache's outputs for some tokens, and the tokens that it holds after them."""

    outputs: Floats
    """Shape (C, n, V). Logits after each of the tokens, for C texts."""
    held: Ints
    """Shape (C, L, K, S). The tokens that each KV head of each layer holds now, by their place in
    the text; −1 for none."""
    before: Ints | None = None
    """Shape (C, L, K, S). The tokens held while these were read, where that differs from `held` of
    the previous call: for a turn of written tokens that ends first."""


class TurnCache:
    """A cache under test, of C texts at once, with its model; it is made of functions.

    `read` takes tokens (C, n) and returns logits (C, n, V); `held` returns the tokens attended to
    now (C, L, K, S), −1 for none; `end_turn` makes the cache evict, or does nothing if it does so
    by itself. `every` also ends a turn every so many tokens while the model writes.
    """

    def __init__(
        self,
        read: Callable[[Ints], Floats],
        held: Callable[[], Ints],
        end_turn: Callable[[], object],
        every: int | None = None,
    ) -> None:
        self._read, self._held, self._end_turn, self._every = read, held, end_turn, every
        self._written = 0

    def feed(self, tokens: Ints) -> Turn:
        """End the turn of written tokens, then read the next turn (C, n) and end it."""
        before = None
        if self._written:  # what is held is decided before the new tokens are known
            self._end_turn()
            before = self._held()
        self._written = 0
        outputs = self._read(tokens)
        self._end_turn()
        return Turn(outputs, self._held(), before)

    def write(self, tokens: Ints) -> Turn:
        """Read a token of each text (C, 1) as if the model wrote it; the turn continues."""
        self._written += 1
        outputs = self._read(tokens)
        if self._every is not None and not self._written % self._every:
            self._end_turn()
        return Turn(outputs, self._held())


@dataclass(frozen=True, eq=False)
class Reading:
    """A model's pass over a text with a given attention mask."""

    outputs: Floats
    """Shape (N, V)."""
    queries: Floats
    """Shape (L, H, N, h). Scaled so that a product with keys times 1/√h is a logit."""
    keys: Floats
    """Shape (L, K, N, h). After positional rotation, each at its own position."""


class FullModel(Protocol):
    """The model without a cache: a text in one pass."""

    @property
    def vocabulary(self) -> int:
        """The size of its vocabulary."""

    def read(self, tokens: Ints, sees: Bools, distances: Ints | None = None) -> Reading:
        """Read the tokens of a text (N,) with a given attention mask (L, K, N, N).

        `sees` marks which tokens (columns) each token (row) attends to, in every KV head;
        `distances` says how far before it they are, by default by their places in the text.
        """


@dataclass(frozen=True, eq=False)
class Subject:
    """A cache, and what it promises."""

    begin: Callable[[int], TurnCache]
    """Takes a number of texts and returns a new, deterministic cache for as many. It may refuse
    several with a ValueError."""
    model: FullModel
    """Its model without a cache."""
    budget: int
    """Entries that every KV head may hold after a turn."""
    every: int | None = None
    """Tokens after which it evicts while the model writes; None if it does not."""
    samples: int = 1
    """Texts that it takes at once."""
    sinks: int = 0
    """First tokens of a text that it never evicts."""
    positions: Literal["seen", "last", "slots"] = "seen"
    """The position of the next token: after all tokens seen (``seen``) or after the last one held
    (``last``), where entries keep their positions; or after the entries, where these close the gaps
    (``slots``)."""
    forks: bool = False
    """Whether it has a method `fork` that returns an independent copy."""
    failing: Callable[[], AbstractContextManager[object]] | None = None
    """Returns a context in which it fails to read a turn with a ValueError, having read a part."""
    scores: Scores | None = None
    """The scores of its policy, if they depend on queries and keys alone, as TOVA's do."""
    tolerance: float = 1e-4
    """Allowed deviation of its outputs, relative to the largest or to 1."""


def last_attention(queries: Floats, keys: Floats) -> Floats:
    """Return the attention of the turn's last query, averaged over heads (S,): as TOVA."""
    weights: Floats = softmax(queries[:, -1] @ keys.T / np.sqrt(keys.shape[1]).astype(keys.dtype))
    return np.asarray(weights.mean(axis=0))


def key_difference(queries: Floats, keys: Floats) -> Floats:
    """Return each key's dissimilarity from the mean direction of all keys (S,): as KeyDiff."""
    unit = keys / np.linalg.norm(keys, axis=1, keepdims=True)
    anchor = unit.mean(axis=0)
    return np.asarray(-(unit @ anchor) / np.linalg.norm(anchor))
