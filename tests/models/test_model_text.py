"""A dialog as model text: calls before the words of their turn, in the wording used last."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.conversations.formats import EXAMPLES, read_file, read_transcripts
from fdkvc.conversations.formats.annotated import read_dialogue
from fdkvc.core.transcripts import Transcript, Turn
from fdkvc.models.numpy.model_text import model_text, read_call


def turn(speaker: str, text: str, *frames: object) -> dict[str, object]:
    return {"speaker": speaker, "utterance": text, "frames": list(frames)}


def test_an_argument_is_written_as_it_was_said_last() -> None:
    state = {
        "active_intent": "FindMovies",
        "slot_values": {"location": ["San Francisco", "San Fran", "sf"], "seats": ["2"]},
    }
    call = {
        "method": "FindMovies",
        "parameters": {"seats": "2", "location": "San Francisco", "kids": "True", "genre": "drama"},
    }
    dialogue = {
        "turns": [
            turn("USER", "2 films in san francisco", {"service": "Movies", "state": state}),
            turn("SYSTEM", "In SF, at 12?"),
            turn("USER", "True, in San Fran", {"service": "Movies", "state": state}),
            turn("SYSTEM", "Here.", {"service": "Movies", "service_call": call}),
        ]
    }
    (transcript,) = read_dialogue(dialogue, 0)

    passages = model_text(transcript)

    assert [(passage.writer, passage.turn) for passage in passages] == [
        ("user", 0),
        ("system", 1),
        ("user", 2),
        ("call", 3),
        ("system", 3),
    ]
    # "drama" is said nowhere, and "True" says nothing: both stand as the call has them.
    assert passages[3].text == (
        "FindMovies ; genre = drama ; kids = True ; location = San Fran ; seats = 2"
    )
    ages = [
        argument.mention and 3 - argument.mention.turn for argument in transcript.calls[0].arguments
    ]
    assert ages == [None, None, 1, 3]
    spans = [passages[3].text[start:end] for start, end in passages[3].spans]
    assert spans == ["drama", "True", "San Fran", "2"]


@pytest.mark.parametrize("name", ["dialogues.json", "chat.json"])
def test_a_call_that_is_read_again_has_its_arguments(name: str) -> None:
    for transcript in read_file(EXAMPLES / name):
        calls = [passage for passage in model_text(transcript) if passage.call]
        assert [passage.call for passage in calls] == list(transcript.calls)
        assert calls
        for passage in calls:
            assert passage.call is not None
            method, arguments = read_call(passage.text)
            assert method == passage.call.method
            assert arguments == {
                argument.slot: transcript.wording(argument) for argument in passage.call.arguments
            }


def test_who_speaks_first_is_the_user_where_nobody_is_called_so() -> None:
    (named,) = read_transcripts(b"System: welcome\nUser: hello")
    (other,) = read_transcripts(b"Ann: hello\nBen: hi")

    assert [passage.writer for passage in model_text(named)] == ["system", "user"]
    assert [passage.writer for passage in model_text(other)] == ["user", "system"]


def test_a_turn_without_words_has_no_passage() -> None:
    transcript = Transcript("one", (Turn("User", "hello"), Turn("System", ""), Turn("User", "?")))

    assert [passage.turn for passage in model_text(transcript)] == [0, 2]


@given(st.text())
def test_whatever_a_model_writes_is_read_as_some_call(text: str) -> None:
    method, arguments = read_call(text)

    assert isinstance(method, str)
    assert all(isinstance(value, str) for value in arguments.values())
