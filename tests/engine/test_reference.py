"""The oracle against dialogs worked by hand."""

import math

import pytest

from tests.reference import DEFAULTS, POLICIES, Dialog, Turn, best, run


def positions_only(policy: str, budget: int, turns: list[list[int]]) -> list[Turn]:
    """Run tokens that are all alike, for policies that look at positions alone."""
    alike = [[1.0] for turn in turns for _ in turn]
    return run(policy, {}, budget, Dialog(turns, alike, alike, alike, alike))


def test_fifo_keeps_the_newest() -> None:
    first, second = positions_only("fifo", 3, [[0, 1], [2, 3]])

    assert (first.kept, first.evicted, first.margin) == ([0, 1], {}, math.inf)
    assert (second.kept, second.evicted, second.margin) == ([1, 2, 3], {0: "budget"}, 1.0)
    assert second.before == second.after == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3})
    assert second.output == pytest.approx([1.0])
    assert second.states == {}


def test_sink_keeps_the_first_tokens_of_the_dialog_and_the_newest() -> None:
    turns = positions_only("sink", 6, [[0, 1, 2], [3, 4, 5], [6, 7, 8, 9, 10, 11, 12]])

    assert [turn.kept for turn in turns] == [[0, 1, 2], [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 11, 12]]
    assert [turn.protected for turn in turns] == [{0, 1, 2}, {0, 1, 2, 3}, {0, 1, 2, 3}]
    assert sorted(turns[2].evicted) == [4, 5, 6, 7, 8, 9, 10]
    assert turns[2].margin == 1.0

    (narrow,) = positions_only("sink", 2, [[0, 1, 2, 3]])
    assert (narrow.kept, narrow.margin) == ([0, 1], math.inf)


def test_h2o_sums_attention_and_forgets_the_evicted() -> None:
    # With d = 4 the logits are half the products: token 0 weighs 3, token 3 weighs 4, others 1.
    keys = [[2 * math.log(weight), 0.0, 0.0, 0.0] for weight in (3, 1, 1, 4)]
    queries = [[1.0, 0.0, 0.0, 0.0]] * 4
    values = [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    turns = run("h2o", {}, 2, Dialog([[0, 1], [2], [3]], keys, queries, keys, values))

    assert turns[0].scores == pytest.approx({0: 3 / 4, 1: 1 / 4})
    # Token 2 is the protected window of one; of the rest token 0 has the larger sum.
    assert turns[1].scores == pytest.approx({0: 3 / 4 + 3 / 5, 1: 1 / 4 + 1 / 5, 2: 1 / 5})
    assert (turns[1].kept, turns[1].evicted, turns[1].protected) == ([0, 2], {1: "budget"}, {2})
    assert turns[1].margin == pytest.approx((1 + 1.5e-6) * 27 / 20 - 9 / 20)
    assert turns[1].after == pytest.approx({0: 3 / 4, 2: 1 / 4})
    assert turns[2].scores == pytest.approx({0: 27 / 20 + 3 / 8, 2: 1 / 5 + 1 / 8, 3: 1 / 2})
    assert turns[2].kept == [0, 3]
    assert turns[2].output == pytest.approx([3 / 7, 4 / 7])


def fd_kvc_dialog(tau: float) -> list[Turn]:
    """Run three turns of one token each; the cosine of tokens 0 and 2 with token 1 is 3/5."""
    return run(
        "fd-kvc",
        {"gamma": 0.5, "alpha_0": 0.4, "mu": 1.0, "tau": tau, "beta": 1.0, "w_c": 0.5},
        2,
        Dialog(
            [[0], [1], [2]],
            embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]],
            queries=[[1.0]] * 3,
            keys=[[math.log(3)], [0.0], [0.0]],
            values=[[1.0, 0.0], [5.0, 5.0], [0.0, 1.0]],
        ),
    )


