"""Scores that differ by rounding alone are equal, wherever they are compared."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.attention import Floats, Observation
from fdkvc.core.cache import Cache, Ties, top_k
from fdkvc.engine.simulate import simulate
from fdkvc.explain.decisions import explain
from fdkvc.policies import POLICIES, policy_named
from fdkvc.policies.base import EVICTION, Policy
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests import reference
from tests.worlds import kept_tokens, oracle, plain_dialog

A_LITTLE = 1 + 2**-23
"""The next number after 1 in single precision."""

NEAR = 3e-6
"""Scores that are nearer to the cutoff may tie with it: as a share of it, if it is above 1."""


@dataclass(frozen=True)
class TwoTerms(Policy):
    """What a key's two numbers add up to."""

    key = "two-terms"
    label = "Two terms"
    steps = (EVICTION,)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        keys = turn.keys(cache.token)
        return {"one": keys[:, :, 0], "other": keys[:, :, 1]}


def test_a_term_decides_if_with_it_the_entry_would_have_tied() -> None:
    keys = [[0.0, 1.0], [1.0, A_LITTLE]]
    dialog = one_dialog(embeddings=keys, queries=keys, keys=keys, values=keys, turn_lengths=[2])
    trace = simulate(TwoTerms(), dialog, budget=1)

    # With 1 in place of 0 token 0 would be behind by rounding alone, and it is the older.
    assert explain(trace, dialog, 0, 0, token=0).deciding_terms == ("one",)


@pytest.mark.parametrize("key", POLICIES)
def test_scores_tie_within_a_stated_distance(key: str) -> None:
    cutoff = np.array([[0.0], [0.5], [1.0], [40.0]], np.float32)
    reach = policy_named(key).ties.tolerance(cutoff)

    assert (reach <= np.float32(NEAR) * np.maximum(cutoff, 1)).all()


@pytest.mark.parametrize(
    ("scenario", "number"), [("shift", 96), ("mixed", 112), ("complex", 20), ("gradual", 0)]
)
def test_beyond_it_decisions_are_those_of_double_precision(
    scenario: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "TIES", dict.fromkeys(reference.TIES, (0.0, 0.0)))
    monkeypatch.setattr(reference, "RELATIVE", (0.0, 0.0))
    dialogs = generate(SCENARIOS[scenario], range(number, number + 1))
    otherwise = 0
    for key in ("fd-kvc", "h2o"):
        trace = simulate(policy_named(key), dialogs, budget=56)
        for at, turn in enumerate(oracle(dialogs, 0, trace.policy, 56)):
            if kept_tokens(trace, 0, at) != turn.kept:
                otherwise += 1
                assert distance(turn, 56) <= NEAR
                break  # what follows is another cache
    assert otherwise == (scenario != "gradual")


def distance(turn: reference.Turn, budget: int) -> float:
    """Return how far the nearest other score is from the cutoff, as a share of it above 1."""
    free = sorted(turn.scores[token] for token in turn.scores.keys() - turn.protected)[::-1]
    cutoff = free[budget - len(turn.protected) - 1]
    return min(abs(score - cutoff) for score in free if score != cutoff) / max(cutoff, 1)


def test_a_threshold_leaves_what_ties_with_it() -> None:
    score = np.array([[1, 1 - 2**-24, 0.9, 2]], np.float32)
    dialog, nothing = plain_dialog([[1.0] * 4]), np.zeros_like(score)
    channels = {"cumulative": nothing, "recency": nothing}
    cache = Cache(np.arange(4)[None], channels, {"learning_rate": nothing[:, 0]})

    update = policy_named("fd-kvc", tau=0.5).update(cache, dialog.observe(0), lambda _: score)

    assert update.stale is not None
    assert update.stale.tolist() == [[False, False, True, False]]


def test_the_best_are_told_row_by_row_and_ties_go_to_the_older() -> None:
    score = np.array([[1, A_LITTLE, 3, 9], [5, 4, 3, 9]], np.float32)
    cache = Cache(np.array([[0, 1, 2, -1], [0, 1, 2, 3]]))

    marked = top_k(score, cache, np.array([[2], [0]]), Ties())

    assert marked.tolist() == [[True, False, True, False], [False] * 4]
    assert top_k(score, cache, np.array([[9], [3]]), Ties()).tolist() == [
        [True, True, True, False],
        [True, True, False, True],
    ]


@pytest.mark.parametrize("nudge", [1 - 2**-23, 1, A_LITTLE])
def test_rounding_does_not_move_who_is_frequent(nudge: float) -> None:
    """Of four alike, whose attention some processor rounds up or down, the older are frequent."""
    turn = _alike(nudge)
    policy = policy_named("fastgen", frequent=0.5, local=0.0, sinks=0, recovery=0.25)

    assert policy.after_insert(_nothing_yet(turn), turn)["chosen"].tolist() == [[1, 1, 0, 0]]


def test_a_structure_that_holds_enough_but_for_rounding_is_taken() -> None:
    policy = policy_named("fastgen", frequent=0.5, local=0.0, sinks=0, recovery=0.5)
    turn = _alike(1 + 2**-22)

    assert policy.after_insert(_nothing_yet(turn), turn).state["structure"].tolist() == [1]


def _nothing_yet(turn: Observation) -> Cache:
    """Return the turn's tokens with nothing remembered of them."""
    zero, none = np.zeros((1, 4), np.float32), np.zeros(1, np.float32)
    return Cache(
        turn.new, {"cumulative": zero, "chosen": zero}, {"structure": none, "recovered": none}
    )


def _alike(nudge: float) -> Observation:
    """Return a turn of four tokens that are alike but for the last, by so little."""
    keys = [[1.0], [1.0], [1.0], [nudge]]
    ones = [[1.0]] * 4
    return one_dialog(
        embeddings=ones, queries=ones, keys=keys, values=ones, turn_lengths=[4]
    ).observe(0)
