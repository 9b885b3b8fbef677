"""Explanations: against a hand-worked dialog and the raw arrays of random runs."""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import re
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.explain.decisions import Explanation, explain, sentences, turn_view
from fdkvc.policies import Policy, policy_named
from fdkvc.policies.base import Step
from fdkvc.policies.fd_kvc import FDKVC
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import all_entries, plain_dialog, policies, ragged, random_dialog

EVICTING = policy_named("fd-kvc", tau=0.6, w_c=0.9)
"""A policy whose threshold evicts."""

budgets = st.integers(1, 24)


def three_turns() -> DialogBatch:
    """Make three turns of one token each; the cosine of tokens 0 and 2 with token 1 is 3/5."""
    return one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]],
        queries=[[1.0]] * 3,
        keys=[[math.log(3)], [0.0], [0.0]],
        values=[[1.0], [5.0], [0.0]],
        turn_lengths=[1, 1, 1],
        turn_topics=["A", "B", "A"],
    )


@dataclasses.dataclass(frozen=True)
class Undeclared(FDKVC):
    """A policy that does not say what its steps read and write."""

    steps: ClassVar[tuple[Step, ...]] = ()

    def _own_steps(self) -> Iterator[Step]:
        return iter(())


def fd_kvc(tau: float) -> Policy:
    return policy_named("fd-kvc", gamma=0.5, alpha_0=0.4, mu=1.0, tau=tau, beta=1.0, w_c=0.5)


# ------------------------------------------------------------------------------- worked by hand


def test_an_eviction_worked_by_hand() -> None:
    # Turn 2: scores 33/40, 21/44 and 15/22 of 5/22 + 1/4 against 2/11 + 1/2.
    dialogs = three_turns()
    trace = simulate(fd_kvc(tau=0.5), dialogs, budget=2)

    why = explain(trace, dialogs, 0, turn=2, token=1)

    assert (why.topic, why.born) == ("B", 1)
    assert (why.status, why.rule, why.eviction) == (Status.evicted, Rule.budget, (2, Rule.budget))
    assert (why.rank, why.place, why.protected) == (3, 3, False)
    assert (why.view.stood.sum(), why.view.kept.sum()) == (3, 2)
    assert why.score == pytest.approx(21 / 44)
    assert why.cutoff == pytest.approx(15 / 22)
    assert why.margin == pytest.approx(21 / 44 - 15 / 22)
    assert why.marginal == 2
    assert why.terms == pytest.approx({"cumulative": 5 / 22, "recency": 1 / 4})
    assert why.marginal_terms == pytest.approx({"cumulative": 2 / 11, "recency": 1 / 2})
    assert why.difference == pytest.approx({"cumulative": 1 / 22, "recency": -1 / 4})
    assert why.deciding_terms == ("recency",)
    assert sentences(why) == [
        "Token 1 (topic B, from turn 1) was evicted in turn 2 by the budget.",
        "Its score of 0.477 ranked 3rd of 3, and 2 were kept.",
        "The last kept entry scored 0.682, 0.205 more.",
        "Recency decided against it (0.250 against 0.500), "
        "cumulative attention was higher (0.227 against 0.182).",
    ]


def test_those_that_stayed_in_the_same_turn() -> None:
    dialogs = three_turns()
    trace = simulate(fd_kvc(tau=0.5), dialogs, budget=2)

    first = explain(trace, dialogs, 0, turn=2, token=0)
    assert first.margin == pytest.approx(33 / 40 - 15 / 22)
    # With 2/11 + 13/40 it would have stayed as well, ahead of token 1.
    assert first.deciding_terms == ()
    assert sentences(first)[1:] == [
        "Its score of 0.825 ranked 1st of 3, and 2 were kept.",
        "The last kept entry scored 0.682, 0.143 less.",
        "No term alone decided for it: cumulative attention was higher (0.500 against 0.182), "
        "recency was lower (0.325 against 0.500).",
        "The best evicted entry scored 0.477, 0.348 less.",
    ]

    last = explain(trace, dialogs, 0, turn=2, token=2)
    assert (last.token, last.margin, last.deciding_terms) == (last.marginal, 0, ())
    assert last.view.best_evicted == pytest.approx(21 / 44)
    assert sentences(last)[2:] == [
        "It was the last kept.",
        "The best evicted entry scored 0.477, 0.205 less.",
    ]


