"""Chat messages: objects with ``role`` and ``content``, and calls of tools where there are any.

A message may name its topic in a field ``topic``. An assistant's ``tool_calls`` demand their
arguments, each a text or a number that was said before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.said.formats.base import Format
from fdkvc.said.json_input import an_object, check_structure, optional_part, parse_json, part
from fdkvc.said.transcripts import (
    Argument,
    Call,
    Demand,
    MentionFinder,
    Transcript,
    Turn,
    check_turns,
    clean,
    clean_name,
)


def read_conversation(value: Mapping[str, Any], number: int) -> Iterator[Transcript]:
    """Read one conversation; a sentence about a mistake names it, the turn and the field."""
    place = f"dialog {number}"
    named = value.get("id", value.get("title"))
    name = clean_name(named) if isinstance(named, str) else ""
    turns: list[Turn] = []
    asked: list[tuple[int, str, dict[str, str]]] = []
    messages = part(value, "messages", list, place)
    check_turns(place, len(messages))
    for at, found in enumerate(messages):
        where = f"{place}, turn {at}"
        message = an_object(found, where)
        topic = clean_name(optional_part(message, "topic", str, where))
        role = clean_name(part(message, "role", str, where))
        turns.append(Turn(role, clean(_content(message, where)), topic or None))
        asked += [(at, *call) for call in _calls(message, where)]

    finder = MentionFinder([turn.text for turn in turns], place)
    demands, missing, calls = [], 0, []
    for at, method, arguments in asked:
        made = []
        for slot, wording in arguments.items():
            mentions = finder.mentions([wording], before=at)
            said = clean_name(wording)
            if mentions:
                demands.append(Demand("call", at, method, slot, said, mentions))
            else:
                missing += 1
            made.append(Argument(slot, said, mentions[-1] if mentions else None))
        calls.append(Call(at, method, tuple(sorted(made, key=lambda each: each.slot))))
    yield Transcript(name or place, tuple(turns), tuple(demands), missing, tuple(calls))


def _content(message: Mapping[str, Any], place: str) -> str:
    """Return the text of a message; its parts are joined, and what is no text is left out."""
    content = message.get("content")
    if content is None and "tool_calls" in message:
        return ""
    if not isinstance(content, list):
        return str(part(message, "content", str, place))
    parts = [an_object(found, f"{place}: a part of 'content'") for found in content]
    texts = (part(found, "text", str, place) for found in parts if found.get("type") == "text")
    return "\n".join(texts)


def _calls(message: Mapping[str, Any], place: str) -> Iterator[tuple[str, dict[str, str]]]:
    for call in optional_part(message, "tool_calls", list, place):
        function = part(an_object(call, f"{place}: a call"), "function", dict, place)
        method = clean_name(part(function, "name", str, place))
        arguments = function.get("arguments")
        if isinstance(arguments, str):
            try:
                check_structure(arguments.encode("utf-8", "replace"))
                arguments = parse_json(arguments)
            except ValueError as error:
                raise ValueError(f"{place}: 'arguments' of {method}: {error}") from None
        if not isinstance(arguments, dict):
            raise ValueError(f"{place}: 'arguments' of {method} are missing or not an object")
        yield method, dict(_values(arguments, ""))


def _values(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield every text and number within a value, by the names that lead to it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _values(inner, f"{name}.{at}")
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield clean_name(name), str(value)


FORMAT = Format(
    "chat",
    "chat messages",
    ("json", "jsonl"),
    "messages",
    read_conversation,
    "chat messages with `role` and `content`: one conversation, a list of them, or JSON Lines",
    "a field `topic` of a message",
    "arguments of `tool_calls`",
)
