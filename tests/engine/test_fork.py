"""Forks: turns before the change stay the same, later ones follow from it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import parameters_of
from fdkvc.engine.fork import Fork, fork, state_at_fork
from fdkvc.engine.simulate import initial_state, simulate, take_turn
from fdkvc.engine.trace import Rule, Trace
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import (
    EVICTING,
    all_entries,
    assert_same_run,
    assert_same_state,
    columns,
    dialogs,
    kept_tokens,
    policies,
    ragged,
    random_dialog,
)

any_policy = policies() | st.just(EVICTING)
budgets = st.integers(1, 24)
every_policy = pytest.mark.parametrize("key", POLICIES)


@st.composite
def forkable(draw: st.DrawFn) -> tuple[Trace, DialogBatch, int]:
    """Draw a run of one dialog, and a turn after which entries are cached."""
    dialog = draw(
        dialogs()
        .map(lambda batches: batches[0])
        .filter(lambda one: one.turns > 1 and one.bounds[0, 1])
    )
    trace = simulate(draw(any_policy), dialog, draw(budgets))
    turns = [turn for turn in range(dialog.turns - 1) if kept_tokens(trace, 0, turn)]
    return trace, dialog, draw(st.sampled_from(turns)) if turns else 0


@st.composite
def forkable_token(draw: st.DrawFn) -> tuple[Trace, DialogBatch, int, int]:
    """Draw such a run and turn, and one of the tokens that are cached after it."""
    run = draw(forkable().filter(lambda run: kept_tokens(run[0], 0, run[2])))
    return *run, draw(st.sampled_from(kept_tokens(run[0], 0, run[2])))


# ------------------------------------------------------------------------------- the trunk


@given(any_policy, ragged(), budgets, st.data())
def test_a_fork_that_changes_nothing_repeats_the_future_to_the_last_bit(
    policy: Policy, batch: DialogBatch, budget: int, data: st.DataObject
) -> None:
    trace = simulate(policy, batch, budget)
    if batch.turns == 1:
        return
    turn = data.draw(st.integers(0, batch.turns - 2), label="turn")

    assert_same_state(state_at_fork(trace, batch, Fork(turn)), trace.result(turn).end_state)
    for change in (Fork(turn), Fork(turn, policy=policy, budget=budget)):
        future = fork(trace, batch, change)

        assert future.first_turn == turn + 1
        assert future.turns == batch.turns - turn - 1
        for row in range(batch.rows):
            assert_same_run(future, trace, row, row)
        for later in range(turn + 1, batch.turns):  # and a fork can be forked
            assert_same_state(future.result(later).end_state, trace.result(later).end_state)


@given(forkable(), any_policy, budgets)
def test_the_run_that_is_forked_stays_as_it_was(
    run: tuple[Trace, DialogBatch, int], policy: Policy, budget: int
) -> None:
    trace, dialog, turn = run
    before = {name: copy.deepcopy(column) for name, column in columns(trace)}
    before |= {name: copy.deepcopy(column) for name, column in columns(all_entries(trace))}

    fork(trace, dialog, Fork(turn, policy=policy, budget=budget))

    for name, column in [*columns(trace), *columns(all_entries(trace))]:
        np.testing.assert_array_equal(column, before[name], err_msg=name)


# ------------------------------------------------------------------------------- pin and drop


@given(forkable_token(), any_policy, budgets)
def test_a_pinned_entry_is_never_evicted(
    run: tuple[Trace, DialogBatch, int, int], policy: Policy, budget: int
) -> None:
    trace, dialog, turn, token = run

    future = fork(trace, dialog, Fork(turn, policy=policy, budget=budget, pinned=token))

    for later in range(turn + 1, dialog.turns):
        kept = kept_tokens(future, 0, later)
        assert token in kept
        assert len(kept) <= policy.capacity(budget, len(dialog.keys[0]))
    entries = all_entries(future)
    assert (entries.protected.sum(axis=2) <= future.budget).all()
    assert (entries.rule[entries.protected] != Rule.budget).all()
    assert entries.protected[entries.token == token].all()
    assert (entries.rule[entries.token == token] == Rule.none).all()


@given(forkable_token())
def test_a_dropped_entry_never_returns(run: tuple[Trace, DialogBatch, int, int]) -> None:
    trace, dialog, turn, token = run
    cached = kept_tokens(trace, 0, turn)
    change = Fork(turn, dropped=token)

    start = state_at_fork(trace, dialog, change)
    future = fork(trace, dialog, change)

    assert sorted(start.cache.token[start.cache.present]) == [t for t in cached if t != token]
    assert start.cache.token.shape == (1, trace.budget)
    assert (all_entries(future).token != token).all()


def test_the_attention_of_a_dropped_entry_is_shared_by_the_others() -> None:
    dialog = generate(SCENARIOS["shift"], 1, 7)
    trace = simulate(policy_named("fd-kvc"), dialog, 56)
    token = kept_tokens(trace, 0, 4)[10]

    state = state_at_fork(trace, dialog, Fork(4, dropped=token))

    before, slot = trace.result(4).end_state, trace.result(4).end_state.cache.token[0] == token
    others = before.attended.weights[0, ~slot]
    np.testing.assert_allclose(state.attended.weights[0, ~slot], others / others.sum(), rtol=1e-5)
    assert not state.attended.weights[0, slot].any()
    bent = trace.policy.modulate(state.attended.weights, state.cache)
    np.testing.assert_array_equal(state.attended.modulated_weights, bent)
    assert (bent != state.attended.weights).any()
    assert state.attended.modulated_weights.sum() == pytest.approx(1, abs=1e-5)
    values = dialog.values[0, state.cache.token[0]]
    np.testing.assert_allclose(
        state.attended.output[0], state.attended.modulated_weights[0] @ values, atol=1e-5
    )


def test_what_a_fork_pinned_stays_pinned_in_a_fork_of_it() -> None:
    dialog = generate(SCENARIOS["shift"])
    trace = simulate(policy_named("fifo"), dialog, 8)
    once = fork(trace, dialog, Fork(2, pinned=88))
    twice = fork(once, dialog, Fork(5, pinned=190))

    assert kept_tokens(twice, 0, 9)[:2] == [88, 190]
    again = fork(once, dialog, Fork(5))
    np.testing.assert_array_equal(again.kept_tokens, once.kept_tokens[:, 3:])
    np.testing.assert_array_equal(again.output, once.output[:, 3:])


FILLING = ("h2o window=1", "snapkv window=1", "window(fd-kvc, share=1)", "scissorhands window=1")
"""Policies that protect as many of the newest entries as the budget holds."""


@pytest.mark.parametrize("name", FILLING)
@pytest.mark.parametrize("pins", [2, 7, 8])
def test_several_pinned_entries_leave_a_window_the_other_places(name: str, pins: int) -> None:
    dialog = generate(SCENARIOS["shift"])
    held = list(range(40, 40 + pins))
    trace = simulate(read_policy(name), dialog, 8, pinned=np.array([held]))

    assert kept_tokens(trace, 0, 2) == [*held, *range(88 + pins, 96)]


@pytest.mark.parametrize("key", ["sink", "expected-attention"])
def test_a_pinned_entry_takes_the_place_of_the_last_sink(key: str) -> None:
    dialog = generate(SCENARIOS["shift"])
    trace, policy = simulate(policy_named("fifo"), dialog, 32), policy_named(key, sinks=8)
    change = Fork(0, policy=policy, budget=8, pinned=20)

    assert state_at_fork(trace, dialog, change).cache.token[0].tolist() == [*range(7), 20]
    assert kept_tokens(fork(trace, dialog, change), 0, 9) == [*range(7), 20]


def test_pins_that_find_room_leave_the_window_as_it_is() -> None:
    dialog = generate(SCENARIOS["shift"])
    pinned = simulate(policy_named("h2o"), dialog, 8, pinned=np.array([[40, 41, 42, 43]]))

    assert kept_tokens(pinned, 0, 9) == [40, 41, 42, 43, 316, 317, 318, 319]


def test_each_row_protects_what_its_own_pins_leave_room_for() -> None:
    batch = stack([random_dialog(seed, [6, 6, 6]) for seed in range(2)])
    pinned = np.array([[0, 1], [-1, -1]])

    trace = simulate(policy_named("h2o", window=1), batch, 4, pinned=pinned)

    assert kept_tokens(trace, 0, 2) == [0, 1, 16, 17]
    assert kept_tokens(trace, 1, 2) == [14, 15, 16, 17]


# ------------------------------------------------------------------------------- the budget


@given(forkable(), any_policy, st.integers(1, 40))
def test_the_budget_holds_at_the_fork_and_after_it(
    run: tuple[Trace, DialogBatch, int], policy: Policy, budget: int
) -> None:
    trace, dialog, turn = run
    cached = kept_tokens(trace, 0, turn)
    change = Fork(turn, policy=policy, budget=budget)
    room = policy.capacity(budget, len(dialog.keys[0]))

    start = state_at_fork(trace, dialog, change).cache
    future = fork(trace, dialog, change)

    assert start.token.shape == (1, room)
    kept = start.token[start.present].tolist()
    assert kept == sorted(kept)
    assert set(kept) <= set(cached)
    assert len(kept) == min(len(cached), room)
    assert future.budget == room
    for later in range(turn + 1, dialog.turns):
        assert len(kept_tokens(future, 0, later)) <= room


@pytest.mark.parametrize(
    "key",
    [
        key
        for key in POLICIES
        if policy_named(key).bounded and key not in ("shift", "clear-results")  # which go by parts
    ],
)
@pytest.mark.parametrize("budget", [1, 20, 55])
def test_a_smaller_budget_keeps_the_protected_and_then_the_best(key: str, budget: int) -> None:
    dialog = generate(SCENARIOS["mixed"], 1, 3)
    trace, policy = simulate(policy_named(key), dialog, 56), policy_named(key)
    turn, before = dialog.observe(5), trace.result(5).end_state.cache

    start = state_at_fork(trace, dialog, Fork(5, budget=budget)).cache

    score = np.sum(list(policy.terms(before, turn).values()), axis=0)
    protected = policy.protects(before, turn, budget)
    # The best first: protected before others, then by score, and of equals the older.
    order = sorted(range(56), key=lambda slot: (not protected[0, slot], -score[0, slot], slot))
    assert start.token[0].tolist() == sorted(before.token[0, order[:budget]].tolist())


# ------------------------------------------------------------------------------- the policy


def goes_on(one: Policy, other: Policy) -> bool:
    """Whether `other` differs from `one` in numbers alone, of which none turns an option on."""
    numbers = {
        name: getattr(other, name)
        for name, known in parameters_of(one).items()
        if one.key == other.key and not known.choices
    }
    return one.variant(**numbers) == other and one.channels == other.channels


@given(forkable(), any_policy, st.data())
def test_a_policy_with_other_numbers_keeps_its_channels_and_any_other_resets_them(
    run: tuple[Trace, DialogBatch, int], policy: Policy, data: st.DataObject
) -> None:
    trace, dialog, turn = run
    if data.draw(st.booleans(), label="the same policy"):
        policy = data.draw(policies((trace.policy.key,)), label="policy")
    before, change = trace.result(turn).end_state, Fork(turn, policy=policy, budget=trace.budget)

    start = state_at_fork(trace, dialog, change)

    held, was = start.cache.present, before.cache.present
    room = start.cache.token.shape[1] - was.sum()
    if room >= 0:  # nothing left, so what the turn answered stands
        np.testing.assert_array_equal(start.cache.token[held], before.cache.token[was])
        np.testing.assert_array_equal(start.attended.output, before.attended.output)
    assert tuple(start.cache.channels) == policy.channels
    assert set(start.cache.state) == set(policy.initial_state())
    if not policy.channels or goes_on(trace.policy, policy):
        assert not change.resets(trace.policy)
        if room >= 0:
            for name, column in start.cache.channels.items():
                np.testing.assert_array_equal(column[held], before.cache[name][was], err_msg=name)
        for name, first in policy.initial_state().items():
            expected = before.cache.state.get(name, np.array([first], np.float32))
            np.testing.assert_array_equal(start.cache.state[name], expected, err_msg=name)
    else:
        assert change.resets(trace.policy)
    fork(trace, dialog, change)


@pytest.mark.parametrize("empty", [False, True])
@every_policy
def test_a_policy_that_resets_treats_all_entries_as_new_in_the_turn(key: str, empty: bool) -> None:
    lengths = [6, 9, 0 if empty else 9, 4]
    dialog = random_dialog(5, lengths)
    trace, policy = simulate(policy_named("tova"), dialog, 8), policy_named(key)

    cache = state_at_fork(trace, dialog, Fork(2, policy=policy)).cache

    if not policy.channels:
        return
    # A run whose only turn brings these very tokens, and asks what this turn asked.
    turn = dialog.observe(2)
    brought = turn.with_new(trace.kept_tokens[:, 2])
    alone = take_turn(policy, initial_state(policy, 1, 8, 4), brought, 8).end_state.cache
    if empty:  # nothing was asked
        births = policy.init_channels(brought)
        assert {name: column.tolist() for name, column in cache.channels.items()} == {
            name: births[name].tolist() for name in policy.channels
        }
        return
    assert cache.token[cache.present].tolist() == alone.token[alone.present].tolist()
    for name, column in cache.channels.items():
        np.testing.assert_array_equal(column[cache.present], alone[name][alone.present])


@given(ragged(), any_policy, any_policy, budgets, budgets, st.data())
def test_a_row_forks_in_a_batch_as_it_does_alone(
    batch: DialogBatch, one: Policy, other: Policy, budget: int, room: int, data: st.DataObject
) -> None:
    turn = data.draw(st.integers(0, max(batch.turns - 2, 0)), label="turn")
    change = Fork(turn, policy=other, budget=room)
    if batch.turns == 1:
        return
    together = fork(simulate(one, batch, budget), batch, change)
    for row in range(batch.rows):
        alone = batch.row(row)
        if turn < alone.turns - 1:
            future = fork(simulate(one, alone, budget), alone, change)
            if one.bounded and other.bounded:
                assert_same_run(future, together, 0, row)
            for later in range(turn + 1, alone.turns):
                assert kept_tokens(future, 0, later) == kept_tokens(together, row, later)


# ------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (Fork(9), "turn 9 is the last one"),
        (Fork(10), "turn is 10, but must be"),
        (Fork(-1), "turn is -1, but must be"),
        (Fork(2, budget=0), "budget is 0, but must be"),
        (Fork(2, pinned=3), "token 3 cannot be protected: it is not in"),
        (Fork(2, dropped=96), "token 96 cannot be dropped"),
        (Fork(2, pinned=95, dropped=95), "token 95 cannot be both protected and dropped"),
    ],
)
def test_a_fork_that_cannot_be_is_refused_in_a_sentence(change: Fork, sentence: str) -> None:
    dialog = generate(SCENARIOS["shift"])
    trace = simulate(policy_named("fifo"), dialog, 8)

    with pytest.raises(ValueError, match=f"^{sentence}"):
        fork(trace, dialog, change)


def test_more_pinned_entries_than_places_are_refused() -> None:
    dialog = generate(SCENARIOS["shift"])
    once = fork(simulate(policy_named("fifo"), dialog, 8), dialog, Fork(2, pinned=95))

    for refused in (fork, state_at_fork):
        with pytest.raises(ValueError, match=r"^budget is 1, but must be"):
            refused(once, dialog, Fork(4, pinned=159, budget=1))


def test_a_batch_pins_a_token_that_every_row_holds() -> None:
    rows = [random_dialog(seed, [6, 6, 6]) for seed in range(3)]
    batch = stack(rows)
    future = fork(simulate(policy_named("fifo"), batch, 4), batch, Fork(0, pinned=4))

    assert [kept_tokens(future, row, 2) for row in range(3)] == [[4, 15, 16, 17]] * 3


def test_its_changes_are_told_in_a_few_words() -> None:
    policy = policy_named("fd-kvc")

    assert Fork(3).changes(policy, 56) == []
    assert Fork(3, policy=policy, budget=56).changes(policy, 56) == []
    assert Fork(3, policy=policy_named("h2o", window=0.25), dropped=7).changes(policy, 56) == [
        "H2O window=0.25 instead of FD-KVC",
        "token 7 dropped",
    ]
