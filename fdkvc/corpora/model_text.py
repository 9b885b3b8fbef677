"""A dialog as text for a language model, with its calls.

    <user> Two seats at the Metreon, please <end>
    <call> FindMovies ; location = San Fran ; theater_name = AMC Metreon <end>
    <system> Here is what they show <end>

A service call precedes the words of its turn. Each argument has the wording that the dialog used
last, so that writing the call requires the dialog and not a database's spelling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fdkvc.corpora.transcripts import Call, Transcript

Writer = Literal["user", "system", "call"]
"""The writer of a passage; a call is the system's."""


@dataclass(frozen=True)
class Passage:
    """The text between the mark of its writer and an end."""

    writer: Writer
    text: str
    turn: int
    """Of the dialog."""
    call: Call | None = None
    """The call that the text represents."""
    spans: tuple[tuple[int, int], ...] = ()
    """(start, end): characters of each argument's wording."""


def model_text(transcript: Transcript) -> tuple[Passage, ...]:
    """Return a dialog as passages; a turn without words has none.

    Examples
    --------
    >>> from fdkvc.corpora.formats import EXAMPLES, read_file
    >>> dialog = read_file(EXAMPLES / "dialogues.json")[0]
    >>> print(next(passage.text for passage in model_text(dialog) if passage.call))
    FindTrain ; date = Friday the 9th of May ; destination = Trieste ; origin = Ljubljana
    """
    return tuple(_passages(transcript))


def _passages(transcript: Transcript) -> Iterator[Passage]:
    calls: dict[int, list[Call]] = {}
    for call in () if transcript.calls_in_text else transcript.calls:
        calls.setdefault(call.turn, []).append(call)
    for at, turn in enumerate(transcript.turns):
        for call in calls.get(at, ()):
            yield _call_passage(call, transcript)
        if turn.text:
            yield Passage(transcript.spoken_by[at], turn.text, at)


def _call_passage(call: Call, transcript: Transcript) -> Passage:
    text, spans = call.method, []
    for argument in call.arguments:
        text += f"{SEPARATOR}{argument.slot}{EQUALS}"
        spans.append((len(text), len(text) + len(transcript.wording(argument))))
        text += transcript.wording(argument)
    return Passage("call", text, call.turn, call, tuple(spans))


SEPARATOR = " ; "
EQUALS = " = "


def read_call(text: str) -> tuple[str, dict[str, str]]:
    """Parse a call that a model wrote: its method, and its arguments by slot.

    Other text is ignored; of a repeated slot, the first counts.

    Examples
    --------
    >>> read_call(" FindMovies ; location = San Fran ; and ; theater_name = AMC Metreon")
    ('FindMovies', {'location': 'San Fran', 'theater_name': 'AMC Metreon'})
    """
    method, *rest = (each.strip() for each in text.split(SEPARATOR))
    found: dict[str, str] = {}
    for each in rest:
        slot, equals, value = each.partition(EQUALS)
        if equals:
            found.setdefault(slot.strip(), value.strip())
    return method, found
