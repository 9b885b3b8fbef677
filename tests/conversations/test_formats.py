"""Files of dialogs are read in every format, and refused in one sentence that names the place."""

from __future__ import annotations

import copy
import gzip
import json
import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.commands.main import main
from fdkvc.conversations import formats
from fdkvc.conversations.formats import (
    EXAMPLES,
    FORMATS,
    base,
    endings,
    read_dialogs,
    read_file,
    read_transcripts,
)
from fdkvc.conversations.formats.base import Format
from fdkvc.conversations.mentions import MentionFinder
from fdkvc.core import json_input
from fdkvc.core.json_input import check_structure, read_bytes
from fdkvc.core.limits import (
    MAX_DIALOG_FILE_BYTES,
    MAX_JSON_DEPTH,
    MAX_MENTIONS,
    MAX_TOKENS,
    MAX_TOPICS,
    MAX_TURN_TOKENS,
    MAX_TURNS,
)
from fdkvc.core.transcripts import Demand, Mention, Transcript, Turn
from fdkvc.explain.notes import not_read_notes
from tests.app_pages import ROOT, open_page
from tests.growth import LINEAR, growth
from tests.refusals import any_json, assert_one_sentence, assert_read_or_refused


def frame(service: str, **parts: Any) -> dict[str, Any]:
    return {"service": service, "slots": [], "actions": [], **parts}


def state(intent: str, **values: list[str]) -> dict[str, Any]:
    return {"active_intent": intent, "requested_slots": [], "slot_values": values}


def said(speaker: str, utterance: str, *frames: dict[str, Any]) -> dict[str, Any]:
    return {"speaker": speaker, "utterance": utterance, "frames": list(frames)}


def span(slot: str, start: int, end: int) -> dict[str, Any]:
    return {"slot": slot, "start": start, "exclusive_end": end}


def intent(name: str) -> dict[str, Any]:
    return {
        "act": "INFORM_INTENT",
        "slot": "intent",
        "values": [name],
        "canonical_values": [name],
    }


FLIGHT = {
    "dialogue_id": "7_00001",
    "services": ["Weather", "Flights"],
    "turns": [
        said(
            "USER",
            "Weather in london, england?",
            frame("Weather", slots=[span("city", 11, 26)], state=state("Ask", city=["london"])),
        ),
        said("SYSTEM", "Rain. 2 degrees at 2:30.", frame("Weather")),
        said(
            "USER",
            "Thanks, then a flight there for 2 people",
            frame("Weather", state=state("NONE", city=["london"])),
            frame(
                "Flights",
                actions=[intent("Fly")],
                state=state("Fly", to=["london, england"], seats=["2"]),
            ),
        ),
        said("SYSTEM", "From where?", frame("Flights")),
        said("USER", "Oslo", frame("Flights", slots=[span("from", 0, 4)])),
        said(
            "SYSTEM",
            "Done",
            frame(
                "Flights",
                service_call={
                    "method": "Search",
                    "parameters": {"to": "London", "from": "Oslo", "seats": "2", "class": "First"},
                },
            ),
        ),
    ],
}

CHAT = {
    "id": "repair",
    "messages": [
        {"role": "user", "content": "Code E4 at 12 Harrow Close", "topic": "boiler"},
        {"role": "assistant", "content": [{"type": "text", "text": "I see"}, {"type": "image"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "function": {
                        "name": "book",
                        "arguments": '{"place": {"street": "harrow close"}, "code": ["E4"], '
                        '"number": 12, "day": "Monday", "urgent": true}',
                    }
                }
            ],
        },
    ],
}


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


# ------------------------------------------------------------------------------- annotated


def test_an_annotated_dialogue_has_topics_and_demands() -> None:
    (dialog,) = read_transcripts(encoded([FLIGHT]))

    assert dialog.name == "7_00001"
    assert [turn.speaker for turn in dialog.turns] == ["USER", "SYSTEM"] * 3
    # The third turn names an intent of Flights; Weather's frame only repeats its state.
    assert [turn.topic for turn in dialog.turns] == ["Weather"] * 2 + ["Flights"] * 4
    assert dialog.topics == ("Weather", "Flights")
    calls = [demand for demand in dialog.demands if demand.kind == "call"]
    # The words of the state stand for the canonical London, and contain it.
    assert calls == [
        Demand("call", 5, "Search", "to", "London", (Mention(0, 11, 17), Mention(0, 11, 26))),
        Demand("call", 5, "Search", "from", "Oslo", (Mention(4, 0, 4),)),
        Demand("call", 5, "Search", "seats", "2", (Mention(1, 6, 7), Mention(2, 32, 33))),
    ]
    assert [demand.age for demand in calls] == [5, 1, 3]
    assert dialog.missing == 1  # nobody said First
    states = [(demand.turn, demand.slot) for demand in dialog.demands if demand.kind == "state"]
    assert states == [(1, "city"), (3, "to"), (3, "seats")]  # the inactive service demands nothing


def test_multiwoz_has_no_calls_and_copies_slots_and_yes_is_no_evidence() -> None:
    dialogue = {
        "dialogue_id": "PMUL1.json",
        "turns": [
            {
                "turn_id": "0",
                "speaker": "USER",
                "utterance": "a cheap hotel, no parking, yes with internet",
                "frames": [
                    {
                        "service": "hotel",
                        "slots": [{"slot": "hotel-area", "copy_from": "x", "value": ["north"]}],
                        "state": state(
                            "find_hotel",
                            **{
                                "hotel-pricerange": ["cheap"],
                                "hotel-internet": ["yes"],
                                "hotel-parking": ["no"],
                            },
                        ),
                    },
                    {"service": "taxi", "slots": [], "state": state("NONE")},
                ],
            },
            {"turn_id": "1", "speaker": "SYSTEM", "utterance": "Which area?", "frames": []},
        ],
    }
    (dialog,) = read_transcripts(encoded(dialogue), "dialogues_001.json")

    assert [turn.topic for turn in dialog.turns] == ["hotel", "hotel"]
    assert dialog.demands == (
        Demand("state", 1, "hotel", "hotel-pricerange", "cheap", (Mention(0, 2, 7),)),
    )


