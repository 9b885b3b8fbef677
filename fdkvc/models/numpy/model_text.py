"""A dialog as text for a language model, with its calls.

    <user> Two seats at the Metreon, please <end>
    <call> FindMovies ; location = San Fran ; theater_name = AMC Metreon <end>
    <system> Here is what they show <end>

A service call precedes the words of its turn. Each argument has the wording that the dialog used
last, so that writing the call requires the dialog and not a database's spelling.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from fdkvc.core.transcripts import SPAN_KINDS, Call, Transcript

Writer = Literal["user", "system", "call"]
"""The writer of a passage; a call is the system's."""

WRITERS: Mapping[Writer, str] = {
    "user": SPAN_KINDS["user"],
    "system": SPAN_KINDS["assistant"],
    "call": SPAN_KINDS["call"],
}
"""The label of each writer."""

Kind = Literal["system", "result"]


@dataclass(frozen=True)
class Passage:
    """The text between the mark of its writer and an end."""

    writer: Writer
    """Whose mark is before it."""
    text: str
    """What is between the mark and the end."""
    turn: int
    """The turn of the dialog to which it belongs."""
    call: Call | None = None
    """The call that the text represents."""
    spans: tuple[tuple[int, int], ...] = ()
    """(start, end): characters of each argument's wording."""
    kind: Kind | None = None
    """The kind of its turn, if that is a system prompt or a tool's result."""


def speaker_of(passage: Passage) -> str:
    """Return who speaks in a passage."""
    return SPAN_KINDS[passage.kind] if passage.kind else WRITERS[passage.writer]


def model_text(transcript: Transcript, *, as_json: bool = False) -> tuple[Passage, ...]:
    """Return a dialog as passages, its calls as lines or JSON; a turn without words has none.

    Examples
    --------
    >>> from fdkvc.conversations.formats import EXAMPLES, read_file
    >>> dialog = read_file(EXAMPLES / "dialogues.json")[0]
    >>> print(next(passage.text for passage in model_text(dialog) if passage.call))
    FindTrain ; date = Friday the 9th of May ; destination = Trieste ; origin = Ljubljana
    """
    call_passage = _json_call if as_json else _call_passage
    calls: dict[int, list[Call]] = {}
    for call in () if transcript.calls_in_text else transcript.calls:
        calls.setdefault(call.turn, []).append(call)
    passages: list[Passage] = []
    for number, turn in enumerate(transcript.turns):
        passages += (call_passage(call, transcript) for call in calls.get(number, ()))
        if turn.text:
            writer = transcript.spoken_by[number]
            passages.append(Passage(writer, turn.text, number, kind=turn.kind))
    return tuple(passages)


def _call_passage(call: Call, transcript: Transcript) -> Passage:
    text = call.method
    spans = []
    for argument in call.arguments:
        text += f"{SEPARATOR}{argument.slot}{EQUALS}"
        spans.append((len(text), len(text) + len(transcript.wording(argument))))
        text += transcript.wording(argument)
    return Passage("call", text, call.turn, call, tuple(spans))


def _json_call(call: Call, transcript: Transcript) -> Passage:
    text = f'[{{"name": {json.dumps(call.method)}, "arguments": {{'
    spans = []
    for number, argument in enumerate(call.arguments):
        value = json.dumps(transcript.wording(argument), ensure_ascii=False)[1:-1]
        text += f'{", " if number else ""}{json.dumps(argument.slot, ensure_ascii=False)}: "'
        spans.append((len(text), len(text) + len(value)))
        text += f'{value}"'
    return Passage("call", text + "}}]" + CALL_TAGS[1], call.turn, call, tuple(spans))


CALL_TAGS = "<tool_call>", "</tool_call>"
"""The tags around the JSON of a call, as SmolLM2 and other models write it."""

SEPARATOR = " ; "
EQUALS = " = "


def read_call(text: str) -> tuple[str, dict[str, str]]:
    """Parse a call that a model wrote, as a line or JSON: its method, and its arguments by slot.

    Other text of a line is ignored. If a slot is repeated, the first value counts.

    Examples
    --------
    >>> read_call(" FindMovies ; location = San Fran ; and ; theater_name = AMC Metreon")
    ('FindMovies', {'location': 'San Fran', 'theater_name': 'AMC Metreon'})
    >>> read_call('[{"name": "FindMovies", "arguments": {"seats": 2}}]</tool_call>')
    ('FindMovies', {'seats': '2'})
    """
    # 1. JSON: an object, or a list whose first one counts. A model may nest it without end.
    if text.lstrip().startswith(("[", "{")):
        with suppress(ValueError, RecursionError):
            calls = json.loads(text.strip().removesuffix(CALL_TAGS[1]))
            call, *_ = calls if isinstance(calls, list) else [calls]
            if isinstance(call, dict) and isinstance(call.get("arguments"), dict):
                values = {str(slot): str(value) for slot, value in call["arguments"].items()}
                return str(call.get("name")), values
    # 2. A line.
    method, *arguments = map(str.strip, text.split(SEPARATOR))
    by_slot: dict[str, str] = {}
    for argument in arguments:
        slot, equals, value = argument.partition(EQUALS)
        if equals:
            by_slot.setdefault(slot.strip(), value.strip())
    return method, by_slot
