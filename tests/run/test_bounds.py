"""The exact bounds against exhaustive search and every policy."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import product
from subprocess import Popen
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Demand, Mention, TooLargeError, Transcript, Turn
from fdkvc.dialogs import DialogBatch
from fdkvc.experiments.benchmark import Benchmark
from fdkvc.limits import MAX_TURNS
from fdkvc.policies import POLICIES, Policy, policy_named
from fdkvc.run import bounds
from fdkvc.run.bounds import (
    best_schedule,
    check_schedule,
    least_attention_loss,
    most_evidence,
)
from fdkvc.run.evidence import Demands
from fdkvc.run.metrics import attention_loss, metric_named
from fdkvc.run.simulate import simulate
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from tests.worlds import policies, ragged

SMALL = World(tokens_per_turn=8, dimension=16, head_dimension=4, topic_strength=3)
BOUNDED = [
    key for key in POLICIES if policy_named(key).bounded and not policy_named(key).reads_afresh
]
"""Those that hold no more than the budget; what reads afresh stores everything."""


def schedules(turns: int, born: list[int], budget: int) -> Iterator[np.ndarray]:
    """Yield everything that a cache could hold: every token dropped after any turn or at once."""
    for ends in product(*(range(birth, turns + 1) for birth in born)):
        held = np.array(
            [[birth <= turn < end for birth, end in zip(born, ends, strict=True)]
             for turn in range(turns)]
        )  # fmt: skip
        if held.sum(axis=1).max() <= budget:
            yield held


@settings(max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.integers(1, 4), st.data())
def test_exhaustive_search_finds_nothing_better(
    births: list[int], budget: int, data: st.DataObject
) -> None:
    born, turns = sorted(births), 4
    seed = data.draw(st.integers(0, 2**16))
    worth = np.random.default_rng(seed).integers(0, 6, (turns, len(born))).astype(np.float32)
    worth[np.arange(turns)[:, None] < born] = 0

    held = best_schedule(worth, np.array(born), budget)

    assert held.sum(axis=1).max() <= budget
    assert not held[np.arange(turns)[:, None] < born].any()
    dropped = ~held[:-1] & (np.arange(turns - 1)[:, None] >= born)
    assert not (dropped & held[1:]).any()  # what was dropped does not come back
    most = max(float(worth[each].sum()) for each in schedules(turns, born, budget))
    assert worth[held].sum() == most


@settings(max_examples=20)
@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(2, 12))
def test_a_linear_programme_finds_nothing_better(seed: int, budget: int, turns: int) -> None:
    random = np.random.default_rng(seed)
    born = np.sort(random.integers(0, turns, size=60))
    worth = random.exponential(size=(turns, 60)).astype(np.float32) ** 3
    alive = np.arange(turns)[:, None] >= born
    worth[~alive] = 0

    held = best_schedule(worth, born, budget)

    # What is held of each token at the end of each turn: no more than the turn before, and in a
    # turn no more than the budget.
    older = np.arange(turns * 60).reshape(turns, 60)[1:][alive[:-1]]
    rows = np.zeros((len(older) + turns, turns * 60))
    rows[np.arange(len(older)), older] = 1
    rows[np.arange(len(older)), older - 60] = -1
    rows[-turns:] = np.kron(np.eye(turns), np.ones(60))
    most = np.repeat([0.0, budget], [len(older), turns])
    lost = linprog(-worth.ravel(), A_ub=rows, b_ub=most, bounds=(0, 1)).fun
    assert lost is not None
    assert held.sum(axis=1).max() <= budget
    assert not (held & ~alive).any()
    assert not (~held[:-1] & alive[:-1] & held[1:]).any()
    np.testing.assert_allclose(worth[held].sum(dtype=float), -lost, rtol=1e-6)


@pytest.mark.parametrize(("turns", "tokens", "budget"), [(256, 2**16, 512), (512, 2**16, 64)])
def test_a_schedule_of_too_many_steps_is_refused_before_anything_is_allocated(
    turns: int, tokens: int, budget: int
) -> None:
    worth = np.broadcast_to(np.float32(1), (turns, tokens))
    born = np.broadcast_to(np.intp(0), tokens)
    tracemalloc.start()

    with pytest.raises(ValueError, match=r"^regret would take 33,554,432 steps here, but at most"):
        best_schedule(worth, born, budget)

    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    with pytest.raises(ValueError, match="regret would take"):  # before it is drawn, too
        Benchmark((custom_scenario("A" * 512),), metrics=("regret",), budget=65)
    check_schedule(512, 2**14, 56)
    check_schedule(512, 2**14, 2**14)  # with room for all there is nothing to search


def test_the_longest_schedule_does_not_overflow() -> None:
    worth = np.ones((MAX_TURNS, 3), np.float32)
    worth[:, 1] = 0.5

    held = best_schedule(worth, np.zeros(3, np.intp), budget=2)

    assert held.all(axis=0).tolist() == [True, False, True]


def test_greedy_is_not_optimal() -> None:
    # Greedy keeps what is worth most in all from now on: token 0, with 3 to come. It then has no
    # place for token 2. Better to hold token 1 first and token 2 after it.
    worth = np.array([[1, 2, 0], [2, 0, 4]], np.float32)

    held = best_schedule(worth, np.array([0, 0, 1]), budget=1)

    assert held.tolist() == [[False, True, False], [False, False, True]]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_no_policy_that_keeps_to_the_budget_is_below_the_bound(scenario: str) -> None:
    dialogs = generate(SCENARIOS[scenario], dialogs=2, seed=4, world=SMALL)
    least = least_attention_loss(dialogs, 14).mean(axis=1, dtype=float)

    losses = {
        key: attention_loss(simulate(policy_named(key), dialogs, 14, entries=False), dialogs)
        for key in BOUNDED
    }
    for key, loss in losses.items():
        assert (loss.mean(axis=1, dtype=float) >= least - 1e-6).all(), key
    # Those that know more lose less; the greedy oracle comes close to the bound.
    gap = losses["oracle"].mean(axis=1, dtype=float) - least
    assert (gap < 0.5 * (losses["random"].mean(axis=1, dtype=float) - least)).all()


@settings(max_examples=25)
@given(policies(BOUNDED), ragged(), st.integers(1, 12))
def test_regret_is_never_negative(policy: Policy, batch: DialogBatch, budget: int) -> None:
    trace = simulate(policy, batch, budget, entries=False)
    regret = metric_named("regret").late(trace, batch)

    assert (np.isnan(regret) if trace.tier.size else regret >= -1e-5).all()


def test_with_room_for_all_nothing_is_lost() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=1, world=SMALL)

    np.testing.assert_allclose(least_attention_loss(dialogs, 80), 0, atol=1e-6)


def test_a_budget_below_1_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^budget is 0, but must be a whole number of at least 1"):
        best_schedule(np.ones((1, 1), np.float32), np.zeros(1, np.intp), 0)


# ------------------------------------------------------------------------------- evidence


def demanding(seed: int) -> Recording:
    """Draw a dialog of a few words, and calls that need some of them."""
    random = np.random.default_rng(seed)
    turns = tuple(Turn("User", "a b c d"[: 2 * int(random.integers(1, 5)) - 1]) for _ in range(5))
    demands = []
    for turn in sorted(random.integers(1, 6, size=4).tolist()):
        mentions = set()
        for _ in range(int(random.integers(1, 4))):
            at = int(random.integers(turn))
            start = 2 * int(random.integers((len(turns[at].text) + 1) // 2))
            end = start + int(random.choice([1, 3]))
            mentions.add(Mention(at, start, min(end, len(turns[at].text))))
        source = str(random.choice(["One", "Two"]))
        demands.append(Demand("call", turn, source, "slot", "value", tuple(sorted(mentions))))
    return lexical_recording(Transcript("own", turns, tuple(demands)))


def best_by_trying(recording: Recording, budget: int, asked: Demands) -> float:
    """Try every choice of a mention, or none, for every demand."""
    weights = asked.weights([demand for demand, _ in recording.evidence])
    born = [turn for turn, tokens in enumerate(recording.tokens) for _ in tokens]
    best = 0.0
    for choice in product(*([None, *mentions] for _, mentions in recording.evidence)):
        until: dict[int, int] = {}
        for (demand, _), mention in zip(recording.evidence, choice, strict=True):
            for token in mention or ():
                until[token] = max(until.get(token, 0), demand.turn - 1)
        most = max(
            sum(born[token] <= turn <= last for token, last in until.items()) for turn in range(5)
        )
        if most <= budget:
            met = [mention is not None for mention in choice]
            best = max(best, float(weights @ np.array(met)))
    return best


def test_the_most_evidence_is_what_trying_everything_finds() -> None:
    asked = Demands("call")
    found = [
        (most_evidence(recording, budget, asked), best_by_trying(recording, budget, asked))
        for recording in map(demanding, range(25))
        for budget in (1, 2, 3)
    ]

    most, tried = np.transpose(found)
    np.testing.assert_allclose(most, tried, atol=1e-9)
    assert ((tried > 0) & (tried < 1)).sum() > 25
    assert np.isnan(most_evidence(demanding(0), 3, Demands("state")))
    with pytest.raises(ValueError, match="budget is 0, but must be a whole number of at least 1"):
        most_evidence(demanding(0), 0, asked)


def repeating(words: int, demands: int) -> Recording:
    """Return seven turns of one word, and calls of 1, 2, … of it, each mentioned in every turn."""
    turns = tuple(Turn("User", "q " * words) for _ in range(7))
    asked = tuple(
        Demand("call", 7, "f", f"s{n}", "v", tuple(Mention(turn, 0, 2 * n) for turn in range(7)))
        for n in range(1, demands + 1)
    )
    return lexical_recording(Transcript("own", (*turns, Turn("User", "q")), asked))


def test_the_most_evidence_of_too_many_terms_is_refused_before_any_is_built() -> None:
    recording = repeating(1000, 450)
    assert len(recording.needed) == 450
    tracemalloc.start()

    with pytest.raises(TooLargeError, match="too large to compute the best cache"):
        most_evidence(recording, 32, Demands("call"))

    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()
    assert most_evidence(recording, 1000, Demands("call")) == 1  # all fit: nothing to search


def test_the_search_for_the_most_evidence_ends_at_its_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 1e-9)

    with pytest.raises(TooLargeError, match="too long"):
        most_evidence(repeating(60, 12), 8, Demands("call"))


def test_a_large_programme_is_solved_in_a_child_process_to_the_same_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recording, asked = demanding(7), Demands("call")
    here = most_evidence(recording, 2, asked)
    children: list[Popen[bytes]] = []

    def popen(*args: Any, **options: Any) -> Popen[bytes]:
        children.append(Popen(*args, **options))
        return children[-1]

    monkeypatch.setattr(bounds, "Popen", popen)
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 60)  # however busy the machine is
    monkeypatch.setattr(bounds, "MAX_INLINE_BOUND_TERMS", 0)

    assert 0 < here < 1
    assert most_evidence(recording, 2, asked) == here
    assert [child.returncode for child in children] == [0]


def test_a_child_process_that_overruns_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_INLINE_BOUND_TERMS", 0)
    monkeypatch.setattr(bounds, "MAX_BOUND_SECONDS", 0.01)
    monkeypatch.setattr(bounds, "_SOLVER", "import time; time.sleep(600)")

    with pytest.raises(TooLargeError, match="too long"):
        most_evidence(demanding(7), 2, Demands("call"))