def test_of_many_annotated_spans_the_newest_count() -> None:
    # The finder takes neither half of a word for a mention, so these are the annotated ones.
    named = [
        said("USER", "Bedoux", frame("food", slots=[span("name", 0, 5)]))
        for _ in range(MAX_MENTIONS + 5)
    ]
    call = {"method": "Find", "parameters": {"name": "Bedou"}}
    dialogue = {"turns": [*named, said("SYSTEM", "Done", frame("food", service_call=call))]}
    (dialog,) = read_transcripts(encoded(dialogue))

    assert [mention.turn for mention in dialog.demands[0].mentions] == [*range(5, len(named))]


def known(dialog: Transcript, turn: int) -> dict[str, tuple[list[int], bool]]:
    """Return the slots of a state that a turn needs: where each was said, and if of others."""
    return {
        demand.slot: ([mention.turn for mention in demand.mentions], demand.carried)
        for demand in dialog.demands
        if demand.turn == turn
    }


def test_a_value_of_a_state_is_what_was_said_of_its_own_service() -> None:
    """Dear said of a dinner is no price of a room, as MultiWOZ 2.2 has both in its frames."""
    dinner = frame("food", state=state("find_food", **{"food-price": ["dear"]}))
    over = frame("food", state=state("NONE", **{"food-price": ["dear"]}))
    room = state("find_room", **{"room-price": ["dear"]})
    dialogue = {
        "turns": [
            # An intent that comes with nothing, before its time, is not what the turn is about.
            said("USER", "A dear dinner", dinner, frame("room", state=state("find_room"))),
            said("SYSTEM", "Bedou is dear"),  # nothing annotated: of what was spoken of before
            said("USER", "And a dear room", over, frame("room", state=room)),
            said("SYSTEM", "Arms is dear", frame("room", slots=[span("room-name", 0, 4)])),
            said("USER", "Fine. Is that dinner dear?", dinner, frame("room", state=state("NONE"))),
            said("SYSTEM", "Very"),
            said("USER", "The room, then", over, frame("room", state=room)),
        ]
    }
    (dialog,) = read_transcripts(encoded(dialogue))

    assert known(dialog, 1) == {"food-price": ([0], False)}
    assert known(dialog, 3) == {"room-price": ([2], False)}
    assert known(dialog, 5) == {"food-price": ([0, 1, 4], False)}
    assert known(dialog, 7) == {"room-price": ([2, 3], False)}


def test_a_value_that_was_said_of_another_service_alone_is_carried_over() -> None:
    copied = {"slot": "taxi-to", "copy_from": "room-name", "value": ["arms"]}
    taxi = state("book_taxi", **{"taxi-to": ["arms"], "taxi-area": ["north"]})
    dialogue = {
        "turns": [
            said(
                "USER", "A room at Arms", frame("room", state=state("f", **{"room-name": ["arms"]}))
            ),
            said("USER", "Food in the north", frame("food", state=state("f", area=["north"]))),
            said("USER", "A taxi there", frame("taxi", slots=[copied], state=taxi)),
            said("SYSTEM", "To Arms in the north?", frame("taxi")),
            said("USER", "Yes", frame("taxi", state=taxi)),
        ]
    }
    (dialog,) = read_transcripts(encoded(dialogue))

    assert known(dialog, 3) == {"taxi-to": ([0], True), "taxi-area": ([1], True)}
    # Once it was said of the taxi, that is where it is; and what is copied stays of both.
    assert known(dialog, 5) == {"taxi-to": ([0, 3], False), "taxi-area": ([3], False)}
    assert dialog.missing == 0


@pytest.mark.parametrize("said_so", ["center", "in the centre", "central"])
def test_every_wording_of_a_state_is_looked_for(said_so: str) -> None:
    """MultiWOZ 2.2 lists what a value may be called; the first stands for all."""
    room = state("find", **{"room-area": ["centre", "center", "central"]})
    dialogue = {"turns": [said("USER", f"a room, {said_so}", frame("room", state=room))]}
    (dialog,) = read_transcripts(encoded(dialogue))

    (demand,) = dialog.demands
    assert (demand.value, demand.mentions[-1].end) == ("centre", len(dialog.texts[0]))
    assert dialog.missing == 0


def test_values_of_a_state_that_nobody_said_are_counted_once_each() -> None:
    hotel = state("find", area=["centre"], stars=["4"], parking=["yes"])
    dialogue = {
        "turns": [
            said("USER", "a hotel in the center", frame("hotel", state=hotel)),
            said("SYSTEM", "with 4 stars?"),
            said("USER", "fine", frame("hotel", state=hotel)),
        ]
    }
    (dialog,) = read_transcripts(encoded(dialogue))

    assert [(demand.turn, demand.slot) for demand in dialog.demands] == [(3, "stars")]
    assert dialog.missing == 1  # the centre, though twice; the stars are said later