def test_a_threshold_eviction_worked_by_hand() -> None:
    # In turn 2 token 1 has 5/22 + 1/4 and token 0 the best score, 33/40.
    dialogs = three_turns()
    trace = simulate(fd_kvc(tau=0.6), dialogs, budget=2)

    why = explain(trace, dialogs, 0, turn=2, token=1)

    assert (why.status, why.rule, why.rank) == (Status.evicted, Rule.threshold, None)
    assert why.score == pytest.approx(21 / 44)
    assert why.cutoff == pytest.approx(0.6 * 33 / 40)
    assert why.margin == pytest.approx(21 / 44 - 0.6 * 33 / 40)
    assert why.terms == pytest.approx({"cumulative": 5 / 22, "recency": 1 / 4})
    assert why.marginal is None
    assert why.deciding_terms == ()
    assert sentences(why) == [
        "Token 1 (topic B, from turn 1) was evicted in turn 2 by the threshold.",
        "Its score of 0.477 was 0.018 below the threshold of 0.495.",
        "Cumulative attention contributed 0.227 and recency contributed 0.250.",
    ]


def test_protection_leaves_fewer_places_for_the_others() -> None:
    # With d = 4 the logits are half the products: token 0 weighs 3, tokens 1 and 2 weigh 1.
    keys = [[2 * math.log(weight), 0.0, 0.0, 0.0] for weight in (3, 1, 1)]
    dialogs = one_dialog(
        embeddings=keys,
        queries=[[1.0, 0.0, 0.0, 0.0]] * 3,
        keys=keys,
        values=keys,
        turn_lengths=[2, 1],
    )
    trace = simulate(policy_named("h2o"), dialogs, budget=2)

    gone = explain(trace, dialogs, 0, turn=1, token=1)
    assert (gone.rank, gone.place) == (2, 2)
    assert gone.margin == pytest.approx(9 / 20 - 27 / 20)
    assert sentences(gone) == [
        "Token 1 (from turn 0) was evicted in turn 1 by the budget.",
        "Its score of 0.450 ranked 2nd of 2 unprotected entries, with 1 of 2 slots left for them.",
        "The last kept entry scored 1.350, 0.900 more.",
    ]

    safe = explain(trace, dialogs, 0, turn=1, token=2)
    assert (safe.protected, safe.rank, safe.place) == (True, 3, 0)
    assert sentences(safe) == [
        "Token 2 (from turn 1) arrived and was kept in turn 1: "
        "it is protected regardless of its score.",
        "Its score of 0.200 ranked 3rd of 3.",
    ]

    everyone = simulate(policy_named("h2o", window=1.0), dialogs, budget=2)
    why = explain(everyone, dialogs, 0, turn=1, token=0)
    assert (why.cutoff, why.margin, why.deciding_terms) == (None, None, ())
    assert sentences(why)[1] == (
        "Protected entries took both slots, so its score of 1.350 did not count."
    )


def test_a_tie_is_settled_by_age() -> None:
    dialogs = plain_dialog([[1.0, 1.0, 1.0]])
    trace = simulate(policy_named("fd-kvc"), dialogs, budget=2)

    older, last, evicted = (explain(trace, dialogs, 0, turn=0, token=token) for token in range(3))

    assert (older.margin, last.margin, evicted.margin) == (0, 0, 0)
    assert older.marginal == last.marginal == evicted.marginal == 1
    best = "The best evicted entry scored the same; ties go to the older entry."
    assert sentences(older)[-2:] == ["The last kept entry scored the same.", best]
    assert sentences(last)[-2:] == ["It was the last kept.", best]
    assert sentences(evicted) == [
        "Token 2 (from turn 0) was evicted by the budget in the turn it arrived.",
        "Its score of 1 ranked 3rd of 3, and 2 were kept.",
        "The last kept entry scored the same; ties go to the older entry.",
    ]


@pytest.mark.parametrize("chance", range(8))
def test_what_only_rounding_tells_apart_is_told_as_a_tie(chance: int) -> None:
    # Two keys are equally unlike their mean, however the products were rounded.
    dialogs = random_dialog(chance, [1, 1], head_dimension=8)
    trace = simulate(policy_named("keydiff"), dialogs, budget=1)

    last, lost = (explain(trace, dialogs, 0, turn=1, token=token) for token in (0, 1))

    assert (last.rank, lost.rank, lost.margin, lost.deciding_terms) == (1, 2, 0, ())
    assert sentences(last)[-1].endswith("scored the same; ties go to the older entry.")
    assert sentences(lost)[-1] == "The last kept entry scored the same; ties go to the older entry."


