"""Weighted recency: worked by hand, and between first-in-first-out and the most surprising."""

import numpy as np
import pytest

from fdkvc.policies import policy_named
from tests.worlds import all_entries, by_token, kept_tokens, said

WORDS, SURPRISAL = "abcdefgh", [9.0, 1, 4, 3, 2, 4, 7, 1]
LENGTHS = [3, 2, 1, 2]


def test_worth_fades_and_what_was_surprising_lasts_longer() -> None:
    policy = policy_named("weighted-recency", decay=0.5, base=4, window=0.25)
    trace = said(WORDS, SURPRISAL, LENGTHS, policy, 4)
    entries = all_entries(trace)

    # 13, 5 and 8 have halved; the two new ones begin with 7 and 6.
    worth = by_token(entries, entries.channels["worth"], 0, 1)
    assert worth == {0: 6.5, 1: 2.5, 2: 4, 3: 7, 4: 6}
    assert kept_tokens(trace, 0, 1) == [0, 2, 3, 4]
    # 3.25, 2, 3.5, 3 and 8: the least surprising of the first turn goes.
    assert kept_tokens(trace, 0, 2) == [0, 3, 4, 5]
    # 1.625, 1.75, 1.5 and 4 are old, 11 and 5 are new. The last one is also the window.
    assert kept_tokens(trace, 0, 3) == [3, 5, 6, 7]


def test_without_surprise_the_newest_turns_stay() -> None:
    trace = said(WORDS, [5.0] * 8, LENGTHS, policy_named("weighted-recency", window=0), 3)
    # Of a turn that is worth the same, the older stay.
    assert [kept_tokens(trace, 0, turn) for turn in range(4)] == [
        [0, 1, 2],
        [0, 3, 4],
        [3, 4, 5],
        [5, 6, 7],
    ]


@pytest.mark.parametrize("budget", [1, 3, 6])
def test_without_decay_or_base_the_most_surprising_stay(budget: int) -> None:
    surprisal = np.random.default_rng(1).permutation(8).astype(float).tolist()
    policy = policy_named("weighted-recency", decay=1, base=0, window=0)
    trace = said(WORDS, surprisal, LENGTHS, policy, budget)
    assert kept_tokens(trace, 0, 3) == sorted(np.argsort(surprisal)[-budget:].tolist())


def test_a_large_base_is_recency_alone() -> None:
    large = policy_named("weighted-recency", base=1000, decay=0.5, window=0)
    trace = said(WORDS, SURPRISAL, LENGTHS, large, 3)
    assert kept_tokens(trace, 0, 3) == [5, 6, 7]


def test_its_tuned_defaults_decide() -> None:
    """A quarter for the newest, a tenth of worth lost each turn, 24 nats to begin with."""
    trace = said(WORDS, [0.0, 3, *[1] * 6], [2, 6], policy_named("weighted-recency"), 4)
    entries = all_entries(trace)

    worth = [by_token(entries, entries.channels["worth"], 0, turn) for turn in range(2)]
    assert worth[0] == {0: 24, 1: 27}
    assert worth[1] == pytest.approx({0: 21.6, 1: 24.3, **dict.fromkeys(range(2, 8), 25)})
    assert entries.token[0, 1, entries.protected[0, 1]].tolist() == [7]
    assert kept_tokens(trace, 0, 1) == [2, 3, 4, 7]