# ------------------------------------------------------------------------------- chat and text


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (encoded(CHAT), "chat.json"),
        (encoded([CHAT]), ""),
        (encoded({"conversations": [CHAT]}), ""),
        (b"\xef\xbb\xbf" + encoded(CHAT) + b"\n\n", "chat.jsonl"),
    ],
)
def test_chat_is_read_in_every_arrangement(content: bytes, name: str) -> None:
    (dialog,) = read_transcripts(content, name)

    assert dialog.name == "repair"
    assert [turn.text for turn in dialog.turns] == ["Code E4 at 12 Harrow Close", "I see", ""]
    assert [turn.topic for turn in dialog.turns] == ["boiler", None, None]
    mentions = {demand.slot: demand.mentions for demand in dialog.demands}
    assert mentions == {
        "place.street": (Mention(0, 14, 26),),
        "code.0": (Mention(0, 5, 7),),
        "number": (Mention(0, 11, 13),),
    }
    assert dialog.missing == 1  # Monday; truth is not looked for


def test_assistants_say_and_call_in_every_way_that_their_interfaces_have() -> None:
    messages = [
        {"role": "user", "content": [{"type": "input_text", "text": "Oslo, at 5"}]},
        {"role": "assistant", "content": None, "refusal": "I cannot do that"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "Nor that"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "But a flight"}]},
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "function_call": {"name": "fly", "arguments": '{"to": "Oslo"}'},
        },
        {
            "role": "assistant",
            "tool_calls": [
                {"type": "function", "function": {"name": "now", "arguments": ""}},
                {"type": "custom", "custom": {"name": "note", "input": "at 5"}},
            ],
        },
        {"role": "assistant", "content": None},
    ]
    (dialog,) = read_transcripts(encoded(messages))

    said = ["Oslo, at 5", "I cannot do that", "Nor that", "But a flight", "", "", ""]
    assert list(dialog.texts) == said
    called = [(call.turn, call.method) for call in dialog.calls]
    assert called == [(4, "fly"), (5, "now"), (5, "note")]
    assert dialog.demands == (
        Demand("call", 4, "fly", "to", "Oslo", (Mention(0, 0, 4),)),
        Demand("call", 5, "note", "input", "at 5", (Mention(0, 6, 10),), call_number=2),
    )


@pytest.mark.parametrize("arguments", ['{"to": "Os', "[" * 99, "[]", ["Oslo"], None])
def test_a_call_whose_arguments_are_no_object_is_its_text_alone(arguments: object) -> None:
    wrong = {"function": {"name": "fly", "arguments": arguments}}
    right = {"function": {"name": "pay", "arguments": {"for": "Oslo"}}}
    messages = [
        {"role": "user", "content": "Oslo"},
        {"role": "assistant", "content": "Done", "tool_calls": [wrong, right]},
    ]
    content = encoded([messages, [{"role": "user", "content": "hi"}]])

    dialog, other = read_transcripts(content)
    assert (dialog.malformed_calls, dialog.missing, other.malformed_calls) == (1, 0, 0)
    assert [call.method for call in dialog.calls] == ["pay"]
    assert [demand.source for demand in dialog.demands] == ["pay"]
    (said, _), _ = read_dialogs(content, calls=True)
    first, *_, last = said.texts[1].split("\n")
    assert json.loads(first) == {"name": "fly", "arguments": arguments}
    assert last == "Done"


# ------------------------------------------------------------------------------- the text of calls


FLY = '{"name": "fly", "arguments": {"to": "Oslo", "seats": 2}}'
CALLING: list[dict[str, Any]] = [
    {"role": "user", "content": "To Oslo, and back to Rome"},
    {
        "role": "assistant",
        "content": "One moment",
        "tool_calls": [
            {
                "type": "function",
                "function": {"name": "fly", "arguments": '{"to":"Oslo","seats":2}'},
            },
            {"type": "custom", "custom": {"name": "note", "input": "ref 7Q"}},
        ],
    },
    {"role": "tool", "content": "done"},
    {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "fly", "arguments": '{"to": "Rome", "seats": 2, "ref": "7Q"}'},
    },
]
SHARED = {
    "conversations": [
        {"from": "human", "value": "To Oslo, and back to Rome"},
        {"from": "function_call", "value": FLY},
        {"from": "observation", "value": "done"},
        {"from": "function_call", "value": f"[{FLY.replace('Oslo', 'Rome')}]"},
        {"from": "gpt", "value": "Both"},
    ]
}


def test_calls_of_a_chat_are_among_its_words_if_that_is_asked_for() -> None:
    for content in (CALLING, {"body": {"messages": CALLING}}):
        ((silent,), _) = read_dialogs(encoded(content))
        ((dialog,), _) = read_dialogs(encoded(content), calls=True)

        assert silent.texts == ("To Oslo, and back to Rome", "One moment", "done", "")
        assert dialog.texts == (
            "To Oslo, and back to Rome",
            f'{FLY}\n{{"name": "note", "arguments": {{"input": "ref 7Q"}}}}\nOne moment',
            "done",
            '{"name": "fly", "arguments": {"to": "Rome", "seats": 2, "ref": "7Q"}}',
        )
        assert dialog.spoken_by == silent.spoken_by
        # A call's own words say nothing before it, and a later one finds them there.
        assert {demand.slot for demand in silent.demands} == {"to"}
        demands = [
            (demand.turn, demand.slot, demand.mentions[-1].turn) for demand in dialog.demands
        ]
        assert demands == [(1, "to", 0), (3, "to", 0), (3, "seats", 1), (3, "ref", 1)]
        assert (silent.missing, dialog.missing) == (4, 2)


