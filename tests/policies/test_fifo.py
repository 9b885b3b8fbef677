"""FIFO, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from tests.worlds import all_entries, evictions, kept_tokens, plain_dialog


def test_the_newest_stay() -> None:
    dialog = plain_dialog([[1, 1], [1, 1], [1, 1, 1, 1]])
    trace = simulate(policy_named("fifo"), dialog, budget=3)
    entries = all_entries(trace)

    assert [kept_tokens(trace, 0, turn) for turn in range(3)] == [[0, 1], [1, 2, 3], [5, 6, 7]]
    assert evictions(entries, 0, 1) == {0: "budget"}
    assert evictions(entries, 0, 2) == dict.fromkeys([1, 2, 3, 4], "budget")
    # The score is the place in the dialog.
    assert entries.terms["position"][0, 1].tolist()[1:5] == [0, 1, 2, 3]
    assert not entries.protected.any()


@pytest.mark.parametrize("bits", [24, 31, 52])
@pytest.mark.parametrize("sinks", [0, 1])
def test_the_newest_stay_however_long_the_dialog(sinks: int, bits: int) -> None:
    """Single precision would take two neighbours past place 2²⁴ for equals."""
    dialog = plain_dialog([[1] * 6, [1], [1], [1] * 5])
    place = np.concatenate([[0], 2**bits - 3 + np.arange(1, 13)])  # far behind the first
    policy = policy_named("sink", sinks=sinks)
    trace = simulate(policy, replace(dialog, positions=place[None]), budget=5)

    first = [0] if sinks else []
    for turn, last in enumerate([5, 6, 7, 12]):
        newest = range(last - 4 + sinks, last + 1)
        assert kept_tokens(trace, 0, turn) == [*first, *newest]
