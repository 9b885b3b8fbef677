"""What happened: the record of a run, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.cache import Cache
from fdkvc.parameters import Parameter, check_parameter
from fdkvc.policies.base import Policy

Codes = NDArray[np.uint8]


class Status(IntEnum):
    """What became of a slot's entry in a turn."""

    empty = 0
    kept = 1
    new = 2
    evicted = 3
    new_evicted = 4


class Rule(IntEnum):
    """The rule that evicted an entry."""

    none = 0
    budget = 1
    threshold = 2


@dataclass(frozen=True, eq=False)
class Attended:
    """The attention over the kept entries.

    Attributes
    ----------
    before, after : array (B, budget)
        Weights before and after the policy's modulation.
    output : array (B, h)
        The context output.
    """

    before: Floats
    after: Floats
    output: Floats


@dataclass(frozen=True, eq=False)
class State:
    """What a turn leaves behind, and all that the next one needs.

    Attributes
    ----------
    cache : Cache
        The kept entries, (B, budget) slots.
    attend : function () to Attended
        Computes the attention over them, when it is first asked for: no decision needs it, and a
        batch reads only that of the last turns.
    tier : array (B, R), optional
        Tokens of the second tier, the longest there first; −1 in empty places, which come before
        them. None for a policy that has none.
    """

    cache: Cache
    attend: Callable[[], Attended]
    tier: Ints | None = None

    @cached_property
    def attended(self) -> Attended:
        """The attention over the kept entries."""
        return self.attend()

    @property
    def attention_before(self) -> Floats:
        """Attention weights (B, budget) before the policy's modulation."""
        return self.attended.before

    @property
    def attention_after(self) -> Floats:
        """Attention weights (B, budget) after the policy's modulation."""
        return self.attended.after

    @property
    def output(self) -> Floats:
        """The context output (B, h)."""
        return self.attended.output


def known_state(
    cache: Cache, before: Floats, after: Floats, output: Floats, tier: Ints | None = None
) -> State:
    """Return a state whose attention is known already."""
    attended = Attended(before, after, output)
    return State(cache, lambda: attended, tier)


