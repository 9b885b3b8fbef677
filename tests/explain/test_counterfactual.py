"""Counterfactuals: worked by hand, verified by running them, and their search on odd settings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pytest

from fdkvc.core.attention import Bools, Floats, Observation
from fdkvc.core.cache import Cache
from fdkvc.core.dialogs import DialogBatch, stack
from fdkvc.core.parameters import parameter
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Trace
from fdkvc.explain.counterfactual import INSIDE, Change, NotRepeated, counterfactual, nearest_first
from fdkvc.policies import POLICIES, Policy, policy_named, read_policy, wrapped
from fdkvc.policies.together import Together
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.explain.test_explain import fd_kvc
from tests.explain.test_worked import three_turns
from tests.worlds import all_entries, evictions, kept_tokens, plain_dialog, random_dialog


def by_name(changes: list[Change]) -> dict[str, Change]:
    return {change.name: change for change in changes}


def test_changes_worked_by_hand() -> None:
    # Token 1 scores w_c·5/11 + (1 − w_c)·γ and needs token 2's w_c·4/11 + (1 − w_c): with
    # w_c = 1/2 that takes γ ≥ 10/11, with γ = 1/2 it takes w_c ≥ 11/13.
    dialogs = three_turns()
    trace = simulate(fd_kvc(tau=0.0), dialogs, budget=2)

    changes = by_name(counterfactual(trace, dialogs, 0, turn=2, token=1))

    paper = ["gamma", "alpha_0", "mu", "tau", "beta", "w_c"]
    assert list(changes) == [*paper, "budget"]
    assert (changes["gamma"].current_value, changes["gamma"].reversing_value) == (0.5, 0.91)
    assert changes["gamma"].share == pytest.approx(0.41)
    assert changes["w_c"].reversing_value == 0.847
    assert (changes["budget"].reversing_value, changes["budget"].share) == (3, 1.0)
    for name in ("alpha_0", "mu", "tau", "beta"):
        change = changes[name]
        assert (change.reversing_value, change.share) == (None, None)
    ordered = [change.name for change in nearest_first(changes[name] for name in paper)]
    assert ordered == ["w_c", "gamma", "alpha_0", "mu", "tau", "beta"]


@lru_cache(maxsize=512)
def kept_with(trace: Trace, dialogs: DialogBatch, name: str, value: float) -> set[int]:
    """Run the whole dialog with one setting changed; what is cached in the last turn?"""
    policy, budget = trace.policy, trace.budget
    if name == "budget":
        budget = int(value)
    else:
        policy = policy.variant(**{name: value})
    run = simulate(policy, dialogs, budget, entries=False, outputs_from=dialogs.turns)
    return {*kept_tokens(run, 0, -1)}


def grid(change: Change) -> list[float]:
    """Return every value that is promised to have been tried, the nearest first."""
    values = [
        round(change.current_value + way * steps * change.step, 12)
        for steps in range(1, math.ceil((change.high - change.low) / change.step) + 1)
        for way in (1, -1)
    ]
    return [value for value in values if change.low < value < change.high]


@pytest.mark.long
@pytest.mark.parametrize("key", [key for key in POLICIES if policy_named(key).bounded])
@pytest.mark.parametrize("seed", range(3))
def test_the_change_turns_the_decision_and_no_nearer_one_does(
    monkeypatch: pytest.MonkeyPatch, key: str, seed: int
) -> None:
    # Wider steps than are taken by default: there are several rings of them all the same, and
    # those of what runs one by one are halved.
    monkeypatch.setattr("fdkvc.explain.counterfactual.FINE", 250)
    monkeypatch.setattr("fdkvc.explain.counterfactual.COARSE", 10)
    dialogs = random_dialog(seed, [9, 8, 10, 9, 8])
    trace = simulate(policy_named(key), dialogs, budget=15)
    gone = sorted(evictions(all_entries(trace), 0, 4))
    turning_changes = 0
    kept = kept_tokens(trace, 0, 4)  # after a context shift only some
    for token in (gone[-seed], kept[min(5 * seed, len(kept) - 1)]):
        evicted = token in gone
        every = counterfactual(trace, dialogs, 0, 4, token)
        changes = [result for result in every if not isinstance(result, NotRepeated)]
        for change in changes:
            assert change.keeps == evicted
            nearer, after = grid(change), change.reversing_value
            if after is not None:
                turning_changes += 1
                assert change.low <= after <= change.high
                assert (token in kept_with(trace, dialogs, change.name, after)) == evicted
                size = abs(after - change.current_value)
                nearer = [
                    candidate
                    for candidate in nearer
                    if abs(candidate - change.current_value) < size - 1e-9
                ]
            tried = nearer[:1] + nearer[seed :: len(nearer) // 4 + 1] + nearer[-2:]
            for value in tried:
                assert (token in kept_with(trace, dialogs, change.name, value)) != evicted
        assert changes[-1].name == "budget"
        if evicted:
            assert changes[-1].reversing_value is not None, (
                "a cache for everything keeps everything"
            )
    assert turning_changes


@pytest.mark.parametrize("name", ["window(tova)", "scissorhands queries=each", "window(snapkv)"])
def test_each_value_of_a_policy_that_looks_at_each_query_sees_the_attention(name: str) -> None:
    dialogs = random_dialog(0, [9, 8, 10, 9, 8])
    trace = simulate(read_policy(name), dialogs, budget=15)
    for token in kept_tokens(trace, 0, 4):
        changes = counterfactual(trace, dialogs, 0, 4, token)
        for change in changes:
            if change.reversing_value is not None:
                after = kept_with(trace, dialogs, change.name, change.reversing_value)
                assert token not in after, change.words


def test_a_budget_that_keeps_an_entry_is_found_where_a_page_is_not_full() -> None:
    # Of the nine pages of 44 tokens the last has four, but takes five places: 45 hold all.
    dialogs = random_dialog(0, [9, 8, 10, 9, 8])
    trace = simulate(read_policy("blocks(random, size=5)"), dialogs, budget=15)

    budget = counterfactual(trace, dialogs, 0, 4, 30)[-1]

    assert (budget.name, budget.reversing_value, budget.high) == ("budget", 45, 48)


def test_a_narrow_range_of_values_near_the_present_one_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "fdkvc.explain.counterfactual.COARSE", 5
    )  # of what runs one by one, and slowly
    dialogs = generate(SCENARIOS["complex"], seed=33)
    trace = simulate(policy_named("fd-kvc"), dialogs, budget=56)
    policy = trace.policy

    best = nearest_first(counterfactual(trace, dialogs, 0, turn=13, token=326))[0]

    assert (best.name, best.reversing_value) == ("gamma", 0.892)
    for gamma, kept in ((0.891, False), (0.892, True), (0.898, True), (0.899, False)):
        run = simulate(policy.variant(gamma=gamma), dialogs, 56, entries=False, stop=14)
        assert (326 in run.kept_tokens[0, 13]) == kept


def test_a_change_has_the_name_and_the_numbers_of_the_page() -> None:
    dialogs = generate(SCENARIOS["mixed"], seed=7)
    trace = simulate(policy_named("fd-kvc"), dialogs, budget=56)
    gamma = by_name(counterfactual(trace, dialogs, 0, 3, 9))["gamma"]
    assert gamma.label == trace.policy.settings["gamma"].title == "Recency decay (γ)"
    assert "kept with recency decay (γ) at " in gamma.words

    budget = Change("budget", "Budget", 1980, 12_000, 1, 20_000, 1)
    assert budget.words.endswith("with budget at 12,000 instead of 1,980.")


def test_what_a_run_does_not_read_and_what_is_no_dial_is_not_searched() -> None:
    dialogs = random_dialog(2, [9, 8, 10])
    trace = simulate(policy_named("fd-kvc"), dialogs, budget=15)
    (token, *_) = evictions(all_entries(trace), 0, 2)
    unread = [c.name for c in counterfactual(trace, dialogs, 0, 2, token) if not c.is_read]
    assert unread == ["beta"]

    chance = simulate(policy_named("random"), dialogs, budget=15)
    (token, *_) = evictions(all_entries(chance), 0, 2)
    assert list(by_name(counterfactual(chance, dialogs, 0, 2, token))) == ["budget"]


def test_an_earlier_eviction_is_undone_where_it_happened() -> None:
    dialogs = generate(SCENARIOS["return"], seed=7)
    trace = simulate(policy_named("sink"), dialogs, budget=56)

    later = counterfactual(trace, dialogs, 0, turn=9, token=10)

    assert later == counterfactual(trace, dialogs, 0, turn=1, token=10)
    # Eight must go: with four sinks tokens 4 to 11, with two sinks 2 to 9.
    assert by_name(later)["sinks"].reversing_value == 2


def test_a_row_of_a_batch_is_searched_as_if_it_were_alone() -> None:
    dialogs = stack([random_dialog(1, [8, 9]), random_dialog(2, [9, 7, 12])])
    trace = simulate(policy_named("fd-kvc"), dialogs, budget=10)
    alone = dialogs.row(1)
    token = int(next(iter(set(trace.kept_tokens[1, 1]) - set(trace.kept_tokens[1, 2]))))

    assert counterfactual(trace, dialogs, 1, 2, token) == counterfactual(
        simulate(policy_named("fd-kvc"), alone, budget=10), alone, 0, 2, token
    )


@dataclass(frozen=True)
class Odd(Policy):
    """Keep the newest, or, under odd conditions, the oldest."""

    key = "odd"
    label = "Odd"

    weight: float = parameter(1.0, "Weight", "Anything.")
    gate: float = parameter(
        0.5, "Gate", "Opens below 0.0005.", low=0, high=1, open_low=True, open_high=True
    )
    island: float = parameter(0.5, "Island", "Opens twice.", low=0, high=1)
    whole: int = parameter(5, "Whole", "Opens at 1.", low=0, high=9, open_low=True)
    word: str = parameter("some", "Word", "Nothing to count.", choices=("some", "none"))
    idle: float = parameter(0.5, "Idle", "Does nothing.", low=0, high=1)

    def terms(self, cache: Cache, turn: Observation) -> Mapping[str, Floats]:
        position = turn.position(cache.token).astype(np.float32)
        island = 0.55 < self.island < 0.7 or self.island > 0.9
        opened = self.gate < 0.0005 or island or self.whole == 1
        return {"position": -position if opened else self.weight * position}

    def protects(self, cache: Cache, turn: Observation, budget: int) -> Bools:
        return np.zeros(cache.token.shape, np.bool_)


def test_open_and_whole_ranges_and_islands() -> None:
    dialogs = plain_dialog([[1.0] * 4, [1.0] * 4])
    trace = simulate(Odd(), dialogs, budget=4)

    changes = by_name(counterfactual(trace, dialogs, 0, turn=1, token=0))

    assert list(changes) == ["gate", "island", "whole", "idle", "budget"], "a weight has no range"
    gate = changes["gate"].reversing_value
    assert gate is not None
    assert 0 < gate < 0.0005
    assert changes["island"].reversing_value == 0.551
    assert changes["whole"].reversing_value == 1
    assert isinstance(changes["whole"].reversing_value, int)
    assert changes["idle"].reversing_value is None
    assert changes["idle"].words == "No idle from 0 to 1, in steps of 0.02, would have kept it."
    assert changes["budget"].reversing_value == 8


def test_the_first_value_of_a_step_is_refined_where_values_do_not_run_together() -> None:
    dialogs = plain_dialog([[1.0] * 4, [1.0] * 4])
    trace = simulate(Odd(gate=0.9), dialogs, budget=4)

    gate = by_name(counterfactual(trace, dialogs, 0, turn=1, token=0))["gate"]

    assert gate.step == pytest.approx(1 / 50)
    assert gate.reversing_value == pytest.approx(INSIDE)


def test_what_has_no_answer_is_refused_in_words() -> None:
    dialogs = generate(SCENARIOS["mixed"], seed=7)
    trace = simulate(policy_named("fifo"), dialogs, budget=56)

    with pytest.raises(ValueError, match="token 70 arrives in turn 2, so nothing"):
        counterfactual(trace, dialogs, 0, turn=1, token=70)
    later = simulate(policy_named("fifo"), dialogs, 56, start=(3, trace.result(2).end_state))
    with pytest.raises(ValueError, match="turn is 0, but must be a whole number from 3 to 11"):
        counterfactual(later, dialogs, 0, turn=3, token=int(trace.kept_tokens[0, 2, 0]))


@pytest.mark.parametrize("name", ["ada-heads(h2o)", "together(h2o)"])
def test_heads_that_decide_together_are_not_run_one_by_one(name: str) -> None:
    dialogs = replace(generate(SCENARIOS["mixed"], 2, seed=7), heads=2)
    h2o = policy_named("h2o")
    policy = Together(h2o, heads=2) if name == "together(h2o)" else wrapped("ada-heads", h2o)
    trace = simulate(policy, dialogs, budget=56)
    with pytest.raises(ValueError, match="decides for several heads together"):
        counterfactual(trace, dialogs, 1, turn=3, token=70)
    # With one head there is nothing to decide together.
    alone = dialogs.row(1)
    assert counterfactual(simulate(wrapped("ada-heads", h2o), alone, 56), alone, 0, 3, 70)
