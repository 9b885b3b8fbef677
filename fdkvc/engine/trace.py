"""The record of a run, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Columns, Floats, Ints
from fdkvc.core.cache import EMPTY, Cache, Pages, Ties, joined, pad_kept, ranking, snap_ties
from fdkvc.core.parameters import check_count
from fdkvc.policies.base import Policy, Update

Codes = NDArray[np.uint8]


class Status(IntEnum):
    """What happened to a slot's entry in a turn."""

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
    """The attention over the kept entries."""

    weights: Floats
    """Shape (B, budget). Weights before the policy's modulation."""
    modulated_weights: Floats
    """Shape (B, budget). Weights after it."""
    output: Floats
    """Shape (B, h). The context output."""

    def where(self, rows: Bools, alternative: Attended) -> Attended:
        """Take the rows that are True (B,) from this one, and all others from `alternative`."""
        column = rows[:, None]
        return Attended(
            np.where(column, self.weights, alternative.weights),
            np.where(column, self.modulated_weights, alternative.modulated_weights),
            np.where(column, self.output, alternative.output),
        )


@dataclass(frozen=True, eq=False)
class State:
    """The state after a turn: everything that the next turn needs."""

    cache: Cache
    """The kept entries, (B, budget) slots."""
    attend: Callable[[], Attended] | None
    """Computes the attention over the kept entries on first use: no decision needs it, and a batch
    reads only that of the last turns. None in a run that reads none."""

    @cached_property
    def attended(self) -> Attended:
        """The attention over the kept entries."""
        assert self.attend is not None
        return self.attend()


def computed_state(cache: Cache, attended: Attended) -> State:
    """Return a state whose attention has been computed."""
    return State(cache, lambda: attended)


@dataclass(frozen=True, eq=False)
class Choice:
    """Which entries of a turn stay."""

    score: Floats
    """Shape (B, C + n). The sum of the terms."""
    protected: Bools
    """Shape (B, C + n). Whether an entry stays whatever its score."""
    kept_slots: Bools
    """Shape (B, C + n). Whether a slot stays; some may be empty."""
    places: int | Ints
    """Shape (B, 1). Largest number of entries that each row could keep."""
    pages: Pages | None
    """Which entries share a page, if they leave only by whole pages."""
    lowest: Floats
    """Shape (B, 1). The cutoff of `select`."""


@dataclass(frozen=True, eq=False)
class TurnResult(Choice):
    """All results of one turn."""

    old_entries: Cache
    """Shape (B, C). The entries before the turn."""
    update: Update
    """The policy's update of the old entries."""
    stale: Bools | None
    """Shape (B, C). Old entries that the threshold evicted, if any."""
    entries: Cache
    """Old and new entries as eviction saw them, (B, C + n) slots."""
    terms: Columns
    """Arrays of shape (B, C + n) by name."""
    end_state: State
    """State after the turn."""

    @property
    def evicted(self) -> Mapping[str, Ints]:
        """How many entries each rule evicted (B,)."""
        by_budget = self.entries.count - self.end_state.cache.count
        stale = np.zeros_like(by_budget) if self.stale is None else self.stale.sum(axis=1)
        return {Rule.budget.name: by_budget, Rule.threshold.name: stale}

    @cached_property
    def cutoff(self) -> Floats:
        """The lowest unprotected score that stayed (B, 1); NaN if the budget evicted nothing."""
        # ±inf in `lowest`: all entries fit, or all that stay are protected; see `select`.
        evicted = self.entries.count > self.end_state.cache.count
        return np.where(evicted[:, None] & np.isfinite(self.lowest), self.lowest, np.nan)

    @cached_property
    def token(self) -> Ints:
        """Token of each entry, evicted or not (B, C + n)."""
        new = self.entries.token[:, self.old_entries.token.shape[1] :]
        return np.concatenate([self.old_entries.token, new], axis=1)

    @cached_property
    def rule(self) -> Codes:
        """What evicted each entry, as `Rule` (B, C + n)."""
        rule = np.where(self.entries.present & ~self.kept_slots, Rule.budget, Rule.none)
        if self.stale is not None:
            rule[:, : self.stale.shape[1]][self.stale] = Rule.threshold
        return rule.astype(np.uint8)

    def entry_trace(self, ties: Ties) -> EntryTrace:
        """Return the entries of this turn for display; scores that tie are equal to the cutoff."""
        # 1. What happened to each slot.
        slots = self.old_entries.token.shape[1]
        present = self.entries.present
        took_part = self.token != EMPTY
        status = np.where(took_part, np.uint8(Status.kept), np.uint8(Status.empty))
        # Codes: kept (1) times 2 is new (2), and 2 more is evicted (3) or new_evicted (4).
        status[:, slots:] *= np.uint8(Status.new)
        status[self.rule != Rule.none] += np.uint8(Status.evicted - Status.kept)
        active = took_part[:, slots:].any(axis=1)
        updated = self.old_entries.present & active[:, None]
        # The slots that `Cache.keep` took, in order: attention is recorded for these.
        places = pad_kept(self.kept_slots, self.end_state.cache.token.shape[1])
        stays = present & self.kept_slots

        # 2. Columns with NaN where a value does not apply.
        def only(mask: Bools, column: Floats) -> Floats:
            return np.where(mask, column, np.nan).astype(np.float32, copy=False)

        def channel(name: str) -> Floats:
            column = self.entries[name]
            if self.stale is not None:  # the threshold evicts before the others are updated
                column = column.copy()
                column[:, :slots][self.stale] = self.update.cache[name][self.stale]
            return only(took_part, column)

        def over_kept(weights: Floats) -> Floats:
            column = np.full(places.shape, np.nan, np.float32)
            column[places] = weights.ravel()
            return only(stays, column)

        def recorded(value: Floats) -> Floats:
            if value.ndim == 1:  # a number of the row
                return only(active, value)
            column = np.full(places.shape, np.nan, np.float32)
            column[:, :slots] = only(updated, value)
            return column

        score = snap_ties(self.score, self.protected, self.cutoff, ties)
        return EntryTrace(
            token=self.token,
            status=status,
            rule=self.rule,
            protected=self.protected,
            score=only(present, score),
            rank=ranking(score, self.entries),
            attention_before=over_kept(self.end_state.attended.weights),
            attention_after=over_kept(self.end_state.attended.modulated_weights),
            channels={name: channel(name) for name in self.entries.channels},
            terms={name: only(present, term) for name, term in self.terms.items()},
            recorded={name: recorded(value) for name, value in self.update.recorded.items()},
        )


