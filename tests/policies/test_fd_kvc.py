"""FD-KVC, worked by hand: Algorithm 1 on three turns of one token."""

import math

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from fdkvc.core.dialogs import stack
from fdkvc.engine.simulate import simulate
from fdkvc.engine.trace import EntryTrace, Trace
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import all_entries, by_token, evictions, kept_tokens, plain_dialog


def three_turns(tau: float) -> Trace:
    """Run the dialog: the cosine of tokens 0 and 2 with token 1 is 3/5; token 0 weighs 3."""
    dialog = one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [2.0, 0.0]],
        queries=[[1.0, 0.0]] * 3,
        keys=[[math.sqrt(2) * math.log(3), 0.0], [0.0, 0.0], [0.0, 0.0]],
        values=[[1.0, 0.0], [5.0, 5.0], [0.0, 1.0]],
        turn_lengths=[1, 1, 1],
    )
    policy = policy_named("fd-kvc", gamma=0.5, alpha_0=0.4, mu=1.0, tau=tau, beta=1.0, w_c=0.5)
    return simulate(policy, dialog, budget=2)


def channels(entries: EntryTrace, turn: int) -> dict[str, dict[int, float]]:
    return {name: by_token(entries, column, 0, turn) for name, column in entries.channels.items()}


def test_algorithm_1() -> None:
    trace = three_turns(tau=0.5)
    entries = all_entries(trace)

    assert channels(entries, 0) == {"cumulative": {0: 1}, "recency": {0: pytest.approx(1)}}
    # A single old entry is its own minimum, so it is not reinforced: ρ = 1 · 0.5.
    second = channels(entries, 1)
    assert second["cumulative"] == pytest.approx({0: 2, 1: 1})
    assert second["recency"] == pytest.approx({0: 0.5, 1: 1})
    assert trace.state["ownership_loss"][0, :2] == pytest.approx([0, 0])
    assert trace.state["learning_rate"][0, :2] == pytest.approx([0.4, 0.4])

    # Turn 2: attention 3/4 and 1/4; relevance 1 and 0; hybrid scores 33/40 and 21/44.
    third = channels(entries, 2)
    assert third["cumulative"] == pytest.approx({0: 2.75, 1: 1.25, 2: 1})
    assert third["recency"] == pytest.approx({0: 0.65, 1: 0.5, 2: 1})
    recorded = {
        name: column[0, 2, :2].tolist() if column.ndim == 3 else column[0, 2]
        for name, column in entries.recorded.items()
    }
    assert recorded["attention"] == pytest.approx([3 / 4, 1 / 4])
    assert recorded["recency before"] == pytest.approx([0.5, 1])
    assert recorded["recency decayed"] == pytest.approx([0.25, 0.5])
    assert recorded["relevance"] == pytest.approx([1, 0])
    assert recorded["learning rate before"] == pytest.approx(0.4)
    assert recorded["hybrid score"] == pytest.approx([33 / 40, 21 / 44])
    loss = (70 / 121) * (51 / 121) / 2
    assert trace.state["ownership_loss"][0, 2] == pytest.approx(loss)
    assert trace.state["learning_rate"][0, 2] == pytest.approx(0.4 / (1 + loss))

    # Token 1 stays above the threshold 33/80 and loses the budget.
    terms = {name: by_token(entries, column, 0, 2) for name, column in entries.terms.items()}
    assert terms["cumulative"] == pytest.approx({0: 1 / 2, 1: 5 / 22, 2: 2 / 11})
    assert terms["recency"] == pytest.approx({0: 0.325, 1: 1 / 4, 2: 1 / 2})
    score = by_token(entries, entries.score, 0, 2)
    assert score == pytest.approx({0: 33 / 40, 1: 21 / 44, 2: 15 / 22})
    assert entries.rank[0, 2].tolist() == [1, 3, 2]
    assert evictions(entries, 0, 2) == {1: "budget"}

    # Modulation multiplies 3/4 by 0.825 and 1/4 by 1.
    before = by_token(entries, entries.attention_before, 0, 2)
    after = by_token(entries, entries.attention_after, 0, 2)
    assert before == pytest.approx({0: 3 / 4, 2: 1 / 4})
    assert after == pytest.approx({0: 99 / 139, 2: 40 / 139})
    assert trace.output[0, 2] == pytest.approx([99 / 139, 40 / 139])


def test_the_threshold_evicts_before_new_tokens_come_in() -> None:
    trace = three_turns(tau=0.6)
    entries = all_entries(trace)

    assert evictions(entries, 0, 2) == {1: "threshold"}
    assert kept_tokens(trace, 0, 2) == [0, 2]
    # It shows the channels it was compared by, and has no score in the contest it was not in.
    assert entries.channels["recency"][0, 2, 1] == pytest.approx(0.5)
    assert np.isnan(entries.score[0, 2, 1])
    assert entries.rank[0, 2].tolist() == [1, 0, 2]


def test_no_threshold_evicts_in_a_turn_without_tokens() -> None:
    quiet, talking = plain_dialog([[1, 2, -3], [], [4]]), plain_dialog([[1, 2, -3], [5], [4]])
    policy = policy_named("fd-kvc", tau=1, w_c=0)
    trace = simulate(policy, stack([quiet, talking]), budget=4)

    assert trace.evicted["threshold"][:, 1].tolist() == [0, 1]
    assert evictions(all_entries(trace), 0, 1) == {}
    assert kept_tokens(trace, 0, 1) == [0, 1, 2]


def test_the_papers_threshold_evicts_nothing() -> None:
    policy = policy_named("fd-kvc", tau=0.10)  # the upper end of the paper's range
    for scenario in SCENARIOS.values():
        trace = simulate(policy, generate(scenario, dialogs=5, seed=1), 56, entries=False)
        assert not trace.evicted["threshold"].any()


def test_it_has_the_papers_hyperparameters_steps_and_state_and_no_others() -> None:
    policy = policy_named("fd-kvc")

    assert list(policy.settings) == ["gamma", "alpha_0", "mu", "tau", "beta", "w_c"]
    assert all(field.paper for field in policy.settings.values())
    assert [step.source for step in policy.steps] == [
        "Eq. 1",
        "Eq. 2",
        "Eqs. 3 and 4",
        "Eqs. 5 to 7",
        "Eqs. 5 and 8",
        "Eq. 9",
    ]
    assert policy.channels == ("cumulative", "recency")
    assert set(policy.initial_state()) == {"learning_rate", "ownership_loss"}
