"""Explanations against the raw arrays of random runs, and of what cannot be explained."""

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

from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import Rule, Status, Trace
from fdkvc.explain.decisions import Explanation, explain, sentences, turn_view
from fdkvc.policies import Policy, policy_named
from fdkvc.policies.base import Step
from fdkvc.policies.fd_kvc import FDKVC
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.explain.test_worked import three_turns
from tests.worlds import EVICTING, all_entries, policies, ragged, random_dialog

budgets = st.integers(1, 24)


@dataclasses.dataclass(frozen=True)
class Undeclared(FDKVC):
    """A policy that does not say what its steps read and write."""

    steps: ClassVar[tuple[Step, ...]] = ()

    def _own_steps(self) -> Iterator[Step]:
        return iter(())


def fd_kvc(tau: float) -> Policy:
    return policy_named("fd-kvc", gamma=0.5, alpha_0=0.4, mu=1.0, tau=tau, beta=1.0, w_c=0.5)


@pytest.mark.parametrize("chance", range(8))
def test_what_only_rounding_tells_apart_is_told_as_a_tie(chance: int) -> None:
    # Two keys are equally unlike their mean, however the products were rounded.
    dialogs = random_dialog(chance, [1, 1], head_dimension=8)
    trace = simulate(policy_named("keydiff"), dialogs, budget=1)

    last, lost = (explain(trace, dialogs, 0, turn=1, token=token) for token in (0, 1))

    assert (last.rank, lost.rank, lost.margin, lost.deciding_terms) == (1, 2, 0, ())
    assert sentences(last)[-1].endswith("scored the same; ties go to the older entry.")
    assert sentences(lost)[-1] == "The last kept entry scored the same; ties go to the older entry."


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
    assert sentences(why) == ["Token 1 was evicted in turn 2 by the threshold."]


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
