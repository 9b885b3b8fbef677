"""What every policy is: hyperparameters, channels, and the worth of each entry.

A turn asks a policy, in this order:

1. `recalls`: what comes back from the second tier, where it has one?
2. `update`: what does this turn change in the entries that were already here?
3. `init_channels`: what does a new entry start with?
4. `after_insert`: what changes once old and new stand together?
5. `terms`: what is each entry worth? The sum of these named terms is its score.
6. `budgets`, `protects`, `places`: how many entries may each row keep, and which of them must
   stay whatever their score?
7. `modulate`: how does it bend the attention weights of what was kept?

Only `terms` has no default. Removal below a threshold, insertion and eviction are the engine's.
A `fdkvc.policies.wrapper.Wrapper` is a policy that has a policy: it answers some of these in its
own way, and passes on the others.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import Cache, Ties, newest
from fdkvc.parameters import Checked, Field, defaults_of, fields_of, parameter, parameters_of, share

StepKind = Literal["value", "change", "rate", "protect", "evict", "attention"]
"""What a step does, so that it can be told in words; see `Step`."""


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
    "future",
]
"""What a policy looks at.

``attention`` is that of this turn; ``similarity`` that of embeddings; ``surprisal`` is how
improbable a token was when it came; ``history`` is what it remembers of earlier turns; ``future``
is what the dialog has yet to bring.
"""


@dataclass(frozen=True)
class Step:
    """One step of a policy's turn, as a reader is shown it.

    Attributes
    ----------
    equation : str
        LaTeX.
    source : str
        Where the equation stands.
    reads, writes : tuple of str
        Recorded quantities that went in and came out: channels, row states, terms, or what
        `update` records.
    kind : {"value", "change", "rate", "protect", "evict", "attention"}
        ``value`` works out what it writes. ``change`` turns the first quantity it reads into the
        first it writes, entry by entry; one that it both reads and writes stood as the last turn
        left it. ``rate`` sets row states, each after the one that it follows from. ``protect``
        marks entries that must stay. ``evict`` removes and inserts; where a threshold may evict,
        it reads the score that the threshold judged and the threshold, in this order.
        ``attention`` bends the first quantity it reads into the first it writes.
    includes_new : bool
        Whether the turn's own tokens take part in a ``change``.
    """

    name: str
    equation: str
    source: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    kind: StepKind = "value"
    includes_new: bool = False


EVICTION = Step(
    "Eviction and insertion",
    r"\begin{gathered} \text{insert the new, keep the top } B \\ "
    r"\text{by } s_i,\text{ ties to the older} \end{gathered}",
    "the budget's rule, the same for every policy",
    writes=("score",),
    kind="evict",
)
"""The last step of a policy that leaves eviction to the budget alone."""

SUMMED_ATTENTION = Step(
    "Cumulative attention",
    r"\begin{gathered} c_i \leftarrow c_i + \sum_q \operatorname{softmax}"
    r"(q^\top k_i / \sqrt d) \\ q = \bar q_t \text{ or each query} \end{gathered}",
    "over old and new entries; a new entry starts at 0",
    reads=("cumulative",),
    writes=("cumulative",),
    kind="change",
    includes_new=True,
)
"""The step of a policy that adds up each turn's attention, the new tokens' own included."""

RECENT_WINDOW = Step(
    "Protection",
    r"i \text{ among the newest } \lfloor r B \rfloor \;\Rightarrow\; \text{keep}",
    "recent window",
    writes=("protected",),
    kind="protect",
)
"""The step of a policy that protects a share of the budget for the newest entries."""


Score = Callable[[Cache], Floats]
"""Says what entries are worth (B, C): the total of the terms, as eviction will see it."""


@dataclass(frozen=True, eq=False)
class Update:
    """What a turn did to the entries that were already cached.

    Attributes
    ----------
    cache : Cache
        The same entries, their channels and row states brought up to this turn.
    stale : array (B, C) of bool, optional
        Entries below the policy's own threshold, removed before the new ones come in.
    recorded : mapping of name to array (B, C) or (B,)
        What the steps computed on the way, for whoever looks at them.
    """

    cache: Cache
    stale: Bools | None = None
    recorded: Mapping[str, Floats] = field(default_factory=dict)


@dataclass(frozen=True)
class Available:
    """What is known of the dialogs that a policy runs on.

    Attributes
    ----------
    speakers, words : bool
        Whether it is known who said a token, and of what word it is.
    heads, layers : int
        That decide beside each other.
    """

    speakers: bool = False
    words: bool = False
    heads: int = 1
    layers: int = 1


@dataclass(frozen=True)
class Policy(Checked, ABC):
    """An eviction policy; its dataclass fields are its hyperparameters.

    Class attributes
    ----------------
    key, label : str
        Its name in files and links, and on screen.
    idea : str
        What it does in a sentence or two.
    source : str
        The paper that defines it.

    The properties below are mostly attributes of a class, too; where one depends on hyperparameters
    the class has a property.
    """

    key: ClassVar[str]
    label: ClassVar[str]
    idea: ClassVar[str]
    source: ClassVar[str]

    @property
    def looks_at(self) -> tuple[Look, ...]:
        """What it decides by; see `Look`."""
        return ()

    @property
    def steps(self) -> tuple[Step, ...]:
        """Its turn, step by step."""
        return ()

    @property
    def bounded(self) -> bool:
        """Whether it keeps to the budget."""
        return True

    @property
    def reads_afresh(self) -> bool:
        """Whether a turn reads what its own queries chose, and not what the last turn left."""
        return False

    @property
    def page_size(self) -> int:
        """How many neighbouring places of a dialog leave only together."""
        return 1

    @property
    def channels(self) -> tuple[str, ...]:
        """What it remembers of each entry."""
        return ()

    @property
    def ties(self) -> Ties:
        """Which of its scores are as good as equal, so that the older entry stays."""
        return Ties()

    @property
    def quantity_names(self) -> Mapping[str, str]:
        """What people call a quantity, where its own name does not say it."""
        return {}

    @property
    def core(self) -> Policy:
        """The innermost of policies around policies: this one, if it has none."""
        return self

    def without_effect(self, available: Available) -> tuple[str, ...]:
        """Say, a sentence each, what of it changes nothing where no more is known than this."""
        return ()

    def initial_state(self) -> Mapping[str, float]:
        """Return the row states and what they start with."""
        return {}

    def capacity(self, budget: int, tokens: int) -> int:
        """Return how many entries the cache may hold: the budget, or all tokens if unbounded."""
        return budget if self.bounded else tokens

    def slots(self, budget: int, layers: int, heads: int) -> int:
        """Return how many entries a row may hold, where so many layers and heads share budgets."""
        return budget

    def tier_places(self, budget: int, tokens: int) -> int:
        """Return how many evicted tokens of so many wait in a second tier, and may come back.

        A policy with one has the row state ``moves``, which counts entries that moved from the
        cache to the tier or back, from the dialog's beginning.
        """
        return 0

    def recalls(self, cache: Cache, tier: Ints, turn: Observation) -> Bools:
        """Mark the tokens of the second tier (B, R) that come back to the cache.

        They start as new entries do, and then take part in the turn as those that were cached.
        """
        return np.zeros(tier.shape, np.bool_)

    def update(self, cache: Cache, turn: Observation, score: Score) -> Update:
        """Bring the entries that were already cached up to this turn.

        Who needs to know what they are worth by then asks `score`, not `terms`: it answers for
        all that is wrapped around this policy.
        """
        return Update(cache)

    def init_channels(self, turn: Observation) -> Mapping[str, Floats]:
        """Return what each channel of the turn's new tokens starts with (B, n)."""
        return {name: np.zeros(turn.new.shape, np.float32) for name in self.channels}

    def after_insert(self, cache: Cache, turn: Observation) -> Cache:
        """Update channels once old and new entries stand together."""
        return cache

    @abstractmethod
    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        """Return the named terms (B, C) whose sum is each entry's score; higher means keep."""

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        """Mark entries that stay whatever their score (B, C), at most `budget` a row."""
        return np.zeros(cache.token.shape, np.bool_)

    def budgets(self, budget: int, turn: Observation) -> int | Ints:
        """Return the budget of each row (B, 1), or one for all; in the mean over layers the same.

        What is protected and how many places there are follow from that.
        """
        return budget

    def places(
        self, score: Floats, cache: Cache, protected: Bools, budgets: int | Ints, heads: int
    ) -> int | Ints:
        """Return how many entries each row keeps (B, 1), or one number for all.

        Parameters
        ----------
        score, protected : array (B, C)
        heads : int
            Rows, one after the other, that may share their budgets.
        """
        return budgets

    def modulate(self, weights: Floats, cache: Cache) -> Floats:
        """Bend the attention weights (B, C) over the kept entries; which sum to 1."""
        return weights

    @property
    def name(self) -> str:
        """The key, and every hyperparameter that is not at its default.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc", gamma=0.8, w_c=0.3).name
        'fd-kvc gamma=0.8 w_c=0.3'
        """
        return " ".join([self.key, *self._changed()])

    @property
    def title(self) -> str:
        """The label, and every hyperparameter that is not at its default, for people."""
        return " ".join([self.label, *self._changed()])

    def _changed(self) -> list[str]:
        """Return NAME=VALUE of each hyperparameter of its own that is not at its default."""
        values = {name: getattr(self, name) for name in parameters_of(self)}
        defaults = defaults_of(self)
        return [f"{name}={values[name]}" for name in values if values[name] != defaults[name]]

    @property
    def settings(self) -> Mapping[str, Field]:
        """Every hyperparameter by its name; what it is set to is the field's default."""
        return {field.name: field for field in fields_of(self, self.key)}

    def quantity_name(self, quantity: str) -> str:
        """Return what people call a channel, term, row state or recorded quantity.

        Examples
        --------
        >>> from fdkvc.policies import policy_named
        >>> policy_named("fd-kvc").quantity_name("cumulative")
        'cumulative attention'
        """
        return self.quantity_names.get(quantity, quantity.replace("_", " "))

    def is_a_variant_of(self, other: Policy) -> bool:
        """Whether it is the same policy, or the same around the same, with whatever numbers."""
        return type(self) is type(other)

    def variant(self, **changes: float | int | str) -> Policy:
        """Return this policy with other hyperparameters."""
        return dataclasses.replace(self, **changes)