def test_calls_of_sharegpt_demand_their_arguments_and_may_be_among_the_words() -> None:
    ((silent,), _) = read_dialogs(encoded(SHARED))
    ((dialog,), _) = read_dialogs(encoded(SHARED), calls=True)

    said = ("To Oslo, and back to Rome", "", "done", "", "Both")
    assert silent.texts == said
    assert dialog.texts == (said[0], FLY, "done", FLY.replace("Oslo", "Rome"), "Both")
    assert dialog.turns[1].speaker == "assistant"
    assert [(call.turn, call.method) for call in silent.calls] == [(1, "fly"), (3, "fly")]
    assert [(demand.turn, demand.slot) for demand in silent.demands] == [(1, "to"), (3, "to")]
    assert [(demand.turn, demand.slot) for demand in dialog.demands] == [
        (1, "to"),
        (3, "to"),
        (3, "seats"),
    ]
    for text in ("fly to Oslo", '{"to": "Oslo"}', '"fly"', '[{"name": "fly"}]', "[]"):
        talk = [{"from": "human", "value": "hi"}, {"from": "function_call", "value": text}]
        (dialog,) = read_transcripts(encoded(talk))
        assert (dialog.texts[1], dialog.calls) == (
            text,
            (),
        )  # of no form that is known, it is words


def test_service_calls_of_sgd_may_be_among_the_words_and_spans_stay_where_they_are() -> None:
    dialogue = copy.deepcopy(FLIGHT)
    turns: Any = dialogue["turns"]
    turns[5]["frames"][0]["slots"] = [span("done", 0, 4)]
    turns.append(
        said("USER", "ok", frame("Flights", state=state("Fly", done=["done"], klass=["First"])))
    )
    ((dialog,), _) = read_dialogs(encoded(dialogue), calls=True)
    (silent,) = read_transcripts(encoded(dialogue))

    arguments = {"to": "London", "from": "Oslo", "seats": "2", "class": "First"}
    call = json.dumps({"name": "Search", "arguments": arguments})
    assert dialog.texts[5] == f"{call}\nDone"
    assert dialog.texts[:5] == silent.texts[:5]
    assert [turn.topic for turn in dialog.turns] == [turn.topic for turn in silent.turns]
    first = len(call) + 1
    done, klass = (demand for demand in dialog.demands if demand.turn == 7)
    assert done.mentions == (Mention(5, first, first + 4),)
    assert (klass.slot, dialog.texts[5][slice(*klass.mentions[0][1:])]) == ("klass", "First")
    known = [demand for demand in silent.demands if demand.kind == "call"]
    assert [demand for demand in dialog.demands if demand.kind == "call"] == known
    assert (silent.missing, dialog.missing) == (2, 1)


def test_messages_alone_are_one_conversation_and_lists_are_several() -> None:
    messages = [{"role": "user", "content": "hello"}, {"role": "bot", "content": "hi"}]
    lines = "\n".join(json.dumps(message) for message in messages).encode()

    (one,) = read_transcripts(encoded(messages))
    (by_line,) = read_transcripts(lines)
    several = read_transcripts(encoded([messages, messages]))
    conversations = read_transcripts(b"\n".join([encoded({"messages": messages})] * 3))

    assert one == by_line
    assert [turn.speaker for turn in one.turns] == ["user", "bot"]
    assert [dialog.name for dialog in several] == ["dialog 0", "dialog 1"]
    assert len(conversations) == 3


def test_conversations_as_sharegpt_has_them_are_read() -> None:
    said = [
        {"from": "system", "value": "Be kind"},
        {"from": "human", "value": "hello"},
        {"from": "gpt", "value": "hi"},
    ]
    shared = {"id": "s1", "conversations": said}

    for value in (shared, [shared], {"conversations": said}, [said], said):
        (dialog,) = read_transcripts(encoded(value))
        assert [turn.speaker for turn in dialog.turns] == ["system", "user", "assistant"]
        assert dialog.texts == ("Be kind", "hello", "hi")
        assert dialog.spoken_by == ("system", "user", "system")
        assert dialog.name == ("s1" if value in (shared, [shared]) else "dialog 0")
    lines = b"\n".join(encoded({**shared, "id": name}) for name in "ab")
    assert [dialog.name for dialog in read_transcripts(lines, "shared.jsonl")] == ["a", "b"]


def test_requests_of_a_batch_are_read() -> None:
    requests = [
        {
            "custom_id": f"request-{number}",
            "method": "POST",
            "url": "/v1/chat/completions",
            "body": {"model": "any", "messages": CHAT["messages"]},
        }
        for number in range(2)
    ]
    transcripts = read_transcripts(b"\n".join(map(encoded, requests)), "batch.jsonl")

    assert [dialog.name for dialog in transcripts] == ["request-0", "request-1"]
    (chat,) = read_transcripts(encoded(CHAT))
    assert all(
        (transcript.turns, transcript.demands) == (chat.turns, chat.demands)
        for transcript in transcripts
    )


