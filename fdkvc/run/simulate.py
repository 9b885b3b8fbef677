"""The loop over turns: the only one, for one dialog on screen and for thousands in a batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints, Observation
from fdkvc.cache import EMPTY, Cache, among, empty_cache, last_in, levelled, ranking, select
from fdkvc.dialogs.batch import DialogBatch
from fdkvc.parameters import Parameter, check_count, check_parameter
from fdkvc.policies.base import Policy, Update, total
from fdkvc.run.trace import Attended, EntryTrace, Rule, State, Status, Trace, known_state


@dataclass(frozen=True, eq=False)
class TurnResult:
    """All that one turn computed.

    Attributes
    ----------
    old : Cache
        What was cached before the turn, and with it what came back from a second tier; (B, C)
        slots, C the budget and the tier's places.
    update : Update
        The policy's update of the old entries.
    stale : array (B, C) of bool, optional
        Old entries that the threshold evicted, if any.
    entries : Cache
        Old and new entries together as they stood for the decision, (B, C + n) slots.
    terms : mapping of name to array (B, C + n)
    score : array (B, C + n)
    protected, kept : array (B, C + n) of bool
    after : State
        What the turn leaves behind.
    """

    old: Cache
    update: Update
    stale: Bools | None
    entries: Cache
    terms: Mapping[str, Floats]
    score: Floats
    protected: Bools
    kept: Bools
    after: State


def initial_state(policy: Policy, rows: int, budget: int, head_dimension: int) -> State:
    """Return what a run starts from: an empty cache."""
    nothing = np.zeros((rows, budget), np.float32)
    places = policy.tier_places(budget)
    return known_state(
        empty_cache(rows, budget, policy.channels, policy.initial_state()),
        nothing,
        nothing,
        np.zeros((rows, head_dimension), np.float32),
        np.full((rows, places), EMPTY, np.intp) if places else None,
    )


def with_recalled(policy: Policy, before: State, turn: Observation) -> tuple[Cache, Ints | None]:
    """Return the cache with what comes back from the second tier in its place, and who waits on.

    Returns
    -------
    Cache
        (B, budget + R) slots, older entries first; the cache itself without a second tier.
    array (B, R), optional
    """
    cache, tier = before.cache, before.tier
    if tier is None:
        return cache, None
    back = policy.recalls(cache, tier, turn) & turn.active[:, None]
    token = np.where(back, tier, EMPTY)
    joined = cache.insert(token, policy.birth(turn.with_new(token)))
    ordered = joined.in_order(turn.position(joined.token))
    if not turn.everyone:
        ordered = ordered.where(turn.active, joined)
    return ordered, np.where(back, EMPTY, tier)


def protection(
    policy: Policy, entries: Cache, turn: Observation, budget: int, pinned: Ints | None
) -> Bools:
    """Mark what stays whatever its score (B, C), at most `budget` a row.

    The pinned go first. Where the policy protects more than the places that they leave, it
    protects what it would in a smaller budget: the oldest of a recent window and the last of the
    sinks lose their place, and never the newest or the first.

    Parameters
    ----------
    policy : Policy
    entries : Cache
    turn : Observation
    budget : int
    pinned : array (B, P), optional
        At most `budget` a row, −1 for none.
    """
    protected = policy.protects(entries, turn, budget)
    if pinned is None:
        return protected
    held = among(entries.token, pinned)
    for places in reversed(range(budget)):
        crowded = (protected | held).sum(axis=1, keepdims=True) > budget
        if not crowded.any():
            break
        protected = np.where(crowded, policy.protects(entries, turn, places), protected)
    return protected | held


def take_turn(
    policy: Policy, before: State, turn: Observation, budget: int, pinned: Ints | None = None
) -> TurnResult:
    """Run one turn: recall, update, threshold, insertion, eviction, attention.

    A row without tokens in this turn comes out as it went in.

    Parameters
    ----------
    policy : Policy
    before : State
        What the last turn left.
    turn : Observation
    budget : int
    pinned : array (B, P), optional
        Tokens that stay whatever the policy says, −1 for none.
    """
    old, tier = with_recalled(policy, before, turn)
    everyone = turn.everyone

    update = policy.update(old, turn)
    stale = update.stale
    if stale is not None and not everyone:
        stale = stale & turn.active[:, None]
    if stale is not None and pinned is not None:
        stale = stale & ~among(old.token, pinned)
    if stale is not None and not stale.any():
        stale = None
    survivors = update.cache if stale is None else update.cache.without(stale)

    births = policy.birth(turn)
    entries = policy.absorb(survivors.insert(turn.new, births), turn)
    if not everyone:
        entries = entries.where(turn.active, old.insert(turn.new, births))

    terms = policy.terms(entries, turn)
    score = total(terms)
    protected = protection(policy, entries, turn, budget, pinned)
    kept = select(score, entries, protected, budget, policy.ties)
    cache = entries.keep(kept)
    if tier is not None:
        stood = np.concatenate([old.token, turn.new], axis=1)
        evicted = np.where(kept & entries.present, EMPTY, stood)
        came = old.count - before.cache.count
        went = np.minimum((evicted != EMPTY).sum(axis=1), tier.shape[1])
        moves = cache.state["moves"] + (came + went).astype(np.float32)
        cache, tier = cache.with_state(moves=moves), last_in(tier, evicted, tier.shape[1])

    def attend() -> Attended:
        attention = turn.attention(cache.token)
        modulated = policy.modulate(attention, cache)
        output = turn.context(modulated, cache.token)
        if not everyone:
            column = turn.active[:, None]
            attention = np.where(column, attention, before.attention_before)
            modulated = np.where(column, modulated, before.attention_after)
            output = np.where(column, output, before.output)
        return Attended(attention, modulated, output)

    after = State(cache, attend, tier)
    if not everyone:
        _ = after.attended  # now, or it would keep every state before it alive
    return TurnResult(old, update, stale, entries, terms, score, protected, kept, after)


def simulate(
    policy: Policy,
    dialogs: DialogBatch,
    budget: int,
    *,
    entries: bool = True,
    outputs_from: int = 0,
    start: tuple[int, State] | None = None,
    pinned: Ints | None = None,
) -> Trace:
    """Run a policy over dialogs.

    Parameters
    ----------
    policy : Policy
    dialogs : DialogBatch
    budget : int
        Entries that the cache may hold at the end of a turn, at least 1. A policy that is not
        bounded by it holds all of the dialog's tokens.
    entries : bool
        Whether to record every entry of every turn, or only what the metrics need.
    outputs_from : int
        The first turn whose context output is wanted, where entries are not.
    start : tuple of (turn, State), optional
        Begin with this turn from what the turn before it left.
    pinned : array (B, P), optional
        Tokens that are never evicted once they are cached, −1 for none; at most `budget` a row.

    Returns
    -------
    Trace

    Raises
    ------
    ValueError
        For a budget below 1 or below the number of pinned tokens, or a start at a turn that the
        dialogs do not have.

    Examples
    --------
    >>> from fdkvc.dialogs.draw import generate
    >>> from fdkvc.dialogs.scenarios import SCENARIOS
    >>> from fdkvc.policies import policy_named
    >>> trace = simulate(policy_named("fifo"), generate(SCENARIOS["shift"]), budget=4)
    >>> trace.kept[0, 0].tolist()
    [28, 29, 30, 31]
    """
    check_count("budget", budget)
    budget = policy.capacity(budget, dialogs.keys.shape[1])
    rows, head_dimension = dialogs.rows, dialogs.keys.shape[-1]
    first, state = start or (0, initial_state(policy, rows, budget, head_dimension))
    check_parameter("the first turn", Parameter("", "", low=0, high=dialogs.turns - 1), first, int)
    if pinned is not None:
        check_count("budget", budget, low=max(1, int((pinned >= 0).sum(axis=1).max())))
    record = _Recorder(policy, dialogs, budget, first, entries, outputs_from, state.cache.count)
    for number in range(first, dialogs.turns):
        turn = dialogs.observe(number)
        began = perf_counter()
        result = take_turn(policy, state, turn, budget, pinned)
        if record.wants_output(number - first):
            _ = result.after.attended
        record.seconds[number - first] = perf_counter() - began
        record.turn(number - first, state.cache, turn.active, result)
        state = result.after
    return record.trace(state, pinned)


class _Recorder:
    """Writes turns into the arrays of a trace."""

    def __init__(
        self,
        policy: Policy,
        dialogs: DialogBatch,
        budget: int,
        first: int,
        entries: bool,
        outputs_from: int,
        cached_before: Ints,
    ) -> None:
        self.policy, self.budget, self.first, self.wanted = policy, budget, first, entries
        self.outputs_from = 0 if entries else outputs_from - first
        self.shape = (dialogs.rows, dialogs.turns - first)
        self.cached_before = cached_before
        self.came = np.diff(dialogs.bounds)[:, first:]
        places = policy.tier_places(budget)
        self.old_slots = budget + places
        self.width = self.old_slots + dialogs.turn_tokens
        self.tier = np.empty((*self.shape, places), np.intp) if places else None
        self.seconds = np.zeros(self.shape[1])
        self.count = np.empty(self.shape, np.intp)
        self.kept = np.empty((*self.shape, budget), np.intp)
        self.output = np.full((*self.shape, dialogs.keys.shape[-1]), np.nan, np.float32)
        self.by_turn: dict[str, Floats] = {}
        self.evicted = {rule.name: np.zeros(self.shape, np.intp) for rule in Rule if rule}
        self.by_entry: dict[str, NDArray] = {}  # type: ignore[type-arg]

    def wants_output(self, at: int) -> bool:
        return at >= self.outputs_from

    def turn(self, at: int, cached: Cache, active: Bools, result: TurnResult) -> None:
        if self.tier is not None and result.after.tier is not None:
            self.tier[:, at] = result.after.tier
            self.came[:, at] += result.old.count - cached.count
        self.kept[:, at] = result.after.cache.token
        self.count[:, at] = result.after.cache.count
        if self.wants_output(at):
            self.output[:, at] = result.after.output
        for name, value in result.after.cache.state.items():
            self._write_turn(at, f"state/{name}", value)
        if result.stale is not None:
            self.evicted["threshold"][:, at] = result.stale.sum(axis=1)
        if self.wanted:
            self._entries(at, active, result)

    def trace(self, last: State, pinned: Ints | None) -> Trace:
        counts = np.column_stack([self.cached_before, self.count])
        self.evicted["budget"] = self.came - np.diff(counts) - self.evicted["threshold"]
        return Trace(
            policy=self.policy,
            budget=self.budget,
            first_turn=self.first,
            kept=self.kept,
            output=self.output,
            state=_group(self.by_turn, "state"),
            evicted=self.evicted,
            seconds=self.seconds,
            entries=self._entry_trace() if self.wanted else None,
            last=last,
            pinned=pinned,
            tier=self.tier,
        )

    def _entries(self, at: int, active: Bools, result: TurnResult) -> None:
        entries, old, slots = result.entries, result.old.token, self.old_slots
        gone = entries.present & ~result.kept
        stale = np.zeros(old.shape, np.bool_) if result.stale is None else result.stale
        token = entries.token.copy()
        token[:, :slots][stale] = old[stale]
        self._write(at, "token", token, -1)

        status = np.where(entries.present, Status.kept, Status.empty)
        status[:, slots:] *= Status.new
        status[gone] += Status.evicted - Status.kept
        status[:, :slots][stale] = Status.evicted
        self._write(at, "status", status.astype(np.uint8), 0)
        rule = np.where(gone, Rule.budget, Rule.none)
        rule[:, :slots][stale] = Rule.threshold
        self._write(at, "rule", rule.astype(np.uint8), 0)
        self._write(at, "protected", result.protected, False)

        channels = {name: column.copy() for name, column in entries.channels.items()}
        if stale.any():  # these were decided on, and removed, before the others
            for name, column in result.update.cache.channels.items():
                channels[name][:, :slots][stale] = column[stale]
        for name, column in channels.items():
            self._write(at, f"channels/{name}", np.where(token >= 0, column, np.nan))
        score = levelled(result.score, entries, result.protected, self.budget, self.policy.ties)
        worth = {f"terms/{name}": term for name, term in result.terms.items()}
        for name, number in {**worth, "score": score}.items():
            self._write(at, name, np.where(entries.present, number, np.nan).astype(np.float32))
        self._write(at, "rank", ranking(score, entries), 0)

        for name in ("attention_before", "attention_after"):
            weights = np.full(token.shape, np.nan, np.float32)
            weights[result.kept] = getattr(result.after, name).ravel()
            self._write(at, name, np.where(entries.present, weights, np.nan))
        for name, value in result.update.recorded.items():
            if value.ndim == 1:
                self._write_turn(at, f"recorded/{name}", np.where(active, value, np.nan))
            else:
                took_part = (old >= 0) & active[:, None]
                self._write(at, f"recorded/{name}", np.where(took_part, value, np.nan))

    def _write(self, at: int, name: str, value: NDArray, empty: float = np.nan) -> None:  # type: ignore[type-arg]
        if name not in self.by_entry:
            shape = (*self.shape, self.width)
            self.by_entry[name] = np.full(shape, empty, value.dtype)
        self.by_entry[name][:, at, : value.shape[1]] = value

    def _write_turn(self, at: int, name: str, value: Floats) -> None:
        if name not in self.by_turn:
            self.by_turn[name] = np.full(self.shape, np.nan, np.float32)
        self.by_turn[name][:, at] = value

    def _entry_trace(self) -> EntryTrace:
        plain = {name: column for name, column in self.by_entry.items() if "/" not in name}
        return EntryTrace(
            **plain,
            channels=_group(self.by_entry, "channels"),
            terms=_group(self.by_entry, "terms"),
            recorded=_group(self.by_entry, "recorded") | _group(self.by_turn, "recorded"),
        )


def _group(columns: Mapping[str, NDArray], group: str) -> dict[str, NDArray]:  # type: ignore[type-arg]
    prefix = f"{group}/"
    return {
        name.removeprefix(prefix): column
        for name, column in columns.items()
        if name.startswith(prefix)
    }
