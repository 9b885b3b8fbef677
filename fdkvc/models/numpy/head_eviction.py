"""Eviction in all heads of a model: a policy's state over a text, without vectors.

Policies run in `fdkvc.engine.simulate.take_turn`, on a batch: here each query head of a layer is a
row of it. Heads that decide together evict the same tokens; query heads that share a KV head always
do, since they share one cache.

`take_turn` knows no tokens, only columns: the slots of the cache, then the tokens of the turn. This
is a turn of two tokens, 9 and 10, in one KV head with a budget of three::

    before.slots        3  7  8           the tokens in the cache: those that attention sees
    ids                 3  7  8  9 10     and those of the turn
    column              0  1  2  3  4     how the policy's cache names them during the turn
    step.sources        0     2     4     the columns that the policy keeps
    evicted                7     9        the tokens that it evicts
    after.slots         3     8    10     columns 0, 1 and 2 of the next turn

The policy's own state, such as a score of each entry, is by column, too; step 5 of
`HeadEviction.after` renames the columns for the next turn. A `HeadEviction` never changes: `after`
returns another one, so forks of a text share it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Ints
from fdkvc.core.cache import EMPTY
from fdkvc.core.parameters import Field, check_count
from fdkvc.engine.simulate import initial_state, take_turn
from fdkvc.engine.trace import Codes
from fdkvc.models.numpy.head_tokens import HeadTokens, Vectors
from fdkvc.policies import Policy
from fdkvc.policies.base import BY_TEXT
from fdkvc.policies.together import Together

DECIDES = Field(
    "Who decides",
    "Each KV head of each layer has a part of the cache. It evicts by itself, or all of a layer "
    "or of the model evict the same tokens.",
    name="decides",
    default="head",
    choices={
        "head": "each head by itself",
        "layer": "all heads of a layer together",
        "model": "all heads of the model together",
    },
)

POSITIONS = Field("Positions", name="positions", default="kept", choices=("kept", "slots"))
"""Whether kept entries keep their positions or close the gaps."""


@dataclass(frozen=True)
class Heads:
    """The heads of a model."""

    layers: int
    """Layers of the model, or of a part of it."""
    heads: int
    """Query heads of a layer, H."""
    kv_heads: int
    """KV heads of a layer, K, each shared by a group of query heads."""
    head_width: int
    """Numbers in a query, key or value, h."""

    @property
    def group(self) -> int:
        """Query heads that share a KV head, G."""
        return self.heads // self.kv_heads


@dataclass(frozen=True, eq=False)
class EvictionStep:
    """What a turn evicted, in each layer and KV head."""

    sources: Ints
    """Shape (L, K, S). For each of the S slots after the turn, the column during the turn that its
    token comes from; −1 for an empty slot."""
    find_evicted: Callable[[], tuple[tuple[Ints, Ints, Ints], Codes]]
    """Returns the layer, KV head and token of the evicted entries (E,), and the `Rule` that evicted
    each (E,). A function, since few callers need them."""


class HeadEviction:
    """The state of a policy over a text; immutable.

    `decides` says which heads decide together; see `DECIDES`. The layers of `heads` may be only
    some of a model's `layers`, from `first_layer` on; a policy that shares a budget among layers
    shares it among all of the model. `tokens` is the class by which the policy observes vectors.
    Raises a ValueError for a budget below 1, or a policy that uses the future.
    """

    def __init__(
        self,
        policy: Policy,
        budget: int,
        heads: Heads,
        decides: str = DECIDES.default,
        layers: int | None = None,
        first_layer: int = 0,
        tokens: type[HeadTokens] = HeadTokens,
    ) -> None:
        check_eviction(policy, budget, decides)
        self.policy = policy
        self.budget = budget
        self.heads = heads
        # 1. Who decides. A policy that looks only at text, with the same budget in all heads,
        #    decides alike everywhere: one row is simulated, and stands for all heads.
        alike = equal_budgets(policy, budget) and BY_TEXT.issuperset(policy.looks_at)
        self._deciders = deciders = Heads(1, 1, 1, heads.head_width) if alike else heads
        rows = deciders.layers * deciders.heads
        together = {"head": deciders.group, "layer": deciders.heads, "model": rows}[decides]
        self._together = Together(policy, together)
        # Layers share a budget only where each decides by itself.
        self._layers = 1 if alike or decides == "model" else layers or heads.layers
        self._first_layer = first_layer
        self._tokens = tokens
        # 2. What changes from turn to turn.
        self._state = initial_state(
            self._together,
            rows,
            budget,
            heads.head_width,
            layers=self._layers,
            heads=rows if decides == "model" else deciders.heads,
        )
        # The tokens in each KV head (L, K, S), −1 for none.
        self.slots: Ints = np.empty((heads.layers, heads.kv_heads, 0), np.intp)
        self._born: Ints = np.empty(0, np.intp)  # the turn of each token so far (N,)
        self._turns = 0

    @property
    def count(self) -> int:
        """Number of tokens so far."""
        return len(self._born)

    def resized(self, budget: int) -> HeadEviction:
        """Return the state with a smaller budget for the next turns."""
        resized = copy.copy(self)
        resized.budget = budget
        return resized

    def after(
        self, new: int, vectors: Sequence[Vectors], features: Mapping[str, NDArray[Any]]
    ) -> tuple[HeadEviction, EvictionStep]:
        """Return the state after a turn of `new` tokens, at least 1, and what the turn evicted.

        `vectors` returns, for each layer, those of the slots before the turn and of the new tokens.
        `features` (N, ...) are those of each token so far that are known; see
        `fdkvc.models.numpy.tokens.Tokens.features`.
        """
        heads = self._deciders
        layers = heads.layers
        kv_heads = heads.kv_heads
        rows = layers * heads.heads
        first = self.slots.shape[2]
        born = np.append(self._born, np.full(new, self._turns))

        # 1. The token in each column (L, K, S + n). An empty slot is token −1, for which NumPy
        #    takes the vectors and features of the last token; no policy looks at them. Where one
        #    row decides for all, the first layer and KV head stand for the others.
        turn_tokens = np.arange(self.count, self.count + new)
        turn_tokens = np.broadcast_to(turn_tokens, (layers, kv_heads, new))
        ids = np.concatenate([self.slots[:layers, :kv_heads], turn_tokens], axis=2)
        arrivals = np.broadcast_to(np.arange(first, first + new), (rows, new))

        # 2. Let the policy take the turn, in every row. Columns from `first` on are new to it.
        tokens = self._tokens(
            vectors[:layers],
            arrivals,
            positions=np.repeat(ids, heads.group, axis=1).reshape(rows, -1),
            features={**features, "born": born},
            layers=self._layers,
            first_layer=self._first_layer,
        )
        capacity = self.policy.capacity(self.budget, len(born))
        result = take_turn(self._together, self._state, tokens.observe(), capacity)

        # 3. What stays. Slots that no head uses are dropped, so that attention reads fewer; heads
        #    that keep fewer tokens than others have empty ones (−1).
        cache = result.end_state.cache
        kept_slots = self._of_kv_heads(cache.token)  # columns (L, K, S)
        used_slots = (kept_slots >= 0).any(axis=(0, 1))
        sources = kept_slots[:, :, used_slots]
        slots = np.where(sources >= 0, np.take_along_axis(ids, sources, axis=2), EMPTY)

        # 4. What is evicted.
        def find_evicted() -> tuple[tuple[Ints, Ints, Ints], Codes]:
            rule = self._for_all_heads(self._of_kv_heads(result.rule))
            column = self._for_all_heads(self._of_kv_heads(result.token))
            place = np.nonzero(rule)
            layer, head, _ = place
            return (layer, head, self._for_all_heads(ids)[layer, head, column[place]]), rule[
                place
            ]

        # 5. Rename entries by their columns of the next turn: the i-th used slot is column i. The
        #    observation of this turn is not kept: the next one comes from the model.
        token = np.where(cache.token >= 0, np.cumsum(used_slots) - 1, EMPTY)
        after = copy.copy(self)
        after._born = born
        after._turns = self._turns + 1
        after.slots = self._for_all_heads(slots)
        renamed = dataclasses.replace(cache, token=token)
        after._state = dataclasses.replace(self._state, cache=renamed)
        return after, EvictionStep(self._for_all_heads(sources), find_evicted)

    def _of_kv_heads(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return rows (B, ·), one for each query head, as one for each KV head (L, K, ·).

        The rows of a group are the same, so the first stands for it.
        """
        heads = self._deciders
        return column.reshape(heads.layers, heads.kv_heads, heads.group, -1)[:, :, 0]

    def _for_all_heads(self, column: NDArray[Any]) -> NDArray[Any]:
        """Return decisions of the rows that were simulated, repeated for all heads (L, K, ·)."""
        heads = self.heads
        deciders = self._deciders
        repeats = heads.layers // deciders.layers, heads.kv_heads // deciders.kv_heads, 1
        return np.tile(column, repeats) if max(repeats) > 1 else column


