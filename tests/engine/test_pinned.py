"""Tokens that are never evicted, and runs that go on from a state."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule
from fdkvc.policies import Policy, policy_named, read_policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import (
    EVICTING,
    all_entries,
    assert_same_run,
    assert_same_state,
    dialogs,
    kept_tokens,
    policies,
    ragged,
    random_dialog,
)

any_policy = policies() | st.just(EVICTING)
budgets = st.integers(1, 24)


@given(any_policy, ragged(), budgets, st.data())
def test_a_run_that_goes_on_from_a_state_is_the_whole_run_to_the_last_bit(
    policy: Policy, batch: DialogBatch, budget: int, data: st.DataObject
) -> None:
    trace = simulate(policy, batch, budget)
    if batch.turns == 1:
        return
    first = data.draw(st.integers(1, batch.turns - 1), label="first turn")

    later = simulate(policy, batch, budget, start=(first, trace.result(first - 1).end_state))

    assert (later.first_turn, later.turns) == (first, batch.turns - first)
    for row in range(batch.rows):
        assert_same_run(later, trace, row, row)
    for turn in range(first, batch.turns):
        assert_same_state(later.result(turn).end_state, trace.result(turn).end_state)


@given(dialogs().filter(lambda batches: batches[0].bounds[0, -1]), any_policy, budgets, st.data())
def test_a_pinned_entry_is_never_evicted(
    batches: list[DialogBatch], policy: Policy, budget: int, data: st.DataObject
) -> None:
    dialog = batches[0]
    token = data.draw(st.integers(0, int(dialog.bounds[0, -1]) - 1), label="token")

    trace = simulate(policy, dialog, budget, pinned=np.array([[token]]))

    for turn in range(int(dialog.born[0, token]), dialog.turns):
        kept = kept_tokens(trace, 0, turn)
        assert token in kept
        assert len(kept) <= policy.capacity(budget, len(dialog.keys[0]))
    entries = all_entries(trace)
    assert (entries.protected.sum(axis=2) <= trace.budget).all()
    assert (entries.rule[entries.protected] != Rule.budget).all()
    assert entries.protected[entries.token == token].all()
    assert (entries.rule[entries.token == token] == Rule.none).all()


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
    trace = simulate(policy_named(key, sinks=8), dialog, 8, pinned=np.array([[20]]))

    assert kept_tokens(trace, 0, 0) == kept_tokens(trace, 0, 9) == [*range(7), 20]


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


def test_more_pinned_entries_than_places_are_refused() -> None:
    dialog = generate(SCENARIOS["shift"])

    with pytest.raises(ValueError, match=r"^budget is 1, but must be"):
        simulate(policy_named("fifo"), dialog, 1, pinned=np.array([[95, 159]]))
