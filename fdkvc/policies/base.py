"""The base class of policies: hyperparameters, channels, and a score for each entry.

The loop over turns calls a policy in this order:

1. `update`: how does this turn change the entries that are already cached?
2. `init_channels`: what does a new entry start with?
3. `after_insert`: what changes once old and new entries are in the cache together?
4. `terms`: the named terms whose sum is an entry's score.
5. `budgets`, `protects`, `places`: how many entries may each row keep, and which of them stay
   whatever their score?
6. `modulate`: how do the attention weights of the kept entries change?

Only `terms` has no default. The loop itself removes entries below a threshold, inserts and evicts.
A `fdkvc.policies.wrapper.Wrapper` overrides some of these methods of the policy that it wraps.
`PolicyCard` is what readers see of a policy; it decides nothing.
"""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, ClassVar, Literal

import numpy as np

from fdkvc.core.attention import Bools, Columns, Floats, Ints, Observation
from fdkvc.core.cache import Cache, Pages, Ties, newest
from fdkvc.core.parameters import Checked, Field, changed, fields_of, parameter, share

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
    "kinds",
    "words",
    "traits",
    "future",
]
"""What a policy decides by.

``kinds`` are who or what wrote a token, and the tool of a call or result; ``traits`` follow from
the text of a token. ``attention`` is that of this turn, ``similarity`` that of embeddings;
``surprisal`` is how improbable a token was when it arrived, ``history`` what the policy stores of
earlier turns, and ``future`` the rest of the dialog.
"""


Looks = tuple[Look, ...]
"""All that a policy decides by."""

BY_TEXT: frozenset[Look] = frozenset(
    ("positions", "history", "surprisal", "speakers", "kinds", "words", "traits")
)
"""What is the same for all heads: if a policy looks at nothing else, they keep the same tokens."""


KEPT = ", keys kept"
"""Ends the title of what engines usually do by reading the rest again, if it keeps keys."""

Score = Callable[[Cache], Floats]
"""Computes the score of entries (B, C): the sum of the terms, as eviction will see it."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a turn did to the entries that were already cached."""

    cache: Cache
    """The same entries, with channels and row states as of this turn."""
    stale: Bools | None = None
    """Shape (B, C). Entries below the policy's own threshold, removed before new ones are
    inserted."""
    recorded: Columns = field(default_factory=dict)
    """Arrays of shape (B, C) or (B,) by name. Intermediate quantities of the steps, for
    explanations."""


StepKind = Literal["value", "change", "rate", "protect", "evict", "attention"]
"""What a step does, which decides how it is narrated; see `Step`."""


@dataclass(frozen=True)
class Step:
    """One step of a policy's turn, as readers see it."""

    name: str
    """Its heading."""
    equation: str
    """LaTeX."""
    source: str
    """Where the equation is published."""
    reads: tuple[str, ...] = ()
    """Quantities that it reads: channels, row states, terms, or what `update` records."""
    writes: tuple[str, ...] = ()
    """Quantities that it computes."""
    kind: StepKind = "value"
    """``value`` computes what it writes. ``change`` turns the first quantity it reads into the
    first it writes, entry by entry; a quantity that it both reads and writes starts as the last
    turn left it. ``rate`` sets row states, in the order of their dependence. ``protect`` marks
    entries that must stay. ``evict`` removes and inserts; with a threshold it reads the score that
    is compared with it and the threshold, in this order. ``attention`` turns the weights it reads
    into those it writes."""
    includes_new: bool = False
    """Whether the turn's own tokens take part in a ``change``."""

    def channel(self, channels: Sequence[str]) -> str | None:
        """Return the channel that a ``change`` changes: what it writes begins with its name."""
        return next((name for name in channels if self.writes[0].startswith(name)), None)


Steps = tuple[Step, ...]
"""The steps of a turn, in order."""

QUANTITIES = {
    "cumulative": "cumulative attention",
}
"""Display names of quantities that several policies have."""


@dataclass(frozen=True)
class Available:
    """What the dialogs that a policy runs on provide."""

    speakers: tuple[str, ...] = ()
    """The speakers of `fdkvc.core.attention.SPEAKERS` whose tokens are marked."""
    words: bool = False
    """Whether the words of tokens are known."""
    heads: int = 1
    """Number of heads that decide separately."""
    layers: int = 1
    """Number of layers that decide separately."""
    kinds: tuple[str, ...] = ()
    """The kinds of `fdkvc.core.attention.KINDS` whose tokens are marked."""


