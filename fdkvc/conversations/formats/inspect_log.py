"""Logs of Inspect, as JSON: ``samples``, each with the ``messages`` of its solution.

Epochs of a sample form a cluster. A sample without messages has those of its ``input``. Texts that
stand among its ``attachments`` are put back, and its tools are those that the model was first
given. The file of one sample is read too.

UK AI Security Institute, *Inspect AI* (``UKGovernmentBEIS/inspect_ai``, ``src/inspect_ai/log``).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Format, Placed, restated
from fdkvc.conversations.formats.chat import messages_of, transcript_of
from fdkvc.conversations.tools import listed_tools
from fdkvc.core.json_input import check_object, objects, optional, require
from fdkvc.core.limits import MAX_DIALOG_CHARACTERS, MAX_DIALOGS
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import SkippedError, Tool, TooLargeError, Transcript, clean_name
from fdkvc.core.unread import Unread

ATTACHED = "attachment://"
"""How a text begins that stands among the attachments."""

READ = ("attachments", "events", "input", "messages", "output")
"""Fields that are read of a sample, or repeat its messages."""


def read_log(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript | SkippedError]:
    """Read all samples of a log."""
    samples = require(value, "samples", list, "the file")
    check_most("the file has", len(samples), "samples", MAX_DIALOGS)
    unread = Unread()
    unread.fields(value, {"samples"})
    for index, sample in enumerate(samples, start=number):
        try:
            yield from read_sample(check_object(sample, f"sample {index}"), index, calls, unread)
            unread = Unread()  # what is beside the samples counts once
        except SkippedError as error:
            yield error


def read_sample(
    value: Mapping[str, Any], number: int, calls: bool = False, beside: Unread | None = None
) -> Iterator[Transcript]:
    """Read one sample; `beside` is what is not read of the file."""
    place, unread = f"sample {number}", Unread() if beside is None else beside
    unread.fields(value, {*READ, "id"})
    key, epoch = value.get("id"), value.get("epoch")
    cluster = clean_name(f"sample {key}") if isinstance(key, str | int) else ""
    name = f"{cluster}, epoch {epoch}" if cluster and isinstance(epoch, int) else cluster
    attached = _Attached(optional(value, "attachments", dict, place), name or place)
    tools = _tools(optional(value, "events", list, place), unread)
    turns = [
        (_restated(attached.put_back(message), where, unread), where)
        for message, where in _messages(value, place)
    ]
    yield replace(transcript_of(turns, name, place, calls, cluster, unread), tools=tools)


class _Attached:
    """Puts back texts that a sample stores once, up to the length of a dialog."""

    def __init__(self, texts: Mapping[str, Any], name: str) -> None:
        self.texts, self.name, self.characters = texts, name, 0

    def put_back(self, value: Any) -> Any:
        """Return a value of JSON with the attached texts in it."""
        if isinstance(value, list):
            return [*map(self.put_back, value)]
        if isinstance(value, dict):
            return {key: self.put_back(inner) for key, inner in value.items()}
        if not isinstance(value, str) or not value.startswith(ATTACHED):
            return value
        text = self.texts.get(value.removeprefix(ATTACHED), value)
        self.characters += len(text) if isinstance(text, str) else 0
        it_has = f"{self.name}: it has"
        check_most(it_has, self.characters, "characters", MAX_DIALOG_CHARACTERS, TooLargeError)
        return text


def _messages(value: Mapping[str, Any], place: str) -> Iterator[Placed]:
    if not value.get("messages") and isinstance(value.get("input"), str):
        yield {"role": "user", "content": value["input"]}, f"{place}, input"
        return
    field = "input" if not value.get("messages") and "input" in value else "messages"
    yield from messages_of(value, field, place, "message")


def _restated(message: Mapping[str, Any], where: str, unread: Unread) -> dict[str, Any]:
    """Return a message with the error of a tool as its words."""
    error = optional(message, "error", dict, where)
    unread.fields(error, {"message", "type"})
    said, content = optional(error, "message", str, where), message.get("content")
    if said:
        content = [said, *(content if isinstance(content, list) else filter(None, [content]))]
    calls = [
        restated(call, "view")
        for call, _ in objects(optional(message, "tool_calls", list, where), "call", where)
    ]
    read = ("error", "function", "source")
    return restated(message, *read, content=content, tool_calls=calls)


def _tools(events: list[Any], unread: Unread) -> tuple[Tool, ...]:
    """Return the tools of the first call of a model that had any."""
    calls = (event for event in events if isinstance(event, dict) and event.get("event") == "model")
    return listed_tools(next((call for call in calls if call.get("tools")), {}), unread)


FORMAT = Format("inspect", "Inspect logs", ("json",), "samples", read_log)

SAMPLE = replace(
    FORMAT,
    key="inspect-sample",
    field="messages",
    read=read_sample,
    recognizes=lambda value: "epoch" in value and "target" in value,
)