def test_requests_for_responses_are_read() -> None:
    flight = {"type": "function_call", "call_id": "1", "name": "fly", "arguments": '{"to": "Oslo"}'}
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "To Oslo"}]},
        {"type": "reasoning", "summary": []},
        flight,
        {"type": "function_call_output", "call_id": "1", "output": "at 5"},
        {"type": "custom_tool_call", "call_id": "2", "name": "note", "input": "at 5"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Booked"}],
        },
    ]
    bodies = [{"input": items, "instructions": "Be kind"}, {"input": "hello"}]
    requests = [{"custom_id": str(at), "body": body} for at, body in enumerate(bodies)]
    long, short = read_transcripts(b"\n".join(map(encoded, requests)), "batch.jsonl")

    assert long.texts == ("Be kind", "To Oslo", "", "at 5", "", "Booked")
    assert [turn.speaker for turn in long.turns] == [
        *("system", "user", "assistant", "tool", "assistant", "assistant")
    ]
    assert long.demands == (
        Demand("call", 2, "fly", "to", "Oslo", (Mention(1, 3, 7),)),
        Demand("call", 4, "note", "input", "at 5", (Mention(3, 0, 4),), call_number=1),
    )
    assert short.turns == (Turn("user", "hello"),)
    for wrong in (3, ["hello"], {"role": "user"}, [{"content": "hello"}]):
        sentence = r"^dialog 0, body(: 'input' is missing|, item 0 is not|, item 0: 'role' is)"
        with pytest.raises(ValueError, match=sentence):
            read_transcripts(encoded([{"body": {"input": wrong}}]))


def test_plain_text_may_begin_with_a_bracket_where_its_name_says_so() -> None:
    text = "\n\nAda Müller: [laughs] at 5: yes\nand more\n\nBot: ok\n=====\nAda: again\n".encode()
    first, second = read_transcripts(text)

    assert [turn.speaker for turn in first.turns] == ["Ada Müller", "Bot"]
    assert [turn.text for turn in first.turns] == ["[laughs] at 5: yes\nand more", "ok"]
    assert [turn.text for turn in second.turns] == ["again"]
    with pytest.raises(ValueError, match="line 1 has no speaker"):
        read_transcripts(b"[10:03] hello", "log.txt")


def test_a_line_of_a_turn_may_have_a_colon_and_a_speaker_a_part_in_brackets() -> None:
    text = (
        b"Bob (host): hello\nAnn: one moment\nBob (host): where is it?\n"
        b"Ann: here\nAddress: 12 High St\nPhone: 555\nBob (host): thanks\n---\nAnn: hi\nZoe: hi"
    )
    first, second = read_transcripts(text)

    assert [turn.speaker for turn in first.turns] == ["Bob (host)", "Ann"] * 2 + ["Bob (host)"]
    assert first.texts[3] == "here\nAddress: 12 High St\nPhone: 555"
    assert [turn.speaker for turn in second.turns] == ["Ann", "Zoe"]
    # Who speaks once, after two others, is told from such a line by nothing; once more, and it is.
    (three,) = read_transcripts(b"A: a\nB: b\nC: c\nC: d")
    assert [turn.speaker for turn in three.turns] == ["A", "B", "C", "C"]


def test_the_projects_own_dialogs_have_topics_that_return_and_old_evidence() -> None:
    paths = [path for path in sorted(EXAMPLES.glob("*.json")) if path.stem != "birthday"]
    dialogs = [dialog for path in paths for dialog in read_file(path)]

    assert len(dialogs) == 6
    for dialog in dialogs:
        assert len(dialog.topics) >= 2
        changes = [one.topic != other.topic for one, other in pairwise(dialog.turns)]
        assert sum(changes) >= len(dialog.topics)
        assert any(demand.kind == "call" and demand.age > 6 for demand in dialog.demands)
        assert not dialog.missing


def test_what_is_no_text_or_turns_text_around_is_replaced() -> None:
    content = encoded([{"role": "us\u202eer", "content": "a\u0000b \ud800 \u2067c"}])
    (dialog,) = read_transcripts(content)

    assert dialog.turns[0].text == "a b \ufffd \ufffdc"
    assert dialog.turns[0].speaker == "us\ufffder"


# ------------------------------------------------------------------------------- broken and hostile


def changed(path: str, value: Any) -> bytes:
    """Return the annotated dialogue with one value replaced, or dropped where it is `...`."""
    dialogue = copy.deepcopy(FLIGHT)
    at: Any = dialogue
    *names, last = (int(name) if name.isdigit() else name for name in path.split("."))
    for name in names:
        at = at[name]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return encoded([dialogue])


def chatted(**message: Any) -> bytes:
    return encoded([{"role": "user", "content": "hello"}, {"role": "user", **message}])


