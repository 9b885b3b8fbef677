"""FD-KVC with adaptive channel weights, worked by hand and beside FD-KVC."""

import numpy as np
import pytest

from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import EAST, NORTH, all_entries, by_token, pointing


def test_the_weights_shift_as_the_query_moves() -> None:
    dialog = pointing([EAST], [EAST], [NORTH])
    trace = simulate(policy_named("fd-kvc-adaptive", kappa=0.5, theta=0.5), dialog, budget=3)

    # What is recent points east: the cosine with the query is 1, then 0.
    assert trace.state["continuity"][0] == pytest.approx([0, 1 / 2, -1 / 2])
    assert trace.state["cumulative_weight"][0] == pytest.approx([0.45, 0.7, 0.2])
    entries = all_entries(trace)
    recency = by_token(entries, entries.channels["recency"], 0, 2)
    assert by_token(entries, entries.terms["recency"], 0, 2) == pytest.approx(
        {token: 0.8 * value for token, value in recency.items()}
    )


def test_without_a_shift_it_is_fd_kvc() -> None:
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)
    fixed, paper = (
        simulate(policy, dialogs, 56)
        for policy in (policy_named("fd-kvc-adaptive", kappa=0), policy_named("fd-kvc"))
    )

    np.testing.assert_array_equal(fixed.kept_tokens, paper.kept_tokens)
    np.testing.assert_allclose(fixed.output, paper.output, atol=1e-6)
    added_steps = {step.name for step in fixed.policy.steps if step not in paper.policy.steps}
    assert added_steps == {"Adaptive channel weights", "Eviction and insertion"}