def test_fd_kvc_follows_algorithm_1() -> None:
    first, second, third = fd_kvc_dialog(tau=0.5)

    assert first.channels == {0: {"cumulative": 1.0, "recency": pytest.approx(1.0)}}
    assert first.states == {"ownership_loss": 0.0, "learning_rate": 0.4}

    # A single old entry is its own minimum, so it is not reinforced: rho = 1 * 0.5.
    assert second.channels[0] == pytest.approx({"cumulative": 2.0, "recency": 0.5})
    assert second.channels[1] == pytest.approx({"cumulative": 1.0, "recency": 1.0})
    assert second.states == pytest.approx({"ownership_loss": 0.0, "learning_rate": 0.4})

    # Attention 3/4 and 1/4; relevance 1 and 0. Hybrid scores 33/40 and 21/44.
    assert third.channels[0] == pytest.approx({"cumulative": 2.75, "recency": 0.65})
    assert third.channels[1] == pytest.approx({"cumulative": 1.25, "recency": 0.5})
    assert third.channels[2] == pytest.approx({"cumulative": 1.0, "recency": 1.0})
    assert third.terms[1] == pytest.approx({"cumulative": 5 / 22, "recency": 1 / 4})
    assert third.scores == pytest.approx({0: 33 / 40, 1: 21 / 44, 2: 15 / 22})
    loss = (70 / 121) * (51 / 121) / 2
    rate = pytest.approx(0.4 / (1 + loss))
    assert third.states == {"ownership_loss": pytest.approx(loss), "learning_rate": rate}
    assert (third.kept, third.evicted, third.protected) == ([0, 2], {1: "budget"}, set())
    # Nearest decision: token 1 stayed above the threshold 33/80 by less than it lost the budget.
    assert third.margin == pytest.approx(21 / 44 - 33 / 80)

    # Modulation multiplies 3/4 by 0.825 and 1/4 by 1.
    assert third.before == pytest.approx({0: 3 / 4, 2: 1 / 4})
    assert third.after == pytest.approx({0: 99 / 139, 2: 40 / 139})
    assert third.output == pytest.approx([99 / 139, 40 / 139])


def test_fd_kvc_threshold_evicts_before_new_tokens_come_in() -> None:
    third = fd_kvc_dialog(tau=0.6)[2]

    assert (third.kept, third.evicted) == ([0, 2], {1: "threshold"})
    assert third.scores == pytest.approx({0: 33 / 40, 2: 15 / 22})
    assert third.margin == pytest.approx(0.6 * 33 / 40 - 21 / 44)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_turn_without_tokens_changes_nothing(policy: str) -> None:
    vectors = [[1.0, 0.2], [0.3, 1.0], [0.5, -0.4], [0.1, 0.9]]
    with_gaps, without = (
        run(policy, {}, 2, Dialog(turns, *[vectors] * 4, surprisal=[1.0, 3.0, 2.0, 4.0]))
        for turns in ([[], [0, 1, 2], [], [3]], [[0, 1, 2], [3]])
    )

    assert (with_gaps[0].kept, with_gaps[0].output) == ([], [0.0, 0.0])
    assert with_gaps[0].states.get("learning_rate") == DEFAULTS[policy].get("alpha_0")
    assert [with_gaps[1], with_gaps[3]] == without
    assert with_gaps[2].kept == with_gaps[1].kept
    assert with_gaps[2].after == with_gaps[1].after
    assert with_gaps[2].output == with_gaps[1].output
    assert with_gaps[2].states == with_gaps[1].states
    assert (with_gaps[2].evicted, with_gaps[2].margin) == ({}, math.inf)


def test_of_equals_the_older_stays() -> None:
    alike = Dialog([[0, 1, 2]], *[[[1.0]] * 3] * 4)
    (h2o,) = run("h2o", {}, 1, alike)
    (fd_kvc,) = run("fd-kvc", {}, 2, alike)

    assert (h2o.kept, h2o.margin) == ([0], math.inf)  # age decided, and no score
    assert (fd_kvc.kept, fd_kvc.margin) == ([0, 1], math.inf)


def test_of_entries_that_are_about_as_good_the_older_stays() -> None:
    # Token 1 is better than token 0 by less than a tie, token 2 by more; token 3 is worse.
    scores = {0: 2.0, 1: 2.000003, 2: 2.00001, 3: 1.9}

    kept, evicted, margin = best(scores, set(), 2, (2e-6, 0.0))

    assert (kept, evicted) == ([0, 2], [1, 3])
    assert margin == pytest.approx(4e-6 - 3e-6, rel=1e-3)
    assert best(scores, {1}, 2, (2e-6, 0.0))[0] == [1, 2]
    assert best(scores, set(), 2, (0.0, 0.0))[:2] == ([1, 2], [0, 3])