@dataclass(frozen=True, eq=False)
class EntryTrace:
    """Every entry that took part in each turn, in W = budget + tokens of the longest turn slots.

    The first `budget` slots hold the entries that were cached before the turn, older first; the
    others hold the turn's own tokens. With a second tier of R places there are R slots more before
    the turn's own, and what came back from it stands among the cached. Numbers stand as they
    decided, in single precision: channels after the turn's updates, terms and score as eviction saw
    them. What does not apply is NaN.

    Attributes
    ----------
    token : array (B, T, W)
        −1 in empty slots.
    status, rule : array (B, T, W) of uint8
        Values of `Status` and `Rule`.
    protected : array (B, T, W) of bool
    score : array (B, T, W)
        The sum of the terms; where that ties with the cutoff, the cutoff. See `cache.levelled`.
    rank : array (B, T, W)
        Place by score, 1 for the highest, ties to the older; 0 for what the threshold evicted.
    attention_before, attention_after : array (B, T, W)
        Over the kept entries.
    channels, terms : mapping of name to array (B, T, W)
    recorded : mapping of name to array (B, T, W) or (B, T)
        What the policy's steps computed on the way.
    """

    token: Ints
    status: Codes
    rule: Codes
    protected: Bools
    score: Floats
    rank: Ints
    attention_before: Floats
    attention_after: Floats
    channels: Mapping[str, Floats]
    terms: Mapping[str, Floats]
    recorded: Mapping[str, Floats]


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of one policy on a batch of dialogs.

    Attributes
    ----------
    policy : Policy
    budget : int
    first_turn : int
        The turn of the record's first column; 0 unless the run was forked.
    kept : array (B, T, budget)
        Tokens in the cache at the end of each turn, older first; −1 in empty slots, which may
        stand anywhere.
    output : array (B, T, h)
        Context output of each turn; NaN in turns for which it was not asked.
    state : mapping of name to array (B, T)
        Row states that each turn left, such as FD-KVC's learning rate and ownership loss.
    evicted : mapping of rule name to array (B, T)
        How many entries each rule evicted.
    seconds : array (T,)
        Time that each turn of the whole batch took, without its recording.
    entries : EntryTrace, optional
        Every entry of every turn, where they were asked for.
    last : State
        What the last turn left.
    pinned : array (B, P), optional
        Tokens that were never to be evicted, −1 for none.
    tier : array (B, T, R), optional
        Tokens in the second tier at the end of each turn, as in `State`.
    """

    policy: Policy
    budget: int
    first_turn: int
    kept: Ints
    output: Floats
    state: Mapping[str, Floats]
    evicted: Mapping[str, Ints]
    seconds: NDArray[np.float64]
    entries: EntryTrace | None
    last: State
    pinned: Ints | None = None
    tier: Ints | None = None

    @property
    def old_slots(self) -> int:
        """How many slots of a turn's entries hold what is not of the turn itself."""
        return self.budget + (0 if self.tier is None else self.tier.shape[2])

    @property
    def turns(self) -> int:
        """Number of recorded turns."""
        return int(self.kept.shape[1])

    def since(self, turn: int) -> Trace:
        """Return the record from this turn on, without its entries."""
        at = max(turn - self.first_turn, 0)
        return replace(
            self,
            first_turn=self.first_turn + at,
            kept=self.kept[:, at:],
            output=self.output[:, at:],
            state={name: column[:, at:] for name, column in self.state.items()},
            evicted={rule: count[:, at:] for rule, count in self.evicted.items()},
            seconds=self.seconds[at:],
            entries=None,
            tier=None if self.tier is None else self.tier[:, at:],
        )

    def row(self, index: int) -> Trace:
        """Return the record of one row, as if it had run alone; its arrays are its own."""

        def own(value: Any) -> Any:
            if isinstance(value, Mapping):
                return {name: own(column) for name, column in value.items()}
            return value[index : index + 1].copy() if isinstance(value, np.ndarray) else value

        def part(record: Any) -> Any:
            columns = {field.name: own(getattr(record, field.name)) for field in fields(record)}
            return replace(record, **columns)

        attended, last = self.last.attended, self.last
        whole: Trace = part(self)
        return replace(
            whole,
            seconds=self.seconds,
            entries=None if self.entries is None else part(self.entries),
            last=known_state(
                part(last.cache),
                own(attended.before),
                own(attended.after),
                own(attended.output),
                own(last.tier),
            ),
        )

    def every_entry(self) -> EntryTrace:
        """Return the entries, or say that they were not recorded.

        Raises
        ------
        ValueError
            If the run was recorded without them.
        """
        if self.entries is None:
            raise ValueError(
                "this trace was recorded without entries: simulate it with entries=True"
            )
        return self.entries

    def state_after(self, turn: int) -> State:
        """Return what the given turn left behind, from which a run can be continued.

        Parameters
        ----------
        turn : int
            A recorded turn, counted from 0 over the dialog.

        Raises
        ------
        ValueError
            If the turn was not recorded, or its entries were not.
        """
        recorded = Parameter("", "", low=self.first_turn, high=self.first_turn + self.turns - 1)
        check_parameter("turn", recorded, turn, int)
        entries, at = self.every_entry(), turn - self.first_turn
        status, rule = entries.status[:, at], entries.rule[:, at]
        kept = (status == Status.kept) | (status == Status.new)
        # Eviction left these slots in their order, with the first empty ones up to the budget.
        empty = (status == Status.empty) | (rule == Rule.threshold)
        room = self.budget - kept.sum(axis=1, keepdims=True)
        stayed = kept | (empty & (np.cumsum(empty, axis=1) <= room))
        slot = np.nonzero(stayed)[1].reshape(len(stayed), self.budget)
        filled = np.take_along_axis(kept, slot, axis=1)

        def pick(column: NDArray, empty: float) -> NDArray:  # type: ignore[type-arg]
            return np.where(filled, np.take_along_axis(column[:, at], slot, axis=1), empty)

        return known_state(
            Cache(
                pick(entries.token, -1),
                {name: pick(column, 0) for name, column in entries.channels.items()},
                {name: column[:, at] for name, column in self.state.items()},
            ),
            pick(entries.attention_before, 0),
            pick(entries.attention_after, 0),
            self.output[:, at],
            None if self.tier is None else self.tier[:, at],
        )