class PolicyCard:
    """A policy as readers see it."""

    label: ClassVar[str]
    """Its name on screen."""
    idea: ClassVar[str]
    """What it does in a sentence or two."""
    source: ClassVar[str]
    """The paper that defines it."""
    quantity_names: ClassVar[Mapping[str, str]] = {}
    """Display names of quantities whose name is unclear, in addition to `QUANTITIES`."""

    @property
    def steps(self) -> Steps:
        """The steps of its turn."""
        return ()

    @property
    def title(self) -> str:
        """The label, and every hyperparameter that differs from its default.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc", gamma=0.8, w_c=0.3).title
        'FD-KVC γ=0.8 w_c=0.3'
        """
        return " ".join([self.label, *changed(self, letters=True)])

    def quantity_name(self, quantity: str) -> str:
        """Return the display name of a channel, term, row state or recorded quantity.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc").quantity_name("cumulative")
        'cumulative attention'
        """
        names = {**QUANTITIES, **self.quantity_names}
        return names.get(quantity, quantity.replace("_", " "))

    def without_effect(self, available: Available) -> tuple[str, ...]:
        """Return a sentence for each setting that has no effect on such dialogs."""
        return ()


@dataclass(frozen=True)
class Policy(PolicyCard, Checked, ABC):
    """An eviction policy; its dataclass fields are its hyperparameters.

    `PolicyCard` has what is displayed of it. Properties of both classes are plain class attributes
    in most policies; a policy defines a property where the value depends on hyperparameters.
    """

    key: ClassVar[str]
    """Its name in files and links."""
    ties: ClassVar[Ties] = Ties()
    """Which scores count as equal, so that the older entry stays."""
    bounded: ClassVar[bool] = True
    """Whether it respects the budget."""
    reads_again: ClassVar[bool] = False
    """Whether what follows the first evicted token is read again from its text, so that it decides
    by `BY_TEXT` for the whole model."""
    clears_results: ClassVar[bool] = False
    """Whether it clears results of tools, in whose place a placeholder may stand."""

    @property
    def looks_at(self) -> Looks:
        """What it decides by; see `Look`."""
        return ()

    @property
    def queries(self) -> str:
        """Whose attention it looks at: ``mean``, that of the turn's mean query, or ``each``."""
        return "each"

    def last_queries(self, count: int) -> int:
        """How many of a turn's last queries it looks at, of so many, if not at their mean.

        With more queries, none that was before these becomes one of them.
        """
        return count

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the numbers that it stores for each entry."""
        return ()

    def initial_state(self) -> Mapping[str, float]:
        """Return the row states and their initial values."""
        return {}

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Update the entries that were cached before this turn.

        An update that needs scores calls `score`, not `terms`: it includes all wrappers around
        this policy.
        """
        return Update(cache)

    def init_channels(self, turn: Observation) -> Columns:
        """Return the initial channels of the turn's new tokens (B, n)."""
        return {name: np.zeros_like(turn.new, np.float32) for name in self.channels}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Update channels once old and new entries are cached together."""
        return cache

    @abstractmethod
    def terms(self, cache: Cache, turn: Observation) -> Columns:
        """Return the named terms (B, C) whose sum is each entry's score; higher means keep."""

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Mark entries that stay whatever their score (B, C), at most `budget` a row."""
        return np.zeros_like(cache.token, np.bool_)

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        """Change the attention weights (B, C) over the kept entries; they sum to 1."""
        return weights

    # How many entries a cache may hold, and where: mostly overridden by wrappers.

    @property
    def page_size(self) -> int:
        """How many neighbouring positions are evicted only together; 0 for whole messages."""
        return 1

    def pages(self, cache: Cache, turn: Observation) -> Pages | None:
        """Return which entries are evicted only together; None if each is evicted alone."""
        size = self.page_size
        return Pages(turn.position(cache.token) // size, size) if size > 1 else None

    def capacity(self, budget: int, tokens: int) -> int:
        """Return how many entries the cache may hold: the budget, or all tokens if unbounded."""
        return budget if self.bounded else tokens

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return how many entries a row may hold when layers and heads share budgets."""
        return budget

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        """Return the budget of each row (B, 1), or one for all; the mean over layers is `budget`.

        `protects` and `places` get these budgets.
        """
        return budget

    def room(self, budget: int, turn: Observation) -> int | Ints:
        """Return how many entries each row may hold before any leaves (B, 1), or one for all.

        Fewer than `budgets` if `places` may be fewer before these are filled.
        """
        return self.budgets(budget, turn)

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
        """The key, and every hyperparameter that differs from its default; see `read_policy`."""
        return " ".join([self.key, *changed(self)])

    @property
    def settings(self) -> Mapping[str, Field]:
        """Every hyperparameter by name, with its value as the field's default."""
        return {field.name: field for field in fields_of(self, self.key)}

    def variant(self, **changes: float | int | str) -> Policy:
        """Return this policy with other hyperparameters."""
        return dataclasses.replace(self, **changes)