HERE = r"dialogue 0 \(7_00001\)"


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "the file is empty"),
        (b"[]", "the file has no dialogs"),
        (b"{}", "it has no fields; no list in it has objects with a speaker"),
        (encoded([{"body": 3}]), "dialog 0: 'body' is missing or not an object"),
        (encoded([{"body": {}}]), "dialog 0, body: 'messages' is missing"),
        (encoded([{"conversations": 3}]), "dialog 0: 'conversations' is missing"),
        (encoded([{"from": "human"}]), "dialog 0, turn 0: 'content' is missing"),
        (encoded([{"from": 3, "value": ""}]), "dialog 0, turn 0: 'from' is missing"),
        (b"[3]", "dialog 0 is not an object"),
        (b"[null]", "dialog 0 is not an object"),
        (b'{"conversations": 3}', "'conversations' is not a list"),
        (b"just words\n", "line 1 has no speaker"),
        (b"User: hi\n\xff\xfe", "line 2 of the file is not UTF-8 text"),
        (b"\x00\x01\x02", "line 1 has no speaker"),
        (b"User:\nSystem:\n", "dialog 0: it has no words"),
        (b'[{"role": "user",\n "content": hello}]', "line 2 is not JSON at column 13: expecting"),
        (b'{"messages": []}\n{"messages": [}', "line 2 is not JSON at column 15"),
        (
            b'[{"role": "user", "content": "a',
            "at column 30: unterminated string$",
        ),
        (b'[{"role": NaN}]', "cannot be read: NaN is not JSON"),
        (b'[{"role": ' + b"9" * 5000 + b"}]", "the file has a number that cannot be read"),
        (b"\n[" * 100_000, "line 34 is nested too deeply: at most 32"),
        (b'{"a":' * 100_000, "line 1 is nested too deeply"),
        (b'["\\"",' + b"[" * 40, "line 1 is nested too deeply"),
        (b'\\"' + b"[" * 40, "line 1 has no speaker"),
        (b"[" + b"{}," * 1000 + b"{}]", "dialog 0: it has no fields"),
        (encoded([[{"role": "a", "content": "b"}] * (MAX_TURNS + 1)]), "it has 2,049 turns"),
        (b"A: yes\n" * 3000, "dialog 0: it has 3,000 turns, but at most"),
        (b"A: " + b"a " * (MAX_TURN_TOKENS + 1), "dialog 0, turn 0: it has 32,769 tokens"),
        (b"A: " + b"\nA: ".join([b"a " * 2**15] * 5), "dialog 0: it has 163,840 tokens"),
        (
            encoded([{"role": "a", "content": "b", "topic": str(at)} for at in range(40)]),
            f"it has 40 topics, but at most {MAX_TOPICS}",
        ),
        (changed("dialogue_id", 3), "dialogue 0: 'dialogue_id' is missing"),
        (changed("turns", {}), f"{HERE}: 'turns' is missing or not a list"),
        (changed("turns", []), "7_00001: it has no words"),
        (changed("turns.1", "hi"), f"{HERE}, turn 1 is not an object"),
        (changed("turns.1.utterance", ...), f"{HERE}, turn 1: 'utterance' is missing"),
        (changed("turns.1.speaker", 4), f"{HERE}, turn 1: 'speaker' is missing or not a text"),
        (changed("turns.1.frames", "x"), f"{HERE}, turn 1: 'frames' is missing or not a list"),
        (changed("turns.2.frames.1", 5), f"{HERE}, turn 2, frame 1 is not an object"),
        (changed("turns.2.frames.1.service", ...), "turn 2, frame 1: 'service' is missing"),
        (changed("turns.2.frames.1.state", []), "turn 2, frame 1: 'state' is missing or not an"),
        (
            changed("turns.2.frames.1.state.slot_values", ["a"]),
            "turn 2, frame 1: 'slot_values' is missing",
        ),
        (
            changed("turns.2.frames.1.state.slot_values.to", [{}]),
            "frame 1, slot_values 'to' must contain only",
        ),
        (
            changed("turns.0.frames.0.slots.0.exclusive_end", 99),
            "'start' 11 and 'exclusive_end' 99 are not in",
        ),
        (
            changed("turns.0.frames.0.slots.0.start", -1),
            "turn 0, frame 0, slot 0: 'start' -1 and",
        ),
        (
            changed("turns.0.frames.0.slots.0.start", True),
            "turn 0, frame 0, slot 0: 'start' is missing",
        ),
        (
            changed("turns.2.frames.1.actions.0.canonical_values", [None]),
            "action 0, canonical_values must contain only",
        ),
        (
            changed("turns.5.frames.0.service_call.method", ...),
            "frame 0, service_call: 'method' is missing",
        ),
        (
            changed("turns.5.frames.0.service_call.parameters.to", ["London"]),
            "service_call, parameters 'to' must contain",
        ),
        (chatted(content=3), "dialog 0, turn 1: 'content' is missing"),
        (chatted(content=[3]), "dialog 0, turn 1: a part of 'content' is not"),
        (chatted(content="a", topic=4), "dialog 0, turn 1: 'topic' is missing"),
        (chatted(topic="a"), "dialog 0, turn 1: 'content' is missing"),
        (
            chatted(content=[{"type": "output_text"}]),
            "a part of 'content': 'text' is missing",
        ),
        (chatted(refusal=3), "dialog 0, turn 1: 'refusal' is missing"),
        (chatted(function_call=3), "dialog 0, turn 1: 'function_call' is missing"),
        (chatted(content="a", tool_calls=4), "dialog 0, turn 1: 'tool_calls' is missing"),
        (
            chatted(content="a", tool_calls=[{"function": {"arguments": "{"}}]),
            "dialog 0, turn 1: 'name' is missing",
        ),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        read_transcripts(content)
    assert_one_sentence(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        encoded(
            [
                [{"role": "a", "content": text}]
                for text in ("hi", "a " * (MAX_TURN_TOKENS + 1), "there")
            ]
        ),
        b"A: hi\n---\nA: " + b"a " * (MAX_TURN_TOKENS + 1) + b"\n---\nA: there",
    ],
)
def test_a_dialog_that_is_too_large_is_left_out_and_said(content: bytes) -> None:
    dialogs, left = read_dialogs(content)

    assert [(dialog.name, *dialog.texts) for dialog in dialogs] == [
        ("dialog 0", "hi"),
        ("dialog 2", "there"),
    ]
    assert left == ("dialog 1, turn 0: it has 32,769 tokens, but at most 32,768 are allowed",)
    with pytest.raises(ValueError, match="dialog 1, turn 0: it has 32,769 tokens"):
        read_transcripts(content)


