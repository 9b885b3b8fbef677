"""Transcripts: finding what was said, topics of one's own, and topics found by words."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.corpora.segmentation import boundaries, cohesion, segmented
from fdkvc.corpora.transcripts import Transcript, Turn, clean, word_spans

TEXT = st.text(st.sampled_from("aB2é .:\nİ-"), max_size=12)


def dialog(*texts: str) -> Transcript:
    return Transcript("own", tuple(Turn("User", text) for text in texts))


@given(TEXT)
def test_words_cut_a_text_without_loss(text: str) -> None:
    spans = word_spans(text)

    assert "".join(text[start:end] for start, end in spans) == "".join(text.split())
    assert all(one[1] <= other[0] for one, other in pairwise(spans))


@given(st.text())
def test_cleaned_text_has_the_same_places_and_can_be_written(text: str) -> None:
    assert len(clean(text)) == len(text)
    clean(text).encode("utf-8")


def test_a_person_marks_topics_by_a_letter_a_turn() -> None:
    marked = dialog("a", "b", "c").with_schedule("a B a")

    assert [turn.topic for turn in marked.turns] == ["A", "B", "A"]
    assert marked.topics == ("A", "B")
    with pytest.raises(ValueError, match="the schedule has 2 letters, but the dialog has 3 turns"):
        marked.with_schedule("AB")
    with pytest.raises(ValueError, match="must be letters A to Z"):
        marked.with_schedule("A1B")


# ------------------------------------------------------------------------------- TextTiling


def test_a_new_topic_begins_where_the_words_change() -> None:
    food = ["soup and bread", "more soup", "bread, soup"]
    rain = ["rain today", "today rain", "rain"]
    found = segmented(dialog(*food, *rain, *food), block=3)

    assert [turn.topic for turn in found.turns] == ["A"] * 3 + ["B"] * 3 + ["C"] * 3


def test_cohesion_is_the_cosine_of_weighted_counts() -> None:
    # Of three turns, "a" is in two: log(4/2). "b" and "c" are in one each: log(4/1).
    one, two = np.log(4 / 2), np.log(4 / 1)
    first, second = np.array([one, two, 0]), np.array([one, 0, two])
    expected = first @ second / np.linalg.norm(first) / np.linalg.norm(second)

    np.testing.assert_allclose(cohesion(["a b", "A c!", ""], block=1), [expected, 0])


@given(
    st.lists(st.text(st.sampled_from("abcdE !"), max_size=12), min_size=1, max_size=9),
    st.integers(1, 12),
)
def test_cohesion_is_that_of_a_table_of_turns_by_words(texts: list[str], block: int) -> None:
    words = [re.findall(r"\w+", text.casefold()) for text in texts]
    known = sorted({word for turn in words for word in turn})
    counts = np.array([[turn.count(word) for word in known] for turn in words], float)
    counts *= np.log((len(texts) + 1) / np.maximum((counts > 0).sum(axis=0), 1))
    sides = [
        (counts[max(gap - block, 0) : gap].sum(axis=0), counts[gap : gap + block].sum(axis=0))
        for gap in range(1, len(texts))
    ]
    lengths = [np.linalg.norm(before) * np.linalg.norm(after) for before, after in sides]
    expected = [
        before @ after / (length or 1)
        for (before, after), length in zip(sides, lengths, strict=True)
    ]

    np.testing.assert_allclose(cohesion(texts, block), expected, atol=1e-12)


def test_segmenting_the_largest_dialog_takes_little_memory() -> None:
    turns = [" ".join(f"w{at}x{word}" for word in range(64)) for at in range(2048)]
    tracemalloc.start()
    try:
        began = process_time()
        similarity = cohesion(turns)
        assert process_time() - began < 20
        assert tracemalloc.get_traced_memory()[1] < 150_000_000
    finally:
        tracemalloc.stop()
    assert not similarity.any()


def test_the_deepest_valleys_are_boundaries() -> None:
    assert boundaries(np.array([0.9, 0.1, 0.8, 0.7, 0.75])) == [2]
    assert boundaries(np.array([0.5, 0.5, 0.5])) == []
    assert boundaries(np.array([])) == []


@given(st.lists(TEXT, min_size=1, max_size=60))
def test_any_dialog_can_be_segmented(texts: list[str]) -> None:
    found = segmented(dialog("hello", *texts))

    topics = [turn.topic or "" for turn in found.turns]
    assert topics == sorted(topics)
    assert topics[0] == "A"
    assert set(map(len, topics)) == {1}
