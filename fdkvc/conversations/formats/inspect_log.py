"""Logs of Inspect, as JSON: ``samples``, each with the ``messages`` of its solution.

Epochs of a sample form a cluster. A sample without messages has those of its ``input``. Texts that
stand among its ``attachments`` are put back, and its tools are those that the model was first
given. The file of one sample is read too.

UK AI Security Institute, *Inspect AI* (``UKGovernmentBEIS/inspect_ai``, ``src/inspect_ai/log``).
"""

from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Dialogs, Messages, read_each, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of, run_name
from fdkvc.core.json_input import Fields, JsonObject, optional, require
from fdkvc.core.limits import MAX_DIALOG_CHARACTERS
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import TooLargeError
from fdkvc.core.unread import Unread

ATTACHED = "attachment://"
"""The beginning of a text in whose place one of the attachments belongs."""

READ = ("attachments", "events", "id", "input", "output")
"""Fields that are read of a sample, or repeat its messages."""


def _read_log(value: JsonObject, number: int, calls: bool = False) -> Dialogs:
    samples = require(value, "samples", list, "the file")
    file_unread = Unread()
    file_unread.fields(value, {"samples"})
    return read_each(SAMPLE.read, samples, "sample", number, calls, file_unread)


def _about(value: JsonObject, place: str = "") -> tuple[str, str]:
    return run_name(value, "id", "sample", "epoch")


class _Attached:
    """Puts back texts that a sample stores once, up to the length of a dialog."""

    def __init__(self, texts: JsonObject, name: str) -> None:
        self.texts = texts
        self.name = name
        self.characters = 0

    def put_back(self, value: Any) -> Any:
        """Return a value of JSON with the attached texts in it."""
        if isinstance(value, list):
            return [*map(self.put_back, value)]
        if isinstance(value, dict):
            return {key: self.put_back(child) for key, child in value.items()}
        if not isinstance(value, str) or not value.startswith(ATTACHED):
            return value
        text = self.texts.get(value.removeprefix(ATTACHED), value)
        self.characters += len(text) if isinstance(text, str) else 0
        it_has = f"{self.name}: it has"
        check_most(it_has, self.characters, "characters", MAX_DIALOG_CHARACTERS, TooLargeError)
        return text


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    if not value.get("messages") and isinstance(value.get("input"), str):
        yield {"role": "user", "content": value["input"]}, f"{place}, input"
        return
    attached = _Attached(
        optional(value, "attachments", dict, place), _about(value)[1] or place
    )
    field = "input" if not value.get("messages") and "input" in value else "messages"
    for message, location in messages_of(value, field, place, "message"):
        yield _restated(attached.put_back(message), location, unread), location


def _restated(message: JsonObject, location: str, unread: Unread) -> Fields:
    """Return a message with the error of a tool before its words, and its calls as they are."""
    error = optional(message, "error", dict, location)
    content = message.get("content")
    unread.fields(error, {"message", "type"})
    fields: Fields = {}
    if error_text := optional(error, "message", str, location):
        parts = content if isinstance(content, list) else [content or ""]
        fields["content"] = [error_text, *parts]
    return restated(message, "error", "function", "source", **fields)


SAMPLE = chat_format(
    "inspect-sample",
    "Inspect logs",
    "messages",
    _messages,
    READ,
    recognizes=lambda value: "epoch" in value and "target" in value,
    name_of=_about,
    noun="sample",
)

FORMAT = replace(SAMPLE, key="inspect", field="samples", read=_read_log, recognizes=None)
