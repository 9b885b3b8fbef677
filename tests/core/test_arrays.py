"""Dialogs from given arrays, and arrays that are refused."""

import math
from typing import Any

import numpy as np
import pytest

from fdkvc.core.arrays import one_dialog
from tests.worlds import random_vectors


def test_a_dialog_of_ones_own() -> None:
    vectors, _ = random_vectors(1, [2, 0, 3])
    dialog = one_dialog(**vectors, turn_lengths=[2, 0, 3], turn_topics=["cats", None, "dogs"])

    assert dialog.topic_names == ("cats", "dogs")
    assert dialog.bounds.tolist() == [[0, 2, 2, 5]]
    assert dialog.turn_counts.tolist() == [3]
    assert dialog.current.tolist() == [[0, -1, 1]]
    assert dialog.topic_bits.tolist() == [[1, 1, 2, 2, 2]]
    assert dialog.topic_counts.tolist() == [2]
    assert dialog.born.tolist() == [[0, 0, 2, 2, 2]]
    assert [dialog.new_tokens(turn).tolist() for turn in range(3)] == [[[0, 1]], [[]], [[2, 3, 4]]]
    queries = vectors["queries"]
    means = [queries[:2].mean(axis=0), np.zeros(4), queries[2:].mean(axis=0)]
    np.testing.assert_allclose(dialog.mean_queries[0], means, atol=1e-6)
    np.testing.assert_allclose(dialog.keys[0], vectors["keys"], atol=1e-6)


def test_a_dialog_of_ones_own_needs_no_topics() -> None:
    vectors, _ = random_vectors(1, [2, 3])
    dialog = one_dialog(**vectors, turn_lengths=(2, 3))

    assert dialog.topic_names == ()
    assert dialog.current.tolist() == [[-1, -1]]
    assert dialog.topic_counts.tolist() == [0]


NAMES = ("embeddings", "queries", "keys", "values")
NAN = [[0.0, 1.0], [math.nan, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("array", "sentence"),
    [
        (NAN, "{} holds a number that is not finite"),
        (np.full((3, 2), math.inf), "{} holds a number that is not finite"),
        (np.full((3, 2), 1e39), "{} holds a number that is not finite"),
        (np.zeros(3), "{} has 1 axes, but must have 2"),
        (np.zeros((1, 3, 2)), "{} has 3 axes, but must have 2"),
        (np.zeros((4, 2)), "{} holds 4 tokens, but the turns add up to 3"),
        (np.zeros((3, 0)), "{} has no dimensions, but must have at least 1"),
        ([["a", "b"]] * 3, "{} must be numbers"),
        ([[1.0], [1.0, 2.0], [1.0]], "{} must be numbers"),
        (None, "{} "),
    ],
)
def test_arrays_that_will_not_do_get_one_clear_sentence(
    name: str, array: Any, sentence: str
) -> None:
    good: dict[str, Any] = dict.fromkeys(NAMES, np.ones((3, 2)))
    with pytest.raises(ValueError, match=f"^{sentence.format(name)}"):
        one_dialog(**{**good, name: array}, turn_lengths=[1, 2])


@pytest.mark.parametrize("name", ["queries", "values"])
def test_queries_and_values_must_have_the_shape_of_keys(name: str) -> None:
    good: dict[str, Any] = dict.fromkeys(NAMES, np.ones((3, 2)))
    with pytest.raises(ValueError, match=rf"^{name} has shape \(3, 5\), but keys have \(3, 2\)$"):
        one_dialog(**{**good, name: np.ones((3, 5))}, turn_lengths=[3])


@pytest.mark.parametrize(
    ("lengths", "sentence"),
    [
        ([], "number of turns is 0, but must be"),
        ([0], "number of tokens is 0, but must be"),
        ([4, -1], "is -1, but must be"),
        ([1.5, 1.5], "is 1.5, but must be"),
        ([math.nan, 3], "is nan, but must be"),
        (["2", 1], "is '2', but must be"),
        ([[3]], r"is \[3\], but must be"),
    ],
)
def test_turn_lengths_that_will_not_do_get_one_clear_sentence(lengths: Any, sentence: str) -> None:
    arrays: dict[str, Any] = dict.fromkeys(NAMES, np.ones((3, 2)))
    if lengths == [0]:
        arrays = {name: array[:0] for name, array in arrays.items()}
    with pytest.raises(ValueError, match=sentence):
        one_dialog(**arrays, turn_lengths=lengths)


def test_topics_of_turns_must_fit_the_turns() -> None:
    arrays: dict[str, Any] = dict.fromkeys(NAMES, np.ones((40, 2)))
    with pytest.raises(ValueError, match="there are 1 turn topics for 2 turns"):
        one_dialog(**arrays, turn_lengths=[20, 20], turn_topics=["A"])
    with pytest.raises(ValueError, match="has 33 topics, but at most 32 are allowed"):
        one_dialog(
            **arrays, turn_lengths=[1] * 32 + [8], turn_topics=[str(turn) for turn in range(33)]
        )
