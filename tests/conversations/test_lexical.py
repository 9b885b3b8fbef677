"""The lexical embedding, and the recordings that it and real models make."""

import dataclasses
import hashlib
import math
import pickle
import struct
import weakref
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import SFC64, Generator, SeedSequence

from fdkvc.conversations import lexical
from fdkvc.conversations.lexical import LexicalRecordings, lexical_recording, word_vectors
from fdkvc.conversations.replay import Replay, replay
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.token_traits import TABLE, text_surprisal, word_surprisal
from fdkvc.core.transcripts import Mention, Transcript, Turn
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import World
from tests.examples import dialogs_of
from tests.worlds import with_heads

DIALOGS = dialogs_of("dialogues")


def said(*texts: str) -> Transcript:
    return Transcript("own", tuple(Turn("User", text) for text in texts))


def test_recordings_of_a_file_are_made_when_they_are_asked_for() -> None:
    made = LexicalRecordings(DIALOGS, seed=3)

    assert len(made) == len(DIALOGS) > 1
    for one, transcript in zip(made[:], DIALOGS, strict=True):
        expected = lexical_recording(transcript, 3)
        assert (one.transcript, one.tokens, one.source) == (
            transcript,
            expected.tokens,
            expected.source,
        )
        np.testing.assert_array_equal(one.keys, expected.keys)
    assert len(pickle.dumps(made)) == len(pickle.dumps(LexicalRecordings(DIALOGS, seed=3)))
    policies = (policy_named("fifo"),)
    pd.testing.assert_frame_equal(
        replay(Replay(policies), made),
        replay(Replay(policies), [lexical_recording(dialog, 3) for dialog in DIALOGS]),
    )


