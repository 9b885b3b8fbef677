"""The online cache: the same decisions, one turn at a time, from given arrays."""

import math
from typing import Any

import numpy as np
import pytest

from fdkvc.core.attention import SPEAKERS, word_id
from fdkvc.engine.online import OnlineCache
from fdkvc.policies import policy_named, read_policy
from tests.worlds import STREAMING_POLICIES, random_vectors

Vectors = dict[str, Any]


def cut(vectors: Vectors, lengths: list[int]) -> list[Vectors]:
    ends = np.cumsum(lengths)
    return [
        {name: array[end - length : end] for name, array in vectors.items()}
        for length, end in zip(lengths, ends, strict=True)
    ]


def test_ids_count_the_tokens_fed() -> None:
    cache = OnlineCache(policy_named("fifo"), budget=3)
    vectors, _ = random_vectors(0, [2, 0, 2, 4])

    turns = [cache.feed(**new) for new in cut(vectors, [2, 0, 2, 4])]

    assert [turn.kept_tokens.tolist() for turn in turns] == [[0, 1], [0, 1], [1, 2, 3], [5, 6, 7]]
    assert cache.fed == 8
    np.testing.assert_array_equal(turns[1].output, turns[0].output)
    np.testing.assert_array_equal(turns[1].attention, turns[0].attention)


@pytest.mark.parametrize("key", ["fifo", "sink"])
@pytest.mark.parametrize("fed", [2**24 - 9, 2**31 - 9, 2**52 - 9])
def test_a_stream_may_go_on_for_ever(key: str, fed: int) -> None:
    cache = OnlineCache(policy_named(key), budget=5)
    cache.fed = fed
    vectors, _ = random_vectors(0, [1] * 30)

    for last, new in enumerate(cut(vectors, [1] * 30), fed):
        assert cache.feed(**new).kept_tokens.tolist() == list(range(max(fed, last - 4), last + 1))


def test_before_the_first_token_there_is_nothing() -> None:
    cache = OnlineCache(policy_named("fd-kvc"), budget=3)
    vectors, _ = random_vectors(0, [4])
    (nothing, something) = cut(vectors, [0, 4])

    empty = cache.feed(**nothing)
    first = cache.feed(**something)

    assert (empty.kept_tokens.tolist(), empty.attention.tolist()) == ([], [])
    assert not empty.output.any()
    assert len(first.kept_tokens) == 3
    assert first.attention.sum() == pytest.approx(1)


@pytest.mark.parametrize("key", STREAMING_POLICIES)
def test_what_it_is_given_and_what_it_gives_back_is_the_callers(key: str) -> None:
    lengths = [6, 0, 5, 0, 7]
    vectors, _ = random_vectors(4, lengths)
    spoiled, clean = (OnlineCache(policy_named(key), budget=5) for _ in range(2))

    for new in cut(vectors, lengths):
        float_vectors = {name: array.astype(np.float32) for name, array in new.items()}
        expected = clean.feed(**new)
        fed = spoiled.feed(**float_vectors)
        for name, array in float_vectors.items():
            np.testing.assert_array_equal(array, new[name].astype(np.float32))
            array[:] = 99  # the cache must have its own copy
        np.testing.assert_array_equal(fed.kept_tokens, expected.kept_tokens)
        np.testing.assert_array_equal(fed.output, expected.output)
        fed.kept_tokens[:] = 0
        fed.attention[:] = 0
        fed.output[:] = 0


def good_turn(tokens: int = 3) -> Vectors:
    return random_vectors(9, [tokens])[0]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"keys": np.ones((3, 5))}, "must have"),
        ({"queries": np.ones((3, 5))}, "queries have 5 dimensions, but must have 4"),
        ({"values": np.ones((3, 3))}, "values have 3 dimensions, but must have 4"),
        ({"embeddings": np.ones((2, 12))}, "embeddings hold 2 tokens, but keys hold 3"),
        ({"values": np.ones((4, 4))}, "values hold 4 tokens, but keys hold 3"),
        ({"keys": np.full((3, 4), math.nan)}, "^keys holds a number that is not finite"),
        ({"embeddings": np.full((3, 12), -math.inf)}, "^embeddings holds a number that is not"),
        ({"queries": np.ones(4)}, "^queries has 1 axes, but must have 2"),
        ({"queries": "no"}, "^queries must be numbers"),
        ({"queries": None}, "^queries "),
    ],
)
@pytest.mark.parametrize("before", [0, 2])
def test_a_refused_turn_changes_nothing(change: dict[str, Any], sentence: str, before: int) -> None:
    lengths = [4, 5, 3, 6]
    vectors, _ = random_vectors(5, lengths)
    turns = cut(vectors, lengths)
    undisturbed, cache = (OnlineCache(policy_named("fd-kvc"), budget=7) for _ in range(2))
    for new in turns[:before]:
        undisturbed.feed(**new)
        cache.feed(**new)

    with pytest.raises(ValueError, match=sentence):
        cache.feed(**{**good_turn(), **change})

    for new in turns[before:]:
        one, other = cache.feed(**new), undisturbed.feed(**new)
        np.testing.assert_array_equal(one.kept_tokens, other.kept_tokens)
        np.testing.assert_array_equal(one.output, other.output)
        np.testing.assert_array_equal(one.attention, other.attention)


def test_a_first_turn_without_the_surprisal_that_a_policy_needs_can_be_fed_again() -> None:
    cache, turn = OnlineCache(policy_named("surprisal"), budget=7), good_turn()

    with pytest.raises(ValueError, match="needs the surprisal of every token"):
        cache.feed(**{**turn, "surprisal": None})

    assert cache.feed(**turn).kept_tokens.tolist() == [0, 1, 2]


def test_later_turns_must_have_the_dimensions_of_the_first() -> None:
    cache = OnlineCache(policy_named("h2o"), budget=4)
    cache.feed(**good_turn())

    with pytest.raises(ValueError, match="embeddings have 7 dimensions, but must"):
        cache.feed(**{**good_turn(), "embeddings": np.ones((3, 7))})
    with pytest.raises(ValueError, match="have 5 dimensions, but must have 4"):
        cache.feed(
            **{**good_turn(), **dict.fromkeys(("queries", "keys", "values"), np.ones((3, 5)))}
        )


def test_who_says_which_word_is_told_with_each_turn() -> None:
    cache = OnlineCache(read_policy("whitelist(fifo, first=0, speaker=user)"), budget=4)
    marked = OnlineCache(read_policy("whitelist(fifo, first=0, words=code)"), budget=4)
    code = word_id("code")
    for turn, speaker in enumerate((0, 1, 1)):
        vectors = dict.fromkeys(("queries", "keys", "values", "embeddings"), np.eye(2))
        marks = {"words": np.array([code * (turn == 0), 0]), "speakers": np.full(2, speaker)}
        kept = [online.feed(**vectors, **marks).kept_tokens.tolist() for online in (cache, marked)]
    assert SPEAKERS[0] == "user"
    assert kept == [[0, 1, 4, 5], [0, 3, 4, 5]]
    with pytest.raises(ValueError, match="words must be 2 whole numbers"):
        cache.feed(**vectors, words=np.array([0.5, 1]), speakers=np.zeros(2, int))
    with pytest.raises(ValueError, match="words must be 2 whole numbers"):
        cache.feed(**vectors, words=[[1], [1, 2]], speakers=np.zeros(2, int))
