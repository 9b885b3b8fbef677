"""H2O, worked by hand."""

import math

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import stack
from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from tests.worlds import all_entries, by_token, evictions, kept_tokens, plain_dialog


def test_attention_adds_up_and_what_is_evicted_is_forgotten() -> None:
    # With h = 4 a logit is half the product: token 0 weighs 3, token 3 weighs 4, the others 1.
    keys = np.zeros((4, 4))
    keys[:, 0] = [2 * math.log(weight) for weight in (3, 1, 1, 4)]
    values = np.array([[1.0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 1.0, 0, 0]])
    dialog = one_dialog(
        embeddings=keys,
        queries=np.tile([1.0, 0, 0, 0], (4, 1)),
        keys=keys,
        values=values,
        turn_lengths=[2, 1, 1],
    )
    trace = simulate(policy_named("h2o"), dialog, budget=2)
    entries = all_entries(trace)

    first, second, third = (by_token(entries, entries.score, 0, turn) for turn in range(3))
    assert first == pytest.approx({0: 3 / 4, 1: 1 / 4})
    # Token 2 is the window of one, protected; of the others token 0 has the larger sum.
    assert second == pytest.approx({0: 3 / 4 + 3 / 5, 1: 1 / 4 + 1 / 5, 2: 1 / 5})
    assert evictions(entries, 0, 1) == {1: "budget"}
    assert entries.token[0, 1, entries.protected[0, 1]].tolist() == [2]
    assert third == pytest.approx({0: 27 / 20 + 3 / 8, 2: 1 / 5 + 1 / 8, 3: 1 / 2})
    assert kept_tokens(trace, 0, 2) == [0, 3]
    assert trace.output[0, 2] == pytest.approx([3 / 7, 4 / 7, 0, 0])


@pytest.mark.parametrize(
    ("window", "kept"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 2, 7]), (1.0, [4, 5, 6, 7])]
)
def test_the_window_is_a_share_of_the_budget(window: float, kept: list[int]) -> None:
    # The older a token the more attention it has gathered, since all are alike.
    dialog = plain_dialog([[1] * 4, [1] * 2, [1] * 2])

    trace = simulate(policy_named("h2o", window=window), dialog, budget=4)

    assert kept_tokens(trace, 0, 2) == kept


def test_a_short_turn_forgets_beside_a_long_one_as_it_does_alone() -> None:
    policy = policy_named("h2o", forgetting=0.5, queries="each")
    short, long = plain_dialog([[1, 2], [3]]), plain_dialog([[1, 2], [3, 1, 2]])
    alone, beside = (
        all_entries(simulate(policy, dialogs, 4)) for dialogs in (short, stack([short, long]))
    )

    for turn in range(2):
        sums = [by_token(run, run.channels["cumulative"], 0, turn) for run in (alone, beside)]
        assert sums[0] == pytest.approx(sums[1])
