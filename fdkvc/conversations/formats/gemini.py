"""Requests of the Gemini API: ``contents`` of parts, with the system's instruction beside them.

A part has no type but a field that says what it is, as in JSON or as Python's client names it:
``text``, ``functionCall``, ``functionResponse``, and code that is executed with its result. A list
of contents alone is read too. Thoughts, and data such as images, are counted.
See https://ai.google.dev/api/caching#Content.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.base import Placed
from fdkvc.conversations.formats.chat import chat_format
from fdkvc.core.json_input import check_object, require
from fdkvc.core.unread import Unread

INSTRUCTIONS = ("systemInstruction", "system_instruction")
"""The field of the system's instruction, as JSON or as Python's client names it."""


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    for name in INSTRUCTIONS:
        if value.get(name):
            where = f"{place}, system instruction"
            yield {**_content(value[name], where), "role": "system"}, where
    contents = value.get("contents")
    contents = [contents] if isinstance(contents, str | dict) else contents
    for number, content in enumerate(require({"contents": contents}, "contents", list, place)):
        where = f"{place}, content {number}"
        content = _content(content, where)
        yield {**content, "role": content.get("role") or "user"}, where


def _content(content: Any, where: str) -> dict[str, Any]:
    """Return a content, which may be a text or a part alone."""
    if isinstance(content, str) or (isinstance(content, dict) and "text" in content):
        return {"parts": content}
    return {"parts": [], **check_object(content, where)}


FORMAT = chat_format("gemini", "Gemini contents", "contents", _messages, reads=INSTRUCTIONS)
