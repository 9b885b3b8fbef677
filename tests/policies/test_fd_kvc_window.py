"""FD-KVC with window: worked by hand, and FD-KVC with its options."""

import math

import numpy as np
import pytest

from fdkvc.parameters import defaults_of, parameters_of
from fdkvc.policies import POLICIES, policy_named
from fdkvc.run.metrics import metric_named
from fdkvc.run.simulate import simulate
from fdkvc.synthetic.batch import one_dialog
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.worlds import by_token, kept_tokens

OWN: dict[str, float | str] = {
    "w_c": 0.1,
    "window": 0.75,
    "reinforcement": "averaged",
    "relevance": "attention",
}


def test_three_quarters_stay_and_the_rest_is_kept_by_attention() -> None:
    # With h = 4 a logit is half the product: token 1 weighs 3, the others 1.
    keys = np.zeros((5, 4))
    keys[1, 0] = 2 * math.log(3)
    dialog = one_dialog(
        embeddings=np.eye(5),  # of which relevance knows nothing
        queries=np.tile([1.0, 0, 0, 0], (5, 1)),
        keys=keys,
        values=np.eye(5)[:, :4],
        turn_lengths=[2, 2, 1],
    )
    trace = simulate(policy_named("fd-kvc-window", gamma=0.5, w_c=0.5), dialog, budget=4)
    entries = trace.every_entry()
    cumulative, recency, protected = (
        [by_token(entries, column, 0, turn) for turn in range(3)]
        for column in (
            entries.channels["cumulative"],
            entries.channels["recency"],
            entries.protected,
        )
    )

    # New entries: c = 1, ρ their attention as a share of the most attended of the turn.
    assert cumulative[0] == pytest.approx({0: 1, 1: 1})
    assert recency[0] == pytest.approx({0: 1 / 3, 1: 1})
    # Attention 1/4 and 3/4, relevance 0 and 1: ρ is half of what it was and half of that.
    assert cumulative[1] == pytest.approx({0: 5 / 4, 1: 7 / 4, 2: 1, 3: 1})
    assert recency[1] == pytest.approx({0: 1 / 6, 1: 1, 2: 1, 3: 1})
    # Attention 1/6, 3/6, 1/6, 1/6; the window of three protects 2, 3, 4; of 0 and 1 the one stays.
    assert cumulative[2] == pytest.approx({0: 17 / 12, 1: 9 / 4, 2: 7 / 6, 3: 7 / 6, 4: 1})
    assert recency[2] == pytest.approx({0: 1 / 12, 1: 1, 2: 1 / 2, 3: 1 / 2, 4: 1})
    assert [token for token, marked in protected[2].items() if marked] == [2, 3, 4]
    score = by_token(entries, entries.score, 0, 2)
    assert score[0] == pytest.approx(0.5 * (17 / 12) / (9 / 4) + 0.5 / 12)
    assert score[1] == pytest.approx(1)
    assert kept_tokens(trace, 0, 2) == [1, 2, 3, 4]


def test_it_is_fd_kvc_with_its_options() -> None:
    own, paper = POLICIES["fd-kvc-window"], POLICIES["fd-kvc"]
    one, other = policy_named("fd-kvc-window"), policy_named("fd-kvc", **OWN)
    dialogs = generate(SCENARIOS["mixed"], dialogs=2, seed=1)

    assert parameters_of(own) == parameters_of(paper)
    assert defaults_of(own) == {**defaults_of(paper), **OWN}
    assert (one.steps, one.looks_at) == (other.steps, other.looks_at)
    traces = [simulate(policy, dialogs, 56) for policy in (one, other)]
    np.testing.assert_array_equal(traces[0].kept, traces[1].kept)


def test_with_the_options_off_it_is_the_papers() -> None:
    paper = policy_named("fd-kvc")
    off = policy_named("fd-kvc-window", **defaults_of(paper))

    assert (off.steps, off.looks_at) == (paper.steps, paper.looks_at)


def test_after_a_shift_the_new_topic_has_nine_tenths_of_the_cache() -> None:
    dialogs = generate(SCENARIOS["shift"], dialogs=20, seed=1)
    trace = simulate(policy_named("fd-kvc-window"), dialogs, 56, entries=False)

    assert metric_named("retention").late(trace, dialogs).mean() > 0.9