def window_parameter(default: float) -> Any:
    """Declare the share of the budget that is protected for the newest entries."""
    return share(
        default, "Window", "Share of the budget that is kept for the newest entries.", symbol="r"
    )


def window(cache: Cache, budget: int, share: float) -> Bools:
    """Mark the newest entries, as many as whole places in this share of the budget (B, C)."""
    return newest(cache, np.asarray(budget * share).astype(np.intp).reshape(-1, 1))


def within(budget: int, protects: Callable[[int], Bools]) -> Bools:
    """Protect what would be in as much of the budget as it takes for no row to have more of it.

    Parameters
    ----------
    protects : function of int to array (B, C) of bool
        What is protected in a budget: at most so many a row, and what is so in any.
    """
    protected = protects(budget)
    for places in reversed(range(budget)):
        crowded = protected.sum(axis=1, keepdims=True) > budget
        if not crowded.any():
            break
        protected = np.where(crowded, protects(places), protected)
    return protected


def queries_parameter() -> Any:
    """Declare whose attention counts: the turn's mean query's, or each of its queries'."""
    return parameter(
        "mean",
        "Queries",
        "Whose attention counts: the turn's mean query's, or that of each query of the turn.",
        choices=("mean", "each"),
    )


def observed_attention(turn: Observation, token: Ints, queries: str) -> Floats:
    """Return what attention these tokens get in this turn, by query (B, m, C).

    Parameters
    ----------
    token : array (B, C)
    queries : {"mean", "each"}
        One mean query (m = 1), or each of the turn's queries, which see what came before them.
    """
    if queries == "each":
        return turn.attention_of_each(token)
    return turn.attention(token)[:, None]


def seen_by(turn: Observation, token: Ints, queries: str) -> Bools:
    """Return which of the same queries see each of these tokens (B, m, C)."""
    return turn.visible(token) if queries == "each" else (token >= 0)[:, None]


def total(terms: Mapping[str, Floats]) -> Floats:
    """Add the named terms up to the score (B, C)."""
    first, *rest = terms.values()
    score = first
    for term in rest:
        score = score + term
    return score


def share_of_best(score: Floats, cache: Cache, share: float) -> Floats:
    """Return a share of the greatest score of each row (B,), as a threshold."""
    best: Floats = np.where(cache.present, score, 0).max(axis=1)
    return np.float32(share) * best


def below_threshold(score: Floats, cache: Cache, threshold: Floats, ties: Ties) -> Bools:
    """Mark entries whose score is below the threshold (B,) of their row, and no tie (B, C)."""
    least = threshold[:, None]
    below: Bools = cache.present & (score < least - ties.tolerance(least))
    return below
