"""Runs over long dialogs recompute the very entries that a recorded run has."""

from dataclasses import fields

import numpy as np
import pytest

from fdkvc.engine.long import BLOCK, simulate_long
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import EntryTrace
from fdkvc.policies import POLICIES, read_policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS

DIALOG = generate(SCENARIOS["complex"], 1, 3)
WRAPPED = ("blocks(fd-kvc,size=8)", "whitelist(h2o)")


@pytest.mark.parametrize("name", [*POLICIES, *WRAPPED])
def test_a_long_run_has_the_kept_tokens_states_and_entries_of_a_recorded_one(name: str) -> None:
    policy = read_policy(name)
    recorded, long = simulate(policy, DIALOG, 56), simulate_long(policy, DIALOG, 56)

    assert long.turns == DIALOG.turns > BLOCK
    np.testing.assert_array_equal(long.kept_tokens, recorded.kept_tokens)
    np.testing.assert_array_equal(long.output, recorded.output)
    for state, column in recorded.state.items():
        np.testing.assert_array_equal(long.state[state], column)
    for rule, count in recorded.evicted.items():
        np.testing.assert_array_equal(long.evicted[rule], count)
    for turn in (DIALOG.turns - 1, 0, BLOCK - 1, BLOCK):  # in any order
        one, other = long.entries_in(turn), recorded.entries_in(turn)
        for field in fields(EntryTrace):
            np.testing.assert_equal(getattr(one, field.name), getattr(other, field.name))


def test_turns_beyond_the_dialog_and_too_many_entries_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = simulate_long(read_policy("fifo"), DIALOG, 56)
    with pytest.raises(ValueError, match="turn is 20"):
        long.result(DIALOG.turns)
    monkeypatch.setattr("fdkvc.engine.long.MAX_KEPT_ENTRIES", 20 * 56 - 1)
    with pytest.raises(ValueError, match="turns × budget are 1,120, but at most 1,119"):
        simulate_long(read_policy("fifo"), DIALOG, 56)