@dataclass(frozen=True, eq=False)
class EntryTrace:
    """Every entry of a turn, in W = budget + tokens of the turn slots.

    The first `budget` slots hold the entries cached before the turn, older first, the others the
    turn's own tokens. Values are those of the decision, in single precision:
    channels after the turn's updates, terms and scores as eviction saw them; NaN if not applicable.
    """

    token: Ints
    """Shape (B, W). −1 in empty slots."""
    status: Codes
    """Shape (B, W). Values of `Status`."""
    rule: Codes
    """Shape (B, W). Values of `Rule`."""
    protected: Bools
    """Shape (B, W). Whether an entry stays whatever its score."""
    score: Floats
    """Shape (B, W). The sum of the terms, or the cutoff where they tie; see
    `fdkvc.core.cache.snap_ties`."""
    rank: Ints
    """Shape (B, W). Rank by score, 1 for the highest, ties to the older; 0 if the threshold
    evicted it."""
    attention_before: Floats
    """Shape (B, W). Weights over the kept entries, before the policy's modulation."""
    attention_after: Floats
    """Shape (B, W). Weights over the kept entries, after it."""
    channels: Columns
    """Arrays of shape (B, W) by name. The policy's numbers for each entry."""
    terms: Columns
    """Arrays of shape (B, W) by name. The parts of the score."""
    recorded: Columns
    """Arrays of shape (B, W) or (B,) by name. Intermediate results of the policy's steps."""


BY_TURN = ("kept_tokens", "output", "state", "evicted", "peak")
"""Arrays of a trace, or mappings of arrays, whose second axis is that of turns."""


@dataclass(frozen=True, eq=False)
class Trace:
    """The record of one policy on a batch of dialogs."""

    policy: Policy
    """The policy that decided."""
    budget: int
    """Most entries of a row after a turn."""
    first_turn: int
    """The turn of the first column; 0 unless the run began with a state."""
    kept_tokens: Ints
    """Shape (B, T, budget). Tokens in the cache at the end of each turn, older first; empty slots,
    −1, may stand anywhere."""
    output: Floats
    """Shape (B, T, h). Context output of each turn; NaN in turns before `outputs_from`."""
    state: Columns
    """Arrays of shape (B, T) by name. Row states after each turn, such as FD-KVC's learning rate
    and ownership loss."""
    evicted: Mapping[str, Ints]
    """Arrays of shape (B, T) by rule name. Number of entries that each rule evicted."""
    peak: Ints
    """Shape (B, T). Entries of each turn before the budget evicted any: the most that the cache
    held."""
    seconds: NDArray[np.float64]
    """Shape (T,). Time of each turn of the whole batch, without recording."""
    results: Sequence[TurnResult] | None
    """All results of each turn, if entries were recorded."""
    end_state: State
    """State after the last turn."""

    @property
    def turns(self) -> int:
        """Number of recorded turns."""
        return int(self.kept_tokens.shape[1])

    def since(self, turn: int) -> Trace:
        """Return the record from this turn on, without its entries."""
        index = max(turn - self.first_turn, 0)
        columns = {name: getattr(self, name) for name in BY_TURN}
        # `joined` also cuts the arrays in mappings.
        later = joined([columns], lambda parts: parts[0][:, index:])
        first = self.first_turn + index
        seconds = self.seconds[index:]
        return replace(self, **later, first_turn=first, seconds=seconds, results=None)

    def row(self, index: int) -> Trace:
        """Return the record of one row, as if it had run alone, with copied arrays."""

        def of_row(part: Any) -> Any:
            if isinstance(part, np.ndarray):
                # Copied: a view would hold on to the whole batch.
                return part[index : index + 1].copy()
            if isinstance(part, Mapping):
                return {name: of_row(column) for name, column in part.items()}
            if isinstance(part, tuple):
                return tuple(map(of_row, part))
            if isinstance(part, State):  # its function would hold on to the whole batch
                return computed_state(*map(of_row, (part.cache, part.attended)))
            if isinstance(part, Trace | TurnResult | Update | Cache | Pages | Attended):
                columns = {
                    field.name: of_row(getattr(part, field.name)) for field in fields(part)
                }
                return replace(part, **columns)
            return part

        row: Trace = of_row(self)
        return replace(row, seconds=self.seconds)

    def result(self, turn: int) -> TurnResult:
        """Return all results of a turn, counted from 0 over the dialog.

        Raises a ValueError if the turn or its entries were not recorded.
        """
        check_count("turn", turn, self.first_turn, self.first_turn + self.turns - 1)
        if self.results is None:
            raise ValueError(
                "this trace was recorded without entries: simulate it with entries=True"
            )
        return self.results[turn - self.first_turn]

    def entries_in(self, turn: int) -> EntryTrace:
        """Return the entries of one turn; errors as in `result`."""
        return self.result(turn).entry_trace(self.policy.ties)