@pytest.mark.long
def test_of_many_recordings_as_many_tokens_are_kept_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read again and again in one order, of which the oldest kept would be of no use."""
    dialogs = [dataclasses.replace(DIALOGS[0], name=f"{number}") for number in range(8)]
    kept = lexical.Kept(5 * sum(DIALOGS[0].word_counts))
    monkeypatch.setattr(lexical, "KEPT", kept)
    made = LexicalRecordings(dialogs)
    seen, found = list[weakref.ref[Recording]](), 0
    for part in [
        made[at : at + 1] for _ in range(20) for at in range(8)
    ]:  # as jobs that come again
        found += id(part[0]) in {id(ref()) for ref in seen}
        seen.append(weakref.ref(part[0]))
        assert kept.tokens == sum(len(row.words) for row in kept._recordings.values()) <= kept.most
    assert found > 20 * 8 / 4
    assert made[0] is made[0] is made[:1][0]


def test_a_words_vector_is_the_same_everywhere() -> None:
    one, other, rome = word_vectors(["Straße", "STRASSE", "rome"])
    np.testing.assert_array_equal(one, other)
    np.testing.assert_allclose(
        rome[:3], [0.099164, 0.017403, -0.171121], atol=1e-6
    )  # as drawn when this was written


@given(st.lists(st.text(max_size=8)), st.integers(0, 2**31), st.integers(1, 80))
def test_a_vector_is_drawn_by_the_hash_of_its_word(
    words: list[str], seed: int, dimension: int
) -> None:
    vectors = word_vectors(words, seed, dimension)

    assert vectors.shape == (len(words), dimension)
    for word, vector in zip(words, vectors, strict=True):
        digest = hashlib.sha256(word.casefold().encode("utf-8", "replace")).digest()
        entropy = [seed, *struct.unpack("<8I", digest)]
        drawn = Generator(SFC64(SeedSequence(entropy))).standard_normal(dimension, np.float32)
        np.testing.assert_array_equal(vector, drawn / np.linalg.norm(drawn))


def test_each_different_word_is_drawn_and_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[object] = []
    surprising: list[str] = []

    def counted(seed: SeedSequence) -> SFC64:
        drawn.append(seed)
        return SFC64(seed)

    def noted(word: str) -> float:
        surprising.append(word)
        return text_surprisal(word)

    lexical_recording(said("any"))  # the projections, which are drawn once for all dialogs
    monkeypatch.setattr(lexical, "SFC64", counted)
    monkeypatch.setattr(lexical, "text_surprisal", noted)
    texts = [f"first{turn} second{turn} FIRST{turn} third first{turn}" for turn in range(50)]
    lexical_recording(said(*texts))
    assert len(drawn) == 101
    assert sorted(surprising) == sorted({word for text in texts for word in text.split()})
    lexical_recording(said(*texts))
    assert len(drawn) == 101, "a vector serves all dialogs"


def test_words_are_unit_vectors_in_random_directions() -> None:
    vectors = word_vectors([f"word {number}" for number in range(400)])

    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-6)
    cosines = (vectors @ vectors.T)[np.triu_indices(400, 1)]
    assert abs(cosines.mean()) < 0.002
    assert cosines.std() == pytest.approx(64**-0.5, rel=0.02)  # of uniform directions
    assert (word_vectors(["rome"], 0) != word_vectors(["rome"], 1)).any()


def test_projections_keep_scale_and_are_those_of_the_world() -> None:
    recording = lexical_recording(said("rome rome", "paris"))

    assert recording.keys.shape == (1, 3, World().head_dimension)
    np.testing.assert_array_equal(recording.keys[0, 0], recording.keys[0, 1])
    assert (recording.keys[0, 0] != recording.queries[0, 0]).any()
    many = lexical_recording(said(*(f"w{number}" for number in range(300))))
    for vectors in (many.queries, many.keys, many.values):
        lengths = (vectors**2).sum(axis=2)  # E‖Wᵀe‖² = h/d for a unit vector e
        assert lengths.mean() == pytest.approx(16 / 64, rel=0.5)


def test_a_recording_is_a_batch_with_the_dialogs_turns_and_topics() -> None:
    for dialog in DIALOGS:
        recording = lexical_recording(dialog)
        batch = recording.dialogs

        assert batch.rows == 1
        assert batch.turns == len(dialog.turns)
        assert batch.topic_names == dialog.topics
        assert batch.bounds[0].tolist() == list(recording.starts)
        labels = [batch.topic_label(topic) for topic in batch.current[0].tolist()]
        assert labels == [turn.topic for turn in dialog.turns]


@given(st.lists(st.text(st.sampled_from("ab2 .\né"), max_size=10), min_size=1, max_size=4))
def test_pieces_are_the_text_and_every_token_once(texts: list[str]) -> None:
    recording = lexical_recording(said("hello", *texts))
    for turn, text in enumerate(["hello", *texts]):
        lengths = recording.piece_lengths(turn)
        ends = np.cumsum(np.abs(lengths)).tolist()
        assert (ends or [0])[-1] == len(text)
        words = [text[end - n : end] for n, end in zip(lengths, ends, strict=True) if n > 0]
        assert words == [token.text for token in recording.tokens[turn]]


def test_a_mention_has_the_tokens_that_stand_for_any_of_it() -> None:
    text = lexical_recording(said("hi", "to San-Remo now")).text

    assert text.tokens_of(Mention(1, 3, 11)).tolist() == [2, 3, 4]
    assert text.tokens_of(Mention(1, 4, 5)).tolist() == [2]
    assert text.tokens_of(Mention(1, 2, 3)).tolist() == []


SPAN = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted)


@given(st.lists(SPAN, min_size=1, max_size=6), SPAN)
def test_tokens_of_a_mention_are_found_in_any_order(
    spans: list[list[int]], mention: list[int]
) -> None:
    recording = lexical_recording(said(" ".join("a" for _ in spans)))
    tokens = tuple(Token("a", *span) for span in spans)

    text = dataclasses.replace(recording, tokens=(tokens,)).text
    indexes = text.tokens_of(Mention(0, *mention)).tolist()

    places = range(mention[0], mention[1])
    assert indexes == [at for at, span in enumerate(spans) if {*range(*span)} & {*places}]


def test_tokens_may_overlap_or_stand_for_nothing() -> None:
    recording = lexical_recording(said("naïve x"))
    tokens = (Token("<s>", 0, 0), Token("na", 0, 3), Token("ïve", 2, 5))
    odd = dataclasses.replace(
        recording,
        tokens=(tokens,),
        embeddings=np.ones((3, 2), np.float32),
        queries=np.ones((1, 3, 2), np.float32),
        keys=np.ones((1, 3, 2), np.float32),
        values=np.ones((1, 3, 2), np.float32),
        surprisal=None,
    )

    assert odd.piece_lengths(0) == [0, 3, 2, -2]  # "naï", "ve", " x"


def test_a_head_is_a_row_with_vectors_of_its_own() -> None:
    recording = with_heads(*[lexical_recording(DIALOGS[0])] * 3)
    recording.keys[1] = recording.keys[1][:, ::-1]
    batch = recording.dialogs

    assert batch.rows == 3
    np.testing.assert_array_equal(batch.keys[1], recording.keys[1])
    np.testing.assert_array_equal(batch.embeddings[0], batch.embeddings[2])
    logits, _ = batch.products("logits", 0)
    assert (logits[0] != logits[1]).any()


@pytest.mark.parametrize(
    ("name", "array", "sentence"),
    [
        ("embeddings", np.ones((2, 4)), "own: embeddings are not those of 3 tokens"),
        ("keys", np.ones((2, 3, 16)), r"own: queries have shape \(1, 3, 16\)|own: keys have shape"),
        ("values", np.ones((1, 3, 5)), r"own: values have shape \(1, 3, 5\), but there are 1"),
        ("queries", np.full((1, 3, 16), np.nan), "queries holds a number that is not finite"),
        ("tokens", ((),), "own: it has no words"),
    ],
)
def test_vectors_that_do_not_fit_are_named(name: str, array: Any, sentence: str) -> None:
    recording = lexical_recording(said("one two three"))
    with pytest.raises(ValueError, match=sentence):
        dataclasses.replace(recording, **{name: array})


def test_every_row_of_the_table_is_a_word() -> None:
    rows = [line.split("\t") for line in TABLE.read_text("utf-8").splitlines() if "\t" in line]

    assert len(rows) == 4_076
    for word, count in rows:
        assert word_surprisal(word) == pytest.approx(math.log(2_647_357 / int(count)))
    assert word_surprisal("#") == pytest.approx(8.23, abs=0.005)


def test_the_surprisal_of_a_word_is_that_of_its_frequency() -> None:
    recording = lexical_recording(said("The the xyzzy", "."))

    rarely = math.log(2_647_357)  # of so many words that were counted, it would be one
    assert recording.surprisal is not None
    assert recording.surprisal[[0, 1]] == pytest.approx(math.log(2_647_357 / 72_656))
    assert recording.surprisal[2:].tolist() == pytest.approx(
        [rarely, math.log(2_647_357 / 189_073)]
    )
