"""The base class of policies: hyperparameters, channels, and a score for each entry.

The loop over turns calls a policy in this order:

1. `recalls`: which entries come back from the second tier, if there is one?
2. `update`: how does this turn change the entries that are already cached?
3. `init_channels`: what does a new entry start with?
4. `after_insert`: what changes once old and new entries are in the cache together?
5. `terms`: the named terms whose sum is an entry's score.
6. `budgets`, `protects`, `places`: how many entries may each row keep, and which of them stay
   whatever their score?
7. `modulate`: how are the attention weights of the kept entries bent?

Only `terms` has no default. The loop itself removes entries below a threshold, inserts and evicts.
A `fdkvc.policies.wrapper.Wrapper` overrides some of these methods of the policy that it wraps.
A policy imports from here, also the steps that `fdkvc.policies.card` defines.
"""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, ClassVar, Literal

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache, Ties, newest
from fdkvc.parameters import Checked, Field, changed, fields_of, parameter, share
from fdkvc.policies.card import EVICTION as EVICTION
from fdkvc.policies.card import RECENT_WINDOW as RECENT_WINDOW
from fdkvc.policies.card import SINKS_STAY as SINKS_STAY
from fdkvc.policies.card import SUMMED_ATTENTION as SUMMED_ATTENTION
from fdkvc.policies.card import Available as Available
from fdkvc.policies.card import Card
from fdkvc.policies.card import Step as Step
from fdkvc.policies.card import changing as changing
from fdkvc.policies.card import protecting as protecting

Look = Literal[
    "positions",
    "keys",
    "values",
    "queries",
    "attention",
    "similarity",
    "surprisal",
    "history",
    "chance",
    "speakers",
    "words",
    "traits",
    "future",
]
"""What a policy decides by.

``traits`` is what the text of a token says of it.
``attention`` is that of this turn; ``similarity`` that of embeddings; ``surprisal`` is how
improbable a token was when it arrived; ``history`` is what it stores of earlier turns; ``future``
is the rest of the dialog.
"""


Score = Callable[[Cache], Floats]
"""Computes the score of entries (B, C): the sum of the terms, as eviction will see it."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a turn did to the entries that were already cached."""

    cache: Cache
    """The same entries, their channels and row states brought up to this turn."""
    stale: Bools | None = None
    """Shape (B, C). Entries below the policy's own threshold, removed before the new ones come
    in."""
    recorded: Mapping[str, Floats] = field(default_factory=dict)
    """Arrays of shape (B, C) or (B,) by name. Intermediate quantities of the steps, for
    explanations."""


@dataclass(frozen=True)
class Policy(Card, Checked, ABC):
    """An eviction policy; its dataclass fields are its hyperparameters.

    `Card` has what is displayed of it. Properties, also those of `Card`, are mostly attributes of a
    class; where one depends on hyperparameters the class has a property.

    Class attributes
    ----------------
    key : str
        Its name in files and links.
    """

    key: ClassVar[str]

    @property
    def looks_at(self) -> tuple[Look, ...]:
        """What it decides by; see `Look`."""
        return ()

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the numbers that it stores for each entry."""
        return ()

    @property
    def ties(self) -> Ties:
        """Which scores count as equal, so that the older entry stays."""
        return Ties()

    def initial_state(self) -> Mapping[str, float]:
        """Return the row states and their initial values."""
        return {}

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Update the entries that were cached before this turn.

        An update that needs scores calls `score`, not `terms`: it includes all wrappers around
        this policy.
        """
        return Update(cache)

    def init_channels(self, turn: Observation) -> Mapping[str, Floats]:
        """Return the initial channels of the turn's new tokens (B, n)."""
        return {name: np.zeros_like(turn.new, np.float32) for name in self.channels}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Update channels once old and new entries are cached together."""
        return cache

    @abstractmethod
    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return the named terms (B, C) whose sum is each entry's score; higher means keep."""

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Mark entries that stay whatever their score (B, C), at most `budget` a row."""
        return np.zeros_like(cache.token, np.bool_)

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        """Bend the attention weights (B, C) over the kept entries; they sum to 1."""
        return weights

    # How many entries a cache may hold, and where: what wrappers change, and few policies.

    @property
    def bounded(self) -> bool:
        """Whether it respects the budget."""
        return True

    @property
    def reads_afresh(self) -> bool:
        """Whether a turn reads entries that its own queries select from all that is stored."""
        return False

    @property
    def page_size(self) -> int:
        """How many neighbouring positions are evicted only together."""
        return 1

    def capacity(self, budget: int, tokens: int) -> int:
        """Return how many entries the cache may hold: the budget, or all tokens if unbounded."""
        return budget if self.bounded else tokens

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return how many entries a row may hold when layers and heads share budgets."""
        return budget

    def tier_places(self, budget: int, tokens: int) -> int:
        """Return the size of the second tier, whose evicted tokens may come back.

        A policy with a tier has the row state ``moves``: entries moved between cache and tier
        since the dialog's start.
        """
        return 0

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Mark the tokens of the second tier (B, R) that come back to the cache.

        They start as new entries and then take part in the turn as cached ones.
        """
        return np.zeros_like(tier, np.bool_)

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        """Return the budget of each row (B, 1), or one for all; the mean over layers is `budget`.

        Protection and places follow from it.
        """
        return budget

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Return how many entries each row keeps (B, 1), or one number for all.

        As many consecutive rows as there are `heads` may share their budgets.
        """
        return budgets

    @property
    def core(self) -> Policy:
        """The innermost wrapped policy; this one, if it wraps none."""
        return self

    @property
    def name(self) -> str:
        """The key, and every hyperparameter that is not at its default.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc", gamma=0.8, w_c=0.3).name
        'fd-kvc gamma=0.8 w_c=0.3'
        """
        return " ".join([self.key, *changed(self)])

    @property
    def settings(self) -> Mapping[str, Field]:
        """Every hyperparameter by name, with its value as the field's default."""
        return {field.name: field for field in fields_of(self, self.key)}

    def variant(self, **changes: float | int | str) -> Policy:
        """Return this policy with other hyperparameters."""
        return dataclasses.replace(self, **changes)