def test_a_file_is_not_parsed_beyond_its_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("it was parsed")

    monkeypatch.setattr(json_input, "MAX_JSON_VALUES", 1000)
    monkeypatch.setattr(formats, "parse_json", never)
    for content, sentence in (
        (b"[" * (MAX_JSON_DEPTH + 1), "nested too deeply"),
        (b"[" + b"0," * 1001 + b"0]", "the file has 1,002 values, but at most 1,000"),
        (b"[" + b" " * MAX_DIALOG_FILE_BYTES, "50,000,001 bytes, but at most 50,000,000"),
    ):
        with pytest.raises(ValueError, match=sentence):
            read_transcripts(content)


def of_many_arguments(count: int) -> bytes:
    """Return a dialog with a call whose arguments' wordings stand nearly everywhere."""
    arguments = {f"s{at}": "a " * 30 + str(at) for at in range(count)} | {"found": "a"}
    calls = [{"function": {"name": "f", "arguments": arguments}}]
    messages = [{"role": "user", "content": "a " * count} for _ in range(8)]
    return encoded([*messages, {"role": "user", "content": "", "tool_calls": calls}])


def test_evidence_of_many_wordings_is_found_in_linear_time() -> None:
    (dialog,) = read_transcripts(of_many_arguments(1000))

    assert (len(dialog.demands), dialog.missing) == (1, 1000)
    assert sum(len(text.split()) for text in dialog.texts) <= MAX_TOKENS
    assert growth(read_transcripts, of_many_arguments, 125) < LINEAR


def test_sizes_are_checked_before_values_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("values were looked for")

    monkeypatch.setattr(MentionFinder, "__init__", never)
    long = "a " * (MAX_TURN_TOKENS + 1)
    for content in (chatted(content=long), changed("turns.0.utterance", long)):
        with pytest.raises(ValueError, match=r"it has 32,.* tokens, but at most 32,768"):
            read_transcripts(content)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            changed("turns.0.frames.0.slots", [span("a", 0, 9)] * 120_000),
            "7_00001: its slots have 1,080,.* characters, but at most 1,000,000",
        ),
        (
            changed("turns.0.frames", [{"service": f"S{at}"} for at in range(40)]),
            "7_00001: it has 4. services, but at most 32",
        ),
        (
            chatted(tool_calls=[{"function": {"name": "f", "arguments": {"a": "b" * 4_000_001}}}]),
            "demands 4,000,001 characters, of values",
        ),
        (
            chatted(
                tool_calls=[{"function": {"name": "f", "arguments": {"k" * 1_000_000: [1] * 4097}}}]
            ),
            "it demands 4,097 values, but at most 4,096",
        ),
        (b"{}\n" * 1_000_001, "the file has 1,000,001 lines, but at most 1,000,000"),
    ],
)
def test_work_has_a_bound(content: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_transcripts(content)


@pytest.mark.parametrize(
    "content",
    [
        lambda count: changed("turns.0.frames.0.slots", [span("a", 0, 9)] * (4 * count)),
        lambda count: chatted(
            tool_calls=[{"function": {"name": "f", "arguments": {"a": "b" * (1000 * count)}}}]
        ),
        lambda count: chatted(
            tool_calls=[{"function": {"name": "f", "arguments": {"k" * count: [1] * count}}}]
        ),
        lambda count: b"\n" * (1000 * count) + chatted(content="a"),
    ],
    ids=["slots", "characters", "values", "lines"],
)
def test_up_to_it_work_is_linear(content: Callable[[int], bytes]) -> None:
    assert growth(read_transcripts, content, 125) < LINEAR


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'["' + b'\\"' * 5_000_000 + b'"]', ""),
        (b"[" + b"\n" * 10_000_000 + b"]", ""),
        (b"]" * 10_000_000, ""),  # that the parser refuses
        (b"]" * 300 + b"[" * 10_000, ""),
        (b"[" * 300 + b"]" * 300, "line 1 is nested too deeply: at most 32"),
        (b'["a", "' + b"b" * 12_000_000 + b'"]', ""),
        (b'["a", "' + b"b" * 12_000_001 + b'"]', "a text of the file has 12,000,001 bytes"),
        (b'["a"' + b" " * 12_000_001 + b', "b"]', ""),
        (b'["]",\n[' + b"[" * 300, "line 2 is nested too deeply: at most 32"),
    ],
)
def test_the_structure_of_json_is_checked_in_little_memory(content: bytes, sentence: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=sentence) if sentence else nullcontext():
            check_structure(content)
        assert tracemalloc.get_traced_memory()[1] < 6 * len(content) + 20_000
    finally:
        tracemalloc.stop()


JSON = any_json(
    *("turns", "speaker", "utterance", "frames", "service", "slots", "state", "slot_values"),
    *("messages", "role", "content", "tool_calls", "function", "name", "arguments", "topic"),
    *("function_call", "refusal", "type", "custom", "input", "instructions", "output"),
    *("conversations", "from", "value", "body"),
    *("service_call", "parameters", "method"),
)


@pytest.mark.long
@given(JSON, st.sampled_from(["", "a.jsonl", "a.txt"]), st.booleans())
def test_any_json_is_read_or_refused_in_a_sentence(value: Any, name: str, calls: bool) -> None:
    assert_read_or_refused(lambda: read_dialogs(json.dumps(value).encode(), name, calls)[0])


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_read_or_refused_in_a_sentence(content: bytes) -> None:
    assert_read_or_refused(lambda: read_transcripts(content))


PATHS = st.sampled_from(
    [
        *("turns.0", "turns.0.frames", "turns.0.frames.0", "turns.0.frames.0.slots"),
        *("turns.0.frames.0.slots.0", "turns.0.frames.0.slots.0.start", "turns.0.utterance"),
        *("turns.2.frames.1.state", "turns.2.frames.1.state.slot_values.to", "dialogue_id"),
        *("turns.2.frames.1.actions", "turns.2.frames.1.actions.0.values", "turns.2.frames.1"),
        *("turns.5.frames.0.service_call", "turns.5.frames.0.service_call.parameters"),
    ]
)


