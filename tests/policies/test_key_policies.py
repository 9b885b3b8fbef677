"""Policies that ask no query, worked by hand: keys, statistics, chance, and keeping all."""

import math

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import cache_bytes
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import all_entries, by_token, kept_tokens, plain_dialog, random_dialog


def scores(trace: Trace, turn: int) -> dict[int, float]:
    return by_token(all_entries(trace), all_entries(trace).score, 0, turn)


def keyed(keys: list[list[float]], values: list[list[float]] | None = None) -> DialogBatch:
    """Make a dialog of one turn with these keys, which are the queries too."""
    return one_dialog(
        embeddings=keys, queries=keys, keys=keys, values=values or keys, turn_lengths=[len(keys)]
    )


def test_keydiff_keeps_the_key_that_is_unlike_the_others() -> None:
    trace = simulate(policy_named("keydiff"), keyed([[2, 0], [5, 0], [0, 1]]), budget=1)

    # The anchor is (2, 1)/3, whatever the lengths.
    along, across = -2 / math.sqrt(5), -1 / math.sqrt(5)
    assert scores(trace, 0) == pytest.approx({0: along, 1: along, 2: across})
    assert kept_tokens(trace, 0, 0) == [2]


def test_knorm_keeps_the_shortest_keys() -> None:
    trace = simulate(policy_named("knorm"), keyed([[3, 4], [0, 1], [1, 1]]), budget=2)

    assert scores(trace, 0) == pytest.approx({0: -5, 1: -1, 2: -math.sqrt(2)})
    assert kept_tokens(trace, 0, 0) == [1, 2]


def test_expected_attention_weighs_mean_spread_and_values() -> None:
    # Queries 0 and 2: mean 1, variance 1. Logits k + k²/2 are 0 and 4; the values' lengths 5 and 1.
    policy = policy_named("expected-attention", sinks=0)
    trace = simulate(policy, keyed([[0], [2]], [[5], [-1]]), budget=1)

    total = 1 + math.exp(4)
    assert scores(trace, 0) == pytest.approx({0: 5 / total, 1: math.exp(4) / total}, rel=1e-5)
    assert kept_tokens(trace, 0, 0) == [1]


def test_expected_attention_leaves_the_sinks_out_and_keeps_them() -> None:
    policy = policy_named("expected-attention", sinks=1)
    trace = simulate(policy, keyed([[9], [0], [2]], [[1], [5], [1]]), budget=2)

    total = 1 + math.exp(4)
    expected = {0: 0, 1: 5 / total, 2: math.exp(4) / total}
    assert scores(trace, 0) == pytest.approx(expected, rel=1e-5)
    assert kept_tokens(trace, 0, 0) == [0, 2]


def test_random_keeps_every_entry_equally_often() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=400, seed=3)
    kept = simulate(policy_named("random"), dialogs, 32, entries=False, stop=2).kept_tokens[:, 1]
    often = np.bincount(kept.ravel(), minlength=64)

    # Of 64 entries 32 stay: each in half of the dialogs, with a standard deviation of 10.
    assert often.sum() == 400 * 32
    assert abs(often - 200).max() < 45
    assert 7 < often.std() < 13


def test_random_depends_on_its_seed_and_on_the_dialog() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=2, seed=3)
    one, other = (
        simulate(policy_named("random", chance_seed=seed), dialogs, 56) for seed in (0, 1)
    )

    assert (one.kept_tokens != other.kept_tokens).any()
    assert (one.kept_tokens[0] != one.kept_tokens[1]).any()


def test_random_may_evict_again_what_survived_before() -> None:
    dialog = random_dialog(0, [8] + [1] * 12)
    chance = all_entries(simulate(policy_named("random"), dialog, budget=8)).terms["chance"]

    oldest = chance[0, 1:, 0]
    assert len(np.unique(oldest)) == len(oldest)  # drawn anew in each turn


def test_the_full_cache_keeps_all_whatever_the_budget_and_its_memory_grows() -> None:
    dialog = plain_dialog([[1, 2], [3], [], [4, 5]])
    trace = simulate(policy_named("full"), dialog, budget=1)

    assert [kept_tokens(trace, 0, turn) for turn in range(4)] == [
        [0, 1],
        [0, 1, 2],
        [0, 1, 2],
        [0, 1, 2, 3, 4],
    ]
    assert not trace.evicted["budget"].any()
    sizes = [cache_bytes(trace, dialog, turn) for turn in range(4)]
    assert [size.keys + size.values for size in sizes] == [16, 24, 24, 40]
    assert sizes[-1].full_cache == 40