def test_one_place_is_told_in_the_singular() -> None:
    dialogs = plain_dialog([[1.0], [2.0]])
    trace = simulate(policy_named("fifo"), dialogs, budget=1)

    assert sentences(explain(trace, dialogs, 0, turn=0, token=0)) == [
        "Token 0 (from turn 0) arrived and was kept in turn 0: "
        "the budget evicted nothing, with 1 of 1 slots used."
    ]
    assert sentences(explain(trace, dialogs, 0, turn=1, token=0))[1:] == [
        "Its score of 0 ranked 2nd of 2, and 1 was kept.",
        "The last kept entry scored 1, 1 more.",
    ]
    window = simulate(policy_named("h2o", window=1.0), dialogs, budget=1)
    assert sentences(explain(window, dialogs, 0, turn=1, token=0))[1].startswith(
        "A protected entry took the one slot"
    )


def test_equal_scores_are_told_apart_from_the_best_that_had_to_go() -> None:
    dialogs = one_dialog(
        embeddings=[[1.0]] * 3,
        queries=[[1.0]] * 3,
        keys=[[math.log(2)], [math.log(2)], [0.0]],
        values=[[1.0]] * 3,
        turn_lengths=[3],
    )
    trace = simulate(policy_named("h2o", window=0.0), dialogs, budget=2)

    assert sentences(explain(trace, dialogs, 0, turn=0, token=0))[-2:] == [
        "The last kept entry scored the same.",
        "The best evicted entry scored 0.200, 0.200 less.",
    ]


def test_entries_that_are_not_in_the_cache() -> None:
    dialogs = plain_dialog([[1.0, 1.0], [1.0, 1.0], [], [1.0]], topics=["A", "B", None, "B"])
    trace = simulate(policy_named("fifo"), dialogs, budget=2)

    evicted = explain(trace, dialogs, 0, turn=3, token=0)
    assert (evicted.status, evicted.eviction, evicted.score, evicted.cutoff) == (
        Status.empty,
        (1, Rule.budget),
        None,
        None,
    )
    assert sentences(evicted) == [
        "Token 0 (topic A, from turn 0) is not in the cache in turn 3: "
        "the budget evicted it in turn 1."
    ]
    future = explain(trace, dialogs, 0, turn=1, token=4)
    assert (future.born, future.eviction) == (3, None)
    assert sentences(future) == [
        "Token 4 (topic B, from turn 3) is not in the cache in turn 1: it arrives in turn 3."
    ]
    quiet = explain(trace, dialogs, 0, turn=2, token=3)
    assert not quiet.view.has_tokens
    assert sentences(quiet) == [
        "Token 3 (topic B, from turn 1) was kept in turn 2: "
        "the turn has no tokens, so nothing was decided."
    ]
    roomy = explain(trace, dialogs, 0, turn=0, token=1)
    assert sentences(roomy) == [
        "Token 1 (topic A, from turn 0) arrived and was kept in turn 0: "
        "the budget evicted nothing, with 2 of 2 slots used."
    ]


def test_a_forked_run_explains_only_its_own_turns() -> None:
    dialogs = generate(SCENARIOS["mixed"], seed=7)
    whole = simulate(policy_named("fd-kvc"), dialogs, budget=56)
    fork = simulate(policy_named("fd-kvc"), dialogs, 56, start=(5, whole.result(4).end_state))

    for token in fork.kept_tokens[0, 0]:
        for turn in (5, 6, 11):
            assert explain(fork, dialogs, 0, turn, token) == explain(whole, dialogs, 0, turn, token)
    early = next(token for token in range(160) if token not in whole.kept_tokens[0, 4])
    assert sentences(explain(fork, dialogs, 0, 6, early))[0].endswith(
        "it was evicted before this record begins."
    )
    with pytest.raises(ValueError, match="turn is 4, but the record of this dialog has"):
        explain(fork, dialogs, 0, 4, 0)


