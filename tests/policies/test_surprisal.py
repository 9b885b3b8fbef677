"""Surprisal: worked by hand, and what decides and what does not."""

import math

import numpy as np
import pytest

from fdkvc.conversations.lexical import lexical_recording
from fdkvc.core.arrays import one_dialog
from fdkvc.engine.online import OnlineCache
from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from tests.examples import dialogs_of
from tests.worlds import all_entries, by_token, kept_tokens, said


def test_the_newest_stay_and_of_the_rest_what_was_surprising_and_is_not_repeated() -> None:
    words = "abcadc"
    embeddings = np.eye(4)[["abcd".index(word) for word in words]]
    dialog = one_dialog(
        embeddings=embeddings,
        queries=embeddings,  # which nothing asks for
        keys=embeddings,
        values=embeddings,
        turn_lengths=[3, 1, 1, 1],
        surprisal=[9, 1, 4, 9, 2, 4],
    )
    trace = simulate(policy_named("surprisal", decay=0.5), dialog, budget=4)
    entries = all_entries(trace)

    # Of four places two are the window's. Token 3 repeats token 0; all four still fit in.
    assert kept_tokens(trace, 0, 1) == [0, 1, 2, 3]
    # Five words: 9/4, 1/4 and 4/4 of the old remain; the first is repeated, and goes all the same.
    surprisal = by_token(entries, entries.channels["surprisal"], 0, 2)
    assert surprisal == {0: 9 / 4, 1: 1 / 4, 2: 1, 3: 9 / 2, 4: 2}
    assert by_token(entries, entries.terms["redundancy"], 0, 2)[0] == -2
    assert kept_tokens(trace, 0, 2) == [1, 2, 3, 4]
    # Token 5 repeats token 2, so the least surprising one stays.
    assert kept_tokens(trace, 0, 3) == [1, 3, 4, 5]


def test_identical_words_are_not_above_a_threshold_of_1_which_turns_redundancy_off() -> None:
    dialogs = lexical_recording(dialogs_of("dialogues")[0]).dialogs
    entries = all_entries(simulate(policy_named("surprisal", redundancy=1), dialogs, 48))

    assert np.nanmax(entries.channels["redundancy"]) <= 1
    assert not np.nan_to_num(entries.terms["redundancy"]).any()


def test_a_policy_that_weighs_surprisal_says_so_where_there_is_none() -> None:
    policy = policy_named("surprisal")
    sentence = "^this policy needs the surprisal of every token, which these dialogs do not have$"
    vectors = dict.fromkeys(("queries", "keys", "values", "embeddings"), np.eye(2))

    with pytest.raises(ValueError, match=sentence):
        said("ab", None, [2], policy, 2)
    with pytest.raises(ValueError, match=sentence):
        OnlineCache(policy, 2).feed(**vectors)
    cache = OnlineCache(policy, 2)
    cache.feed(**vectors, surprisal=[1, 2])
    with pytest.raises(ValueError, match="surprisal must be given in every turn of a"):
        cache.feed(**vectors)
    for wrong, said_of_it in (
        ([1], "surprisal holds 1 numbers, but there are 2 tokens"),
        ([1, -1], "surprisal holds a number below 0, but no probability is above 1"),
        ([1, math.nan], "surprisal holds a number that is not finite"),
    ):
        with pytest.raises(ValueError, match=said_of_it):
            OnlineCache(policy, 2).feed(**vectors, surprisal=wrong)


def test_what_is_repeated_stays_while_there_is_room_and_in_the_window() -> None:
    alone, windowed = (policy_named("surprisal", window=share) for share in (0, 1))

    assert kept_tokens(said("aab", [1, 1, 1], [1, 1, 1], alone, 3), 0, 2) == [0, 1, 2]
    assert kept_tokens(said("baa", [1, 1, 1], [3], alone, 2), 0, 0) == [0, 2]
    assert kept_tokens(said("baa", [1, 1, 1], [3], windowed, 2), 0, 0) == [1, 2]


def test_what_is_less_alike_than_the_threshold_repeats_nothing() -> None:
    dialog = one_dialog(
        embeddings=[[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]],
        queries=np.ones((3, 1)),
        keys=np.zeros((3, 1)),
        values=np.ones((3, 1)),
        turn_lengths=[1, 1, 1],
        surprisal=[1, 1, 1],
    )
    for threshold, kept in ((0.5, [0, 2]), (0.7, [0, 2]), (0.9, [0, 1])):
        policy = policy_named("surprisal", window=0, decay=1, redundancy=threshold)
        assert kept_tokens(simulate(policy, dialog, 2), 0, 2) == kept
    entries = all_entries(simulate(policy, dialog, 3))
    redundancies = by_token(entries, entries.channels["redundancy"], 0, 2)
    assert redundancies == pytest.approx({0: 0.6, 1: 0.8, 2: 0})