@given(PATHS, JSON, st.booleans())
def test_a_dialogue_with_anything_in_a_place_is_read_or_refused(
    path: str, value: Any, calls: bool
) -> None:
    assert_read_or_refused(lambda: read_dialogs(changed(path, value), calls=calls)[0])


@given(st.data())
def test_a_file_cut_or_overwritten_anywhere_is_read_or_refused(data: st.DataObject) -> None:
    content = encoded([FLIGHT, CHAT])
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(start + 20, len(content))))
    assert_read_or_refused(
        lambda: read_transcripts(content[:start] + data.draw(st.binary(max_size=6)) + content[end:])
    )


# ------------------------------------------------------------------------------- the registry


def test_every_format_stands_in_the_documentation_and_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    documented = (ROOT / "fdkvc/conversations/formats.md").read_text("utf-8").splitlines()
    heading = next(at for at, line in enumerate(documented) if line.startswith("|"))
    table = list(takewhile(lambda line: line.startswith("|"), documented[heading:]))
    assert len(table[2:]) == len({file_format.label for file_format in FORMATS.values()})
    main(["dialogs", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert all(file_format.label in said for file_format in FORMATS.values())


@pytest.mark.parametrize("name", ["a.yaml", "a.csv", "a.yaml.gz"])
def test_a_table_is_not_read_as_a_talk(name: str) -> None:
    content = b"messages:\n- role: user\n  content: hello\n"
    packed = gzip.compress(content) if name.endswith("gz") else content
    with pytest.raises(ValueError, match=r"^a .\w+ file is not read: give"):
        read_transcripts(packed, name)
    (dialog,) = read_transcripts(b'{"messages": [{"role": "user", "content": "hi"}]}', "a.yaml")
    assert dialog.texts == ("hi",)


def test_a_new_format_is_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def read_tabs(text: str, number: int, calls: bool) -> Iterator[Transcript]:
        said = (line.split("\t") for line in text.splitlines())
        yield Transcript(f"dialog {number}", tuple(Turn(who, words) for who, words in said))

    def read_pairs(value: dict[str, Any], number: int, calls: bool) -> Iterator[Transcript]:
        yield Transcript(f"dialog {number}", tuple(Turn(*pair) for pair in value["exchange"]))

    new = (
        Format("tabs", "tables", ("tsv",), None, read_tabs),
        Format("pairs", "pairs of a name and words", ("json",), "exchange", read_pairs),
    )
    for file_format in new:
        monkeypatch.setitem(FORMATS, file_format.key, file_format)

    for content, name in (
        (b"User\thello", "own.tsv"),
        (b'[{"exchange": [["User", "hello"]]}]', "own.json"),
        (b"User: hello", "own.txt"),
        (b"User: hello", ""),
    ):
        (dialog,) = read_transcripts(content, name)
        assert dialog.turns == (Turn("User", "hello"),)
    for content in (
        b'{"talk": {"exchange": [["User", "hello"]]}}',
        b'{"items": [{"role": "User", "content": "hello"}]}',
    ):
        (dialog,) = read_transcripts(content)
        assert dialog.texts == ("hello",)
    assert endings() == ["json", "jsonl", "traj", "md", "txt", "tsv"]
    app = open_page("dialogs", file="own")
    upload = app.get("file_uploader")[0].proto
    packed = {".gz", ".bz2", ".xz", ".zip"}
    assert {*upload.type} == {
        ".json",
        ".jsonl",
        ".traj",
        ".md",
        ".txt",
        ".tsv",
        ".safetensors",
    } | packed
    assert "tables (.tsv), pairs of a name and words (.json), or a trace" in upload.help


def test_a_file_of_the_system_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "kmsg")
    writer = os.open(tmp_path / "kmsg", os.O_RDWR)
    try:
        with pytest.raises(ValueError, match="kmsg' cannot be read: it is not a regular"):
            read_bytes(tmp_path / "kmsg", 10)
        monkeypatch.setattr(stat, "S_ISREG", lambda mode: True)  # as /proc/kmsg says of itself
        with pytest.raises(ValueError, match=r"kmsg' cannot be read: it has no content now$"):
            read_bytes(tmp_path / "kmsg", 10)
        os.write(writer, b"a message")
        assert read_bytes(tmp_path / "kmsg", 10) == b"a message"
    finally:
        os.close(writer)


def test_of_too_many_dialogs_a_sample_drawn_by_a_seed_is_read_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    chats = [[{"role": "user", "content": f"number {number}"}] for number in range(30)]
    as_text = "\n---\n".join(f"User: number {number}" for number in range(30)).encode()
    every_dialog = read_transcripts(encoded(chats))
    monkeypatch.setattr(base, "MAX_DIALOGS", 12)
    for content in (encoded(chats), as_text):
        sample = read_transcripts(content)
        again = read_transcripts(content)

        assert [dialog.texts for dialog in sample] == [dialog.texts for dialog in again]
        places = [int(dialog.name.split()[-1]) for dialog in sample]
        assert len({*places}) == 12
        assert [dialog.texts for dialog in sample] == [
            every_dialog[place].texts for place in places
        ]
        assert max(places[:6]) >= 12  # its beginning is a sample, too
        (note,) = not_read_notes(sample)
        assert "dialogs beside a sample of 12 drawn by seed 0 (18×)" in note