def test_a_threshold_in_the_turn_of_a_fork_is_explained_as_in_the_whole_run() -> None:
    dialogs = three_turns()
    whole = simulate(fd_kvc(tau=0.6), dialogs, budget=2)
    fork = simulate(fd_kvc(tau=0.6), dialogs, 2, start=(2, whole.result(1).end_state))

    why = explain(fork, dialogs, 0, turn=2, token=1)

    assert why.rule == Rule.threshold
    assert why == explain(whole, dialogs, 0, turn=2, token=1)


@pytest.mark.parametrize(
    ("row", "turn", "token", "message"),
    [
        (1, 0, 0, "row is 1, but must be from 0 to 0"),
        (0, 12, 0, "turn is 12, but the record of this dialog has"),
        (0, -1, 0, "turn is -1, but"),
        (0, 0, 384, "token is 384, but this dialog has tokens 0 to"),
        (0, 0, -1, "token is -1, but"),
    ],
)
def test_what_does_not_exist_is_named(row: int, turn: int, token: int, message: str) -> None:
    dialogs = generate(SCENARIOS["mixed"])
    trace = simulate(policy_named("fifo"), dialogs, budget=56)

    with pytest.raises(ValueError, match=message):
        explain(trace, dialogs, row, turn, token)


def test_a_trace_without_entries_is_refused() -> None:
    dialogs = generate(SCENARIOS["shift"])
    trace = simulate(policy_named("fifo"), dialogs, budget=56, entries=False)

    with pytest.raises(ValueError, match="entries=True"):
        explain(trace, dialogs, 0, 0, 0)


def test_a_threshold_that_no_step_declares_is_still_the_rule() -> None:
    dialogs = three_turns()
    trace = simulate(Undeclared(**dataclasses.asdict(fd_kvc(tau=0.6))), dialogs, budget=2)

    why = explain(trace, dialogs, 0, turn=2, token=1)

    assert (why.rule, why.score, why.cutoff) == (Rule.threshold, None, None)
    assert why.terms == pytest.approx({"cumulative": 5 / 22, "recency": 1 / 4})
    assert sentences(why) == [
        "Token 1 (topic B, from turn 1) was evicted in turn 2 by the threshold."
    ]


# ------------------------------------------------------------------------------- random runs


entries_in = functools.lru_cache(maxsize=8)(Trace.entries_in)


def chosen_again(why: Explanation, trace: Trace, row: int) -> tuple[str, ...]:
    """Return the terms that turn the turn's decision if equal to the last kept's, by sorting."""
    if why.marginal is None or why.protected:
        return ()
    entries, index = entries_in(trace, why.view.turn), row
    stood = np.flatnonzero(~np.isnan(entries.score[index]) & ~entries.protected[index])
    token, places = entries.token[index], (why.view.kept & ~why.view.protected).sum()
    deciding = []
    for name in entries.terms:
        scores = {}
        for slot in stood:
            terms = {term: column[index][slot] for term, column in entries.terms.items()}
            if token[slot] == why.token:
                terms[name] = np.float32(why.marginal_terms[name])
            scores[slot] = functools.reduce(operator.add, terms.values())
        cutoff = sorted(scores.values())[-places]
        reach = float(why.view.policy.ties.tolerance(np.array(cutoff)))
        # What ties with the last kept counts as it does; slots are in the order of age.
        apart = {slot: scores[slot] - cutoff for slot in stood}
        levels = {
            slot: difference if abs(difference) > reach else 0 for slot, difference in apart.items()
        }
        best = sorted(stood, key=lambda slot: (-levels[slot], slot))[:places]
        if (why.token in token[best]) != (why.rule == Rule.none):
            deciding.append(name)
    return tuple(deciding)


@functools.cache
def with_seed_33(scenario: str) -> tuple[Trace, DialogBatch]:
    dialogs = generate(SCENARIOS[scenario], seed=33)
    return simulate(policy_named("fd-kvc"), dialogs, budget=56), dialogs


def test_terms_that_cost_the_place_only_together_are_not_blamed_alone() -> None:
    why = explain(*with_seed_33("complex"), 0, turn=6, token=34)

    assert all(ahead < 0 for ahead in why.difference.values())
    assert why.deciding_terms == ()
    assert re.fullmatch(
        r"No term alone decided against it: recency was lower \(.*\), "
        r"cumulative attention was lower \(.*\)\.",
        sentences(why)[-1],
    )


