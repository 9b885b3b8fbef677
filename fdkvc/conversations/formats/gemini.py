"""Requests of the Gemini API: ``contents`` of parts, with the system's instruction beside them.

A part has no type but a field that says what it is, as in JSON or as Python's client names it:
``text``, ``functionCall``, ``functionResponse``, and code that is executed with its result. A list
of contents alone is read too. Thoughts, and data such as images, are counted.
See https://ai.google.dev/api/caching#Content.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.anthropic import turns_of_blocks
from fdkvc.conversations.formats.base import Format, parts_in
from fdkvc.conversations.formats.chat import Placed, chat_format, restated
from fdkvc.core.json_input import check_object, objects, optional, require
from fdkvc.core.unread import Unread

NO_WORDS = ("thought", "thoughtSignature", "videoMetadata", "mediaResolution", "partMetadata")
"""Fields of a part that say nothing by themselves."""


def _messages(value: Mapping[str, Any], field: str, place: str, unread: Unread) -> Iterator[Placed]:
    instruction = _named(value).get("systemInstruction")
    if instruction:
        where = f"{place}, system instruction"
        yield from _turns(instruction, "system", where, unread)
    contents = value.get(field)
    if isinstance(contents, str | dict):
        contents = [contents]
    for number, content in enumerate(require({field: contents}, field, list, place)):
        yield from _turns(content, "user", f"{place}, content {number}", unread)


def _named(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object's fields that are not null, as JSON names them."""
    given = {name: inner for name, inner in value.items() if inner is not None}
    return {re.sub("_([a-z])", lambda match: match[1].upper(), name): given[name] for name in given}


def _turns(content: Any, role: str, where: str, unread: Unread) -> Iterator[Placed]:
    """Yield the turns of a content, a part or a text; `role` is that of one without."""
    if isinstance(content, str) or (isinstance(content, dict) and "text" in content):
        content = {"parts": content}
    content = check_object(content, where)
    role = "system" if role == "system" else optional(content, "role", str, where) or role
    parts = content.get("parts")
    if isinstance(parts, str):
        parts = {"text": parts}
    parts = optional({"parts": [parts] if isinstance(parts, dict) else parts}, "parts", list, where)
    blocks: list[dict[str, Any]] = []
    for part, inside in objects(parts, "part", where):
        blocks += _block(part, inside, unread)
    said = restated(content, "parts", role=role, content=blocks)
    yield from turns_of_blocks(said, where, unread)


def _block(sent: Mapping[str, Any], where: str, unread: Unread) -> Iterator[dict[str, Any]]:
    """Yield a part as blocks of Anthropic's messages."""
    part = _named(sent)
    match part:
        case {"functionCall": call}:
            call = check_object(call, f"{where}: 'functionCall'")
            yield restated(call, "args", type="tool_use", input=call.get("args") or {})
        case {"functionResponse": answer}:
            answer = check_object(answer, f"{where}: 'functionResponse'")
            text = json.dumps(answer.get("response"), ensure_ascii=False)
            yield restated(answer, "name", "response", type="tool_result", content=text)
        case {"executableCode": code}:
            code = check_object(code, f"{where}: 'executableCode'")
            text = require(code, "code", str, where)
            named = {"name": "executableCode", "input": text}
            yield restated(code, "code", "language", type="tool_use", **named)
        case {"codeExecutionResult": result}:
            result = check_object(result, f"{where}: 'codeExecutionResult'")
            output = optional(result, "output", str, where)
            yield restated(result, "outcome", "output", type="tool_result", content=output)
        case {"text": _, "thought": True}:
            yield {"type": "thought"}
        case {"text": _}:
            yield {"type": "text", "text": require(part, "text", str, where)}
        case _:
            yield from ({"type": kind} for kind in part if kind not in NO_WORDS)
            return
    read = ("functionCall", "functionResponse", "executableCode", "codeExecutionResult", "text")
    unread.fields(part, {*read, *NO_WORDS})


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether messages have parts without a type."""
    parts = parts_in(value["messages"], "parts")
    return any(part.keys().isdisjoint(("type", "kind")) for part in parts)


def _format(
    key: str, field: str, recognizes: Callable[[Mapping[str, Any]], bool] | None = None
) -> Format:
    return chat_format(
        key,
        "Gemini contents",
        field,
        lambda value, place, unread: _messages(value, field, place, unread),
        reads=("systemInstruction", "system_instruction"),
        recognizes=recognizes,
    )


FORMAT = _format("gemini", "contents")
"""A request."""

CONTENTS = _format("gemini-contents", "messages", recognizes)
"""A list of contents alone."""
