"""Sink+Window, worked by hand."""

import pytest

from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from tests.worlds import all_entries, kept_tokens, plain_dialog

DIALOG = plain_dialog([[1] * 3, [1] * 3, [1] * 7])


@pytest.mark.parametrize(
    ("sinks", "budget", "kept"),
    [
        (4, 6, [[0, 1, 2], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 11, 12]]),
        (2, 4, [[0, 1, 2], [0, 1, 4, 5], [0, 1, 11, 12]]),
        (0, 2, [[1, 2], [4, 5], [11, 12]]),
        (4, 2, [[0, 1], [0, 1], [0, 1]]),
        # There are no more sinks than the budget holds.
        (64, 4, [[0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]),
    ],
)
def test_the_first_tokens_and_the_newest_stay(
    sinks: int, budget: int, kept: list[list[int]]
) -> None:
    trace = simulate(policy_named("sink", sinks=sinks), DIALOG, budget)
    entries = all_entries(trace)

    assert [kept_tokens(trace, 0, turn) for turn in range(3)] == kept
    protected = entries.token[0, 2, entries.protected[0, 2]]
    assert protected.tolist() == list(range(min(sinks, budget)))