def equal_budgets(policy: Policy, budget: int) -> bool:
    """Whether each head may hold exactly the budget, and no heads or layers share theirs."""
    # Where budgets are shared, a head of two by two could hold more than its own.
    return policy.slots(budget, 2, 2) == budget


def deciding(decides: str, heads: int, layers: int) -> dict[str, int]:
    """Return how many heads and layers of a model decide separately."""
    return {
        "heads": heads if decides == "head" else 1,
        "layers": 1 if decides == "model" else layers,
    }


def check_eviction(policy: Policy, budget: int, decides: str) -> None:
    """Raise a ValueError for parameters that `HeadEviction` does not accept."""
    check_count("budget", budget)
    DECIDES.check(decides, "decides")
    check_no_future(policy)


def check_no_future(policy: Policy) -> None:
    """Raise a ValueError for a policy that uses the future, which a model has yet to write."""
    if "future" in policy.looks_at:
        raise ValueError(
            f"{policy.label} looks at the future of the dialog, which a model has yet to write"
        )


def check_keeps(policy: Policy) -> None:
    """Raise a ValueError for what is no policy, or one that reads its text again."""
    if not isinstance(policy, Policy):  # most likely its name
        raise ValueError(
            f"policy is {policy!r}, but must be a policy, such as read_policy('h2o')"
        )
    if policy.reads_again:
        raise ValueError(
            f"{policy.name} reads its text again, so it keeps no entries: use it in answers or live"
        )
