"""Transcripts: finding what was said, and topics of one's own."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from fdkvc.core.scripts import word_spans
from fdkvc.core.transcripts import Transcript, Turn, clean

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
