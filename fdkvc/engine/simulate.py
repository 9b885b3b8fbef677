"""The loop over turns, for one dialog on screen and for thousands in a batch."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from fdkvc.core.attention import LANES, Bools, Columns, Ints, Observation
from fdkvc.core.cache import (
    EMPTY,
    Cache,
    contains,
    empty_cache,
    joined,
    select,
)
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import check_count
from fdkvc.engine.trace import Attended, Choice, State, Trace, TurnResult, computed_state
from fdkvc.policies.base import Policy, Update, total, within


def initial_state(
    policy: Policy,
    rows: int,
    budget: int,
    head_dimension: int,
    layers: int = 1,
    heads: int = 1,
) -> State:
    """Return the state before the first turn: an empty cache.

    Layers and heads are as in `ObservedTokens`.
    """
    slots = policy.slots(budget, layers, heads)
    nothing = np.zeros((rows, slots), np.float32)
    return computed_state(
        empty_cache(rows, slots, policy.channels, policy.initial_state()),
        Attended(nothing, nothing, np.zeros((rows, head_dimension), np.float32)),
    )


def protection(
    policy: Policy,
    entries: Cache,
    turn: Observation,
    budget: int | Ints,
    pinned: Ints | None,
) -> Bools:
    """Mark the entries that stay whatever their score (B, C), at most `budget` a row.

    Pinned tokens (B, P) come first. If the policy protects more entries than there are places left,
    it protects what it would with a smaller budget: so the oldest entries of a recent window, or
    the last sinks, lose their places.
    """
    if not isinstance(budget, int):  # `protects` takes one number: a call for each size
        marked = np.zeros(entries.token.shape, np.bool_)
        for size in np.unique(budget).tolist():
            marked |= protection(policy, entries, turn, size, pinned) & (budget == size)
        return marked
    if pinned is None:
        return policy.protects(entries, turn, budget)
    is_pinned = contains(entries.token, pinned)
    return within(budget, lambda places: policy.protects(entries, turn, places) | is_pinned)


def choose(
    policy: Policy,
    entries: Cache,
    terms: Columns,
    turn: Observation,
    budget: int,
    pinned: Ints | None,
) -> Choice:
    """Choose which entries stay, by their terms; all without terms."""
    if not terms:
        unscored = np.zeros(entries.token.shape, np.float32)
        return Choice(unscored, unscored > 0, entries.present, budget, None, unscored[:, :1])
    score = total(terms)
    budgets = policy.budgets(budget, turn)
    protected = protection(policy, entries, turn, budgets, pinned)
    places = policy.places(score, entries, protected, budgets, turn.tokens.heads)
    pages = policy.pages(entries, turn)
    stays, lowest = select(score, entries, protected, places, policy.ties, pages)
    return Choice(score, protected, stays, places, pages, lowest)


def _stale(update: Update, turn: Observation, pinned: Ints | None) -> Bools | None:
    """Mark the entries below the policy's threshold (B, C), if any; pinned ones never are.

    A row without tokens in this turn has none.
    """
    if update.stale is None:
        return None
    stale = update.stale & turn.active[:, None]
    if pinned is not None:
        stale &= ~contains(update.cache.token, pinned)
    return stale if stale.any() else None


def take_turn(
    policy: Policy,
    state: State,
    turn: Observation,
    budget: int,
    pinned: Ints | None = None,
    slots: int | None = None,
) -> TurnResult:
    """Run one turn: update, threshold, insertion, eviction, attention.

    A row without tokens in this turn does not change. Pinned tokens (B, P) are never evicted.
    `slots` are those of the cache after it, by default as many as the policy may fill.
    """
    old = state.cache
    all_active = turn.active.all()

    # 1. Update the old entries, and remove those below the policy's threshold.
    update = policy.update(old, turn, lambda cache: total(policy.terms(cache, turn)))
    stale = _stale(update, turn, pinned)
    survivors = update.cache if stale is None else update.cache.without(stale)

    # 2. Insert the turn's tokens: from here (B, C + n).
    initial = policy.init_channels(turn)
    entries = policy.after_insert(survivors.insert(turn.new, initial), turn)
    if not all_active:
        entries = entries.where(turn.active, old.insert(turn.new, initial))

    # 3. Evict down to the budget. If all fit, and only what stays is wanted, scores are not.
    unscored = not state.attend and policy.page_size < 2
    fits = unscored and (entries.count[:, None] <= policy.room(budget, turn)).all()
    terms = {} if fits else policy.terms(entries, turn)
    chosen = choose(policy, entries, terms, turn, budget, pinned)
    slots = slots or policy.slots(budget, turn.tokens.layers, turn.tokens.heads)
    cache = entries.keep(chosen.kept_slots, slots)

    # 4. Attend over what stays. This must not refer to the state before: each state would keep the
    # one before it in memory.
    def attend() -> Attended:
        attention = turn.attention(cache.token)
        modulated = policy.modulate(attention, cache)
        return Attended(attention, modulated, turn.context(modulated, cache.token))

    end_state = State(cache, attend if state.attend else None)
    # 5. A row without tokens has the attention of its last turn with tokens.
    if not all_active and state.attend:
        attended = end_state.attended.where(turn.active, state.attended)
        end_state = computed_state(cache, attended)
    return TurnResult(
        **vars(chosen),
        old_entries=old,
        update=update,
        stale=stale,
        entries=entries,
        terms=terms,
        end_state=end_state,
    )


def _widened(state: State, slots: int) -> State:
    """Return the state with empty slots in front, up to so many."""
    cache = state.cache
    missing = slots - cache.token.shape[1]
    if missing <= 0:
        return state
    front = empty_cache(len(cache.token), missing, tuple(cache.channels), {})
    widened = front.insert(cache.token, cache.channels)
    return replace(state, cache=replace(widened, state=cache.state))


def simulate(
    policy: Policy,
    dialogs: DialogBatch,
    budget: int,
    *,
    entries: bool = True,
    outputs_from: int = 0,
    start: tuple[int, State] | None = None,
    stop: int | None = None,
    pinned: Ints | None = None,
) -> Trace:
    """Run a policy over dialogs.

    Raises a ValueError for a budget below 1 or below the number of pinned tokens, or a start beyond
    the dialogs.

    Parameters
    ----------
    budget : int
        Largest number of entries at the end of a turn, at least 1. An unbounded policy holds all
        tokens of the dialog.
    entries : bool
        Whether to record every entry of every turn, or only what the metrics need.
    outputs_from : int
        The first turn whose context output is recorded, if `entries` is false.
    start : tuple of (turn, State), optional
        Start with this turn from the state that the previous turn left.
    stop : int, optional
        The turn before which to stop.
    pinned : array (B, P), optional
        Tokens that are never evicted once cached, −1 for none; at most `budget` a row.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named
    >>> trace = simulate(policy_named("fifo"), generate(SCENARIOS["shift"]), budget=4)
    >>> trace.kept_tokens[0, 0].tolist()
    [28, 29, 30, 31]
    """
    rows, tokens, head_dimension = dialogs.keys.shape
    budget = policy.capacity(check_count("budget", budget), tokens)
    nothing = initial_state(
        policy, rows, budget, head_dimension, dialogs.layers, dialogs.heads
    )
    first, state = start or (0, nothing)
    check_count("the first turn", first, low=0, high=dialogs.turns - 1)
    if pinned is not None:
        pinned_counts = (pinned >= 0).sum(axis=1)
        check_count("budget", budget, low=max(1, int(pinned_counts.max())))
    end = dialogs.turns if stop is None else min(stop, dialogs.turns)
    slots = state.cache.token.shape[1]
    if not (start or entries) and outputs_from >= end:
        # Only what stays is wanted: no attention, and not more slots than are filled so far. The
        # missing ones are whole lanes, as below.
        narrow = state.cache.keep(state.cache.present, (slots - 1) % LANES + 1)
        state = State(narrow, None)
    seconds = np.zeros(end - first)
    results = []
    turns = []
    kept_tokens = np.full((rows, end - first, slots), EMPTY, np.intp)
    no_output = np.full((rows, head_dimension), np.nan, np.float32)
    for index, number in enumerate(range(first, end)):
        turn = dialogs.observe(number)
        began = perf_counter()
        # By whole lanes, so that a sum over the slots stays the same to the last bit.
        free = max(slots - int(state.cache.count.max()) - turn.new.shape[1], 0)
        state = _widened(state, slots - free // LANES * LANES)
        result = take_turn(policy, state, turn, budget, pinned, state.cache.token.shape[1])
        state = result.end_state
        # Aligned right, since missing slots are in front.
        kept_tokens[:, index, slots - state.cache.token.shape[1] :] = state.cache.token
        # No decision needs attention, so it is computed only where it is recorded.
        output = state.attended.output if entries or number >= outputs_from else no_output
        seconds[index] = perf_counter() - began
        turns.append(
            {
                "output": output,
                "state": state.cache.state,
                "evicted": result.evicted,
                "peak": result.entries.count,
            }
        )
        if entries:
            results.append(result)
    return Trace(
        policy=policy,
        budget=budget,
        first_turn=first,
        seconds=seconds,
        results=tuple(results) if entries else None,
        end_state=_widened(state, slots),
        kept_tokens=kept_tokens,
        **joined(turns, partial(np.stack, axis=1)),
    )


def simulate_blocks(
    policy: Policy, dialogs: DialogBatch, budget: int, turns: int
) -> Iterator[Trace]:
    """Run a policy over long dialogs, and yield so many turns at a time, without attention."""
    start: tuple[int, State] | None = None
    for first in range(0, dialogs.turns, turns):
        part = simulate(
            policy,
            dialogs,
            budget,
            entries=False,
            outputs_from=dialogs.turns,
            start=start,
            stop=first + turns,
        )
        start = first + turns, part.end_state
        yield part
