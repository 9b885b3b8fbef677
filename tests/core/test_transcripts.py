"""Transcripts: finding what was said, and topics of one's own."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.scripts import word_spans
from fdkvc.core.transcripts import Transcript, Turn, clean
from fdkvc.player.moments import with_schedule

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
    marked = with_schedule(dialog("a", "b", "c"), "a B a")

    assert [turn.topic for turn in marked.turns] == ["A", "B", "A"]
    assert marked.topics == ("A", "B")
    with pytest.raises(ValueError, match="the schedule has 2 letters"):
        with_schedule(marked, "AB")
    with pytest.raises(ValueError, match="must be letters A to Z"):
        with_schedule(marked, "A1B")
