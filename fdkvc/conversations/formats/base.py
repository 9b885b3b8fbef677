"""The interface of a format: how its files are recognized and read."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from fdkvc.conversations.sessions import Session
from fdkvc.core.json_input import Fields, JsonObject
from fdkvc.core.limits import MAX_DIALOGS
from fdkvc.core.transcripts import SkippedError, Transcript, clean
from fdkvc.core.unread import Unread

SAMPLE_SEED = 0
"""The seed that draws dialogs of a file with too many."""


Dialogs = Iterator[Transcript | SkippedError]
"""Dialogs of a file, and errors in place of those that are left out."""


@dataclass(frozen=True)
class Format:
    """A format of dialogs."""

    key: str
    """Its name in the registry."""
    label: str
    """Its name on pages."""
    endings: tuple[str, ...]
    """Endings of file names. A text is read as the format of its ending, or else as the first text
    format."""
    field: str | None
    """The field by which a JSON dialog is recognized; None for a text format."""
    read: Callable[[Any, int, bool], Dialogs]
    """Called with a dialog's object or a whole text, the number of its first dialog in the file,
    and whether to prepend the text of calls (`with_calls`). Raises a SkippedError, or yields it in
    place of the dialog if others follow."""
    recognizes: Callable[[Any], bool] | None = None
    """Whether an object with the field has this format; by default, each has. Of a text format that
    is recognized by its content and not by the ending: whether a text has it."""
    sessions: Callable[[str], list[Session]] | None = None
    """Of a log of a coding agent: reads a text into sessions; `read` gives their contexts."""

    def fits(self, value: JsonObject) -> bool:
        """Whether an object is a dialog in this format."""
        return self.field in value and (self.recognizes is None or self.recognizes(value))


Placed = tuple[JsonObject, str]
"""A message and its place in the file."""

Messages = Iterator[Placed]
"""Messages in the order of the file."""


def restated(message: JsonObject, *read: str, **fields: Any) -> Fields:
    """Return a message with other fields in place of those that are read.

    Examples
    --------
    >>> restated({"from": "human", "says": "hello", "mood": "glad"}, "from", "says", role="user")
    {'mood': 'glad', 'role': 'user'}
    """
    return {name: value for name, value in message.items() if name not in read} | fields


def read_each(
    read: Callable[[Any, int, bool], Dialogs],
    values: Sequence[Any],
    noun: str,
    number: int,
    calls: bool,
    file_unread: Unread,
) -> Dialogs:
    """Yield the dialogs of several values, as `Format.read` does of one.

    `noun` is what a value is called, and `number` is that of the first. What is not read beside
    them (`file_unread`) counts with the first dialog, and of too many values all but a sample.
    """
    file_unread = Unread.of((*file_unread.items(), *left_out(len(values), noun)))
    for place in places_of_sample(len(values)):
        index = number + place
        try:
            for dialog in read(values[place], index, calls):
                if isinstance(dialog, Transcript) and file_unread:
                    unread = Unread.of((*dialog.unread, *file_unread.items()))
                    dialog = replace(dialog, unread=tuple(unread.items()))
                    file_unread = Unread()
                yield dialog
        except SkippedError as error:
            yield error


def places_of_sample(total: int) -> Sequence[int]:
    """Return the places of the dialogs that are read: all, or as many as fit, drawn by a seed.

    A sample is in the order in which it was drawn, so that its beginning is a sample, too.
    """
    if total <= MAX_DIALOGS:
        return range(total)
    return Random(SAMPLE_SEED).sample(range(total), MAX_DIALOGS)


def left_out(total: int, noun: str) -> list[tuple[str, int]]:
    """Return what is not read of so many objects, as a kind of `Unread` with its number."""
    kind = f"{noun}s beside a sample of {MAX_DIALOGS:,} drawn by seed {SAMPLE_SEED}"
    return [(kind, total - MAX_DIALOGS)] if total > MAX_DIALOGS else []


def with_calls(text: str, calls: Sequence[tuple[str, Any]]) -> str:
    """Return the words of a turn after its calls, each as a line of JSON, as chat templates do."""
    lines = []
    for method, arguments in calls:
        call = {"name": method, "arguments": arguments}
        lines.append(clean(json.dumps(call, ensure_ascii=False)))
    return "\n".join(filter(None, [*lines, text]))