def window_parameter(default: float) -> Any:
    """Declare the share of the budget that is reserved for the newest entries."""
    return share(
        default, "Window", "Share of the budget reserved for the newest entries.", symbol="r"
    )


def window(cache: Cache, budget: int, share: float) -> Bools:
    """Mark the newest entries, up to this share of the budget, rounded down (B, C)."""
    return newest(cache, np.asarray(budget * share).astype(np.intp).reshape(-1, 1))


@dataclass(frozen=True)
class WindowedPolicy(Policy):
    """A policy that reserves a share of the budget for the newest entries."""

    window: float = window_parameter(0.5)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return window(cache, budget, self.window)


def within(budget: int, protects: Callable[[int], Bools]) -> Bools:
    """Protect what is protected within the largest budget at which no row exceeds `budget`.

    `protects` marks the entries protected within a budget (B, C): at most that many a row, and
    those always protected; a larger budget protects no fewer.
    """
    protected = protects(budget)
    crowded = np.flatnonzero(protected.sum(axis=1) > budget).tolist()
    if crowded:
        protected, within_places = protected.copy(), cache(protects)
        for row in crowded:

            def marked(places: int, row: int = row) -> int:
                return int(np.count_nonzero(within_places(places)[row]))

            places = max(bisect_right(range(budget), budget, key=marked) - 1, 0)
            protected[row] = within_places(places)[row]
    return protected


def queries_parameter() -> Any:
    """Declare which attention counts: that of the turn's mean query, or of each query."""
    return parameter(
        "mean",
        "Queries",
        "Which attention counts: that of the turn's mean query, or of each query.",
        choices=("mean", "each"),
    )


def observed_attention(turn: Observation, token: Ints, queries: str) -> Floats:
    """Return the attention that these tokens get in this turn, by query (B, m, C).

    `queries` is ``mean``, one query, or ``each`` of the turn's, which see what came before them.
    """
    if queries == "each":
        return turn.attention_of_each(token)
    return turn.attention(token)[:, None]


def seen_by(turn: Observation, token: Ints, queries: str) -> Bools:
    """Return which queries see each of these tokens (B, m, C)."""
    return turn.visible(token) if queries == "each" else (token >= 0)[:, None]


def total(terms: Mapping[str, Floats]) -> Floats:
    """Sum the named terms to the score (B, C)."""
    return reduce(operator.add, terms.values())


def below_threshold(score: Floats, cache: Cache, threshold: Floats, ties: Ties) -> Bools:
    """Mark entries below the threshold (B,) of their row, ties excepted (B, C)."""
    least = threshold[:, None]
    return np.asarray(cache.present & (score < least - ties.tolerance(least)))