def test_a_term_that_would_only_have_tied_is_not_blamed() -> None:
    # Both are new, so cumulative attention is the same; the later one is less like the query.
    why = explain(*with_seed_33("shift"), 0, turn=1, token=58)

    assert why.difference["cumulative"] == 0
    assert why.deciding_terms == ()
    assert sentences(why)[-2].startswith("No term alone decided against it: recency")
    assert sentences(why)[-1] == (
        "With equal recency it would have tied; ties go to the older entry."
    )


def every_explanation(trace: Trace, dialogs: DialogBatch, row: int) -> list[Explanation]:
    return [
        explain(trace, dialogs, row, turn, int(token))
        for turn in range(dialogs.turn_counts[row])
        for token in turn_view(trace, dialogs, row, turn).token
    ]


@given(policies() | st.just(EVICTING), ragged(rows=2), budgets)
def test_every_explanation_agrees_with_the_run(
    policy: Policy, dialogs: DialogBatch, budget: int
) -> None:
    trace = simulate(policy, dialogs, budget)
    for row in range(dialogs.rows):
        explanations = every_explanation(trace, dialogs, row)
        rule_rank_and_margin_agree(explanations, trace, row)
        numbers_are_those_of_the_raw_arrays(explanations, trace, dialogs, row)
        sentences_have_words_and_numbers(explanations, trace, dialogs, row)


def rule_rank_and_margin_agree(explanations: list[Explanation], trace: Trace, row: int) -> None:
    for why in explanations:
        cached = why.token in trace.kept_tokens[row, why.view.turn]
        assert cached == (why.rule == Rule.none)
        assert cached == (why.status in (Status.kept, Status.new))
        assert (why.eviction is not None) == (not cached)
        if cached and why.margin is not None:
            assert why.protected or why.margin >= 0
        if why.rule == Rule.budget:
            assert not why.protected
            assert why.place > (why.view.kept & ~why.view.protected).sum()
            if why.margin is not None:
                assert why.margin <= 0
                assert why.margin < 0 or why.token > (why.marginal or 0)
            else:
                assert why.view.protected[why.view.kept].all()
        if why.rule == Rule.threshold:
            assert why.margin is not None
            assert why.margin < 0
            assert sum(why.terms.values()) == pytest.approx(why.score, rel=1e-5, abs=1e-6)
        elif why.score is not None and math.isfinite(why.score):
            assert sum(why.terms.values()) == pytest.approx(why.score, rel=1e-5, abs=1e-6)
        assert why.deciding_terms == chosen_again(why, trace, row)


def numbers_are_those_of_the_raw_arrays(
    explanations: list[Explanation], trace: Trace, dialogs: DialogBatch, row: int
) -> None:
    entries = all_entries(trace)
    for why in explanations:
        place = (row, why.view.turn)
        rules, scores = entries.rule[place], entries.score[place]
        (slot,) = np.flatnonzero(entries.token[place] == why.token)
        stood = ~np.isnan(scores)
        assert why.view.stood.sum() == stood.sum()
        assert why.born == np.flatnonzero(dialogs.bounds[row] <= why.token)[-1]
        if why.rule == Rule.threshold:
            continue
        assert why.score == scores[slot]
        older = np.arange(len(scores)) < slot
        better = (scores > scores[slot]) | ((scores == scores[slot]) & older)
        assert why.rank == (better & stood).sum() + 1
        assert why.terms == {name: term[place][slot] for name, term in entries.terms.items()}
        by_score = stood & (rules == Rule.none) & ~entries.protected[place]
        if (rules == Rule.budget).any() and by_score.any():
            assert why.cutoff == scores[by_score].min()
            assert why.view.best_evicted == scores[rules == Rule.budget].max()
        else:
            assert why.cutoff is None


def sentences_have_words_and_numbers(
    explanations: list[Explanation], trace: Trace, dialogs: DialogBatch, row: int
) -> None:
    last = int(dialogs.turn_counts[row]) - 1
    some = [
        explain(trace, dialogs, row, turn, token)
        for turn in (0, last)
        for token in range(0, int(dialogs.bounds[row, -1]), 5)
    ]
    for why in [*explanations, *some]:
        words = sentences(why)
        assert words
        for sentence in words:
            assert sentence[0].isupper()
            assert sentence.endswith(".")
            assert not {"nan", "None", "inf"} & set(sentence.replace(",", " ").split())