EVICTION = Step(
    "Eviction and insertion",
    r"\begin{gathered} \text{insert the new, keep the top } B \\ "
    r"\text{by } s_i,\text{ ties to the older} \end{gathered}",
    "the budget's rule, the same for every policy",
    writes=("score",),
    kind="evict",
)
"""The last step of a policy that leaves eviction to the budget alone."""


def changing(name: str, channel: str, equation: str, source: str) -> Step:
    """Return a step that changes a channel of old and new entries."""
    return Step(name, equation, source, (channel,), (channel,), "change", includes_new=True)


def protecting(equation: str, source: str, name: str = "Protection") -> Step:
    """Return a step that protects entries."""
    return Step(name, equation, source, writes=("protected",), kind="protect")


SINKS_STAY = protecting(r"i < n_{\text{sinks}} \;\Rightarrow\; \text{keep}", "attention sinks")
"""The step of a policy that protects the dialog's first tokens."""

RECENT_WINDOW = protecting(
    r"i \text{ among the newest } \lfloor r B \rfloor \;\Rightarrow\; \text{keep}",
    "recent window",
)
"""The step of a policy that protects a share of the budget for the newest entries."""


def window_parameter(default: float) -> Any:
    """Declare the share of the budget that is reserved for the newest entries."""
    return share(
        default, "Window", "Share of the budget reserved for the newest entries.", symbol="r"
    )


def part(count: int | Ints, share: float) -> Ints:
    """Return a share of a count (B, 1), rounded down; (1, 1) if both are the same for all rows.

    Examples
    --------
    >>> part(100, 0.29).tolist(), int(100 * 0.29)
    ([[29]], 28)
    """
    # A share such as 0.29 has no exact float: its product with 100 is 28.999999999999996.
    product = np.round(np.asarray(count * share, np.float64), 9)
    return np.floor(product).astype(np.intp).reshape(-1, 1)


def window(cache: Cache, budget: int, share: float) -> Bools:
    """Mark the newest entries, up to this share of the budget (B, C)."""
    return newest(cache, part(budget, share))


@dataclass(frozen=True)
class WindowedPolicy(Policy):
    """A policy that reserves a share of the budget for the newest entries."""

    window: float = window_parameter(0.5)

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return window(cache, budget, self.window)


def first_tokens(cache: Cache, turn: Observation, count: int) -> Bools:
    """Mark the entries that are among the dialog's first tokens (B, C)."""
    return cache.present & (turn.position(cache.token) < count)


def within(budget: int, protects: Callable[[int], Bools]) -> Bools:
    """Protect as many entries of each row as fit into `budget` (B, C).

    `protects` marks the entries protected within a number of places (B, C): at most that many per
    row, plus those that are always protected. With more places it marks no fewer.
    """
    protected = protects(budget)
    crowded = np.flatnonzero(protected.sum(axis=1) > budget).tolist()
    if crowded:
        protected = protected.copy()
        cached_protects = cache(protects)
        for row in crowded:
            # A default argument, since a closure would see the row of the last iteration.
            def protected_count(places: int, row: int = row) -> int:
                return int(np.count_nonzero(cached_protects(places)[row]))

            # The count never falls with more places, so the last number that fits is bisected.
            places = max(bisect_right(range(budget), budget, key=protected_count) - 1, 0)
            protected[row] = cached_protects(places)[row]
    return protected


SUMMED_ATTENTION = changing(
    "Cumulative attention",
    "cumulative",
    r"\begin{gathered} c_i \leftarrow c_i + \sum_q \operatorname{softmax}"
    r"(q^\top k_i / \sqrt d) \\ q = \bar q_t \text{ or each query} \end{gathered}",
    "over old and new entries; a new entry starts at 0",
)
"""The step of a policy that sums each turn's attention, new tokens included."""


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

    `queries` is ``mean`` for one query, or ``each`` for all queries of the turn, which attend
    causally.
    """
    if queries == "each":
        return turn.attention_of_each(token)
    return turn.attention(token)[:, None]


def seen_by(turn: Observation, token: Ints, queries: str) -> Bools:
    """Return which queries see each of these tokens (B, m, C)."""
    return turn.visible(token) if queries == "each" else (token >= 0)[:, None]


def total(terms: Columns) -> Floats:
    """Sum the named terms to the score (B, C)."""
    return np.asarray(reduce(operator.add, terms.values()))
