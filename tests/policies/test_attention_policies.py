"""Policies that decide by attention, worked by hand."""

import math

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import METRICS
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Status, Trace
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS
from tests.worlds import all_entries, by_token, evictions, kept_tokens


def weighed(turns: list[list[float]], queries: list[float] | None = None) -> DialogBatch:
    """Make a dialog whose tokens get attention in proportion to these weights.

    A query of 1 sees the weights as they are, a query of 0 sees all alike.
    """
    weights = [weight for turn in turns for weight in turn]
    keys = np.log(weights)[:, None]
    return one_dialog(
        embeddings=keys,
        queries=np.ones_like(keys) if queries is None else np.array(queries)[:, None],
        keys=keys,
        values=keys,
        turn_lengths=[len(turn) for turn in turns],
    )


def scores(trace: Trace, turn: int) -> dict[int, float]:
    return by_token(all_entries(trace), all_entries(trace).score, 0, turn)


def test_h2o_may_count_each_query_over_what_it_sees() -> None:
    trace = simulate(policy_named("h2o", queries="each"), weighed([[1, 3], [4]]), budget=3)

    # The first query sees its own token alone, the second both.
    assert scores(trace, 0) == pytest.approx({0: 1 + 1 / 4, 1: 3 / 4})
    assert scores(trace, 1) == pytest.approx({0: 5 / 4 + 1 / 8, 1: 3 / 4 + 3 / 8, 2: 4 / 8})


def test_h2o_mean_divides_by_the_queries_that_could_see_the_entry() -> None:
    dialog = weighed([[1, 3], [4]])
    by_turn = simulate(policy_named("h2o-mean"), dialog, budget=2)
    by_query = simulate(policy_named("h2o-mean", queries="each"), dialog, budget=3)

    assert scores(by_turn, 1) == pytest.approx(
        {0: (1 / 4 + 1 / 8) / 2, 1: (3 / 4 + 3 / 8) / 2, 2: 4 / 8}
    )
    assert evictions(all_entries(by_turn), 0, 1) == {0: "budget"}
    assert scores(by_query, 1) == pytest.approx(
        {0: (5 / 4 + 1 / 8) / 3, 1: (3 / 4 + 3 / 8) / 2, 2: 4 / 8}
    )


def test_tova_asks_the_last_query_only() -> None:
    # The first query of the second turn sees all alike; the last prefers token 1.
    trace = simulate(policy_named("tova"), weighed([[1, 3], [2, 2]], [1, 1, 0, 1]), budget=2)

    assert scores(trace, 1) == pytest.approx({0: 1 / 8, 1: 3 / 8, 2: 2 / 8, 3: 2 / 8})
    assert kept_tokens(trace, 0, 1) == [1, 2]  # of equals the older


def test_snapkv_pools_the_votes_of_the_window_and_protects_it() -> None:
    policy = policy_named("snapkv", window=0.25, kernel=3)
    trace = simulate(policy, weighed([[6, 1, 1, 8]]), budget=3)
    entries = all_entries(trace)

    # One query votes: 6, 1, 1 of 16 before the window; each place has the mean of three.
    expected = {0: 7 / 48, 1: 8 / 48, 2: 2 / 48, 3: 0}
    assert scores(trace, 0) == pytest.approx(expected, abs=1e-7)
    assert entries.token[0, 0, entries.protected[0, 0]].tolist() == [3]
    assert kept_tokens(trace, 0, 0) == [0, 1, 3]


def test_scissorhands_counts_how_often_attention_was_low() -> None:
    policy = policy_named("scissorhands", history=2, window=0)
    trace = simulate(policy, weighed([[1, 3], [1], [1], [2]]), budget=3)
    low = all_entries(trace).channels["low"]

    # Even shares are 1/2, 1/3 and 1/4: token 0 was low in each turn, token 1 in none.
    assert by_token(all_entries(trace), low, 0, 1) == {0: 0b11, 1: 0b00, 2: 0b1}
    assert scores(trace, 2) == {0: -2, 1: 0, 2: -2, 3: -1}
    assert evictions(all_entries(trace), 0, 2) == {2: "budget"}  # of equals the older stays
    assert scores(trace, 3) == {0: -2, 1: 0, 3: -2, 4: 0}


def test_an_even_share_is_not_low() -> None:
    trace = simulate(policy_named("scissorhands", window=0), weighed([[1] * 7]), budget=3)

    assert set(scores(trace, 0).values()) == {0}


@pytest.mark.parametrize(
    ("recovery", "structure", "chosen"),
    [(0.3, 0, {0}), (0.5, 1, {0, 1}), (0.7, 2, {0, 1, 4}), (0.95, 3, {0, 1, 2, 3, 4})],
)
def test_fastgen_takes_the_first_structure_that_holds_enough(
    recovery: float, structure: int, chosen: set[int]
) -> None:
    policy = policy_named("fastgen", recovery=recovery, sinks=1, frequent=0.4, local=0.2)
    trace = simulate(policy, weighed([[6, 5, 3, 2, 4]]), budget=5)
    member = all_entries(trace).terms["in the structure"]

    # Special: token 0 with 6/20; frequent adds token 1, 11/20; local adds token 4, 15/20.
    assert trace.state["structure"][0, 0] == structure
    assert trace.state["recovered"][0, 0] == pytest.approx([6 / 20, 11 / 20, 15 / 20, 1][structure])
    held = by_token(all_entries(trace), member, 0, 0)
    assert {token for token, value in held.items() if value} == chosen
    assert scores(trace, 0)[2] == pytest.approx((2 in chosen) + 0.5 * 3 / 6)


def test_the_oracle_keeps_what_will_be_attended_to() -> None:
    # Keys 0 and 1 are opposite; the second turn's query turns to the first of them.
    dialog = one_dialog(
        embeddings=[[1.0]] * 3,
        queries=[[1.0], [1.0], [-1.0]],
        keys=[[-math.log(3)], [math.log(3)], [0.0]],
        values=[[1.0]] * 3,
        turn_lengths=[2, 1],
    )
    trace = simulate(policy_named("oracle"), dialog, budget=1)

    # Now 1/10 and 9/10; later 9, 1 and 3 of 13.
    assert scores(trace, 0) == pytest.approx({0: 1 / 10 + 9 / 13, 1: 9 / 10 + 1 / 13})
    assert scores(trace, 1) == pytest.approx({1: 1 / 13, 2: 3 / 13})
    assert kept_tokens(trace, 0, 1) == [2]


def test_what_is_said_of_drawn_dialogs_is_so() -> None:
    for key in BENCHMARK_SCENARIOS:
        dialogs = generate(SCENARIOS[key], dialogs=5, seed=0)
        structure = simulate(policy_named("fastgen"), dialogs, 56, entries=False).state["structure"]
        assert (structure == 3).all()  # all

    shift = generate(SCENARIOS["shift"], dialogs=10, seed=0)
    status = all_entries(simulate(policy_named("h2o-mean"), shift, 56)).status
    assert not (status[:, 2:8] == Status.new).any()

    mixed = generate(SCENARIOS["mixed"], dialogs=10, seed=0)
    late, lost = (
        [METRICS[metric].late(simulate(policy_named(key), mixed, 56), mixed).mean() for key in two]
        for metric, two in (
            ("retention", ("knorm", "random")),
            ("attention_loss", ("knorm", "random")),
        )
    )
    assert late[0] < late[1] - 0.1
    assert lost[0] == pytest.approx(lost[1], abs=0.02)
