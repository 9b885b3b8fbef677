"""LangChain's messages: ``type`` human, ai, system or tool, and calls with ``args``.

Either as they are, in a field ``data`` beside their type, or in the ``kwargs`` of a serialized
constructor, whose ``id`` names its class. A list of them is a conversation, and so are the
``messages`` of a state. Parts that are not text are counted.
See https://reference.langchain.com/python/langchain_core/messages.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.base import Format
from fdkvc.conversations.formats.chat import Placed, chat_format, messages_of, restated
from fdkvc.core.json_input import objects, optional, require
from fdkvc.core.unread import Unread

ROLES = {"human": "user", "ai": "assistant"}
"""Roles by types that are no roles."""

TYPES = frozenset(("human", "ai", "system", "tool", "function", "developer", "chat", "remove"))

CALLS = ("tool_use", "tool_call", "function_call")
"""Types of parts that are calls; a message's `tool_calls` repeat them."""

ARGUMENTS = ("args", "arguments", "input")
"""Fields with the arguments of a call, the first that has any."""

METADATA = ("response_metadata", "usage_metadata")

READ = ("additional_kwargs", "id", "invalid_tool_calls", "lc", "tool_call_chunks", "type")
"""Fields that are read elsewhere."""

BOOKKEEPING = (*READ, "model_name", "model_provider", "service_tier", "system_fingerprint")
"""Fields that are read elsewhere, or say nothing of what is said."""


def _messages(value: Mapping[str, Any], field: str, place: str, unread: Unread) -> Iterator[Placed]:
    for sent, where in messages_of(value, field, place, "message"):
        if "role" in sent:
            yield sent, where
            continue
        kind, message = _type(sent), sent
        for inner in ("data", "kwargs"):
            if "content" not in sent and sent.get(inner) is not None:
                message = require(sent, inner, dict, where)
                unread.fields(sent, {*BOOKKEEPING, inner})
        role = message.get("role") if kind == "chat" else ROLES.get(kind, kind)
        extra = optional(message, "additional_kwargs", dict, where)
        content, parts = message.get("content"), []
        if isinstance(content, list):
            parts = [part for part, _ in objects(map(_part, content), "part", where)]
        calls = _calls(message, extra, parts, where)
        if isinstance(content, list):
            in_calls = {json.dumps(call, sort_keys=True) for call in calls}
            content = [part for part in parts if not _repeats(part, in_calls, where)]
        if "content" not in message and not calls:
            require(message, "content", str, where)
        unread.fields(extra, {"tool_calls", "function_call"})
        for metadata in METADATA:
            unread.fields(optional(message, metadata, dict, where), BOOKKEEPING)
        fields = {"role": role, "content": content, "tool_calls": calls}
        yield restated(message, *BOOKKEEPING, *METADATA, **fields), where


def _part(part: Any) -> Any:
    return {"type": "text", "text": part} if isinstance(part, str) else part


def _repeats(part: Mapping[str, Any], calls: set[str], where: str) -> bool:
    """Whether a part is one of the calls, which are texts of JSON."""
    return part.get("type") in CALLS and json.dumps(_call(part, where), sort_keys=True) in calls


def _type(message: Mapping[str, Any]) -> str:
    """Return a message's type; of a constructor, from the name of its class."""
    kind, path = message.get("type"), message.get("id")
    if "lc" in message and isinstance(path, list) and path:
        kind = path[-1]
    return re.sub("message(chunk)?$", "", str(kind).casefold())


def _calls(
    message: Mapping[str, Any], extra: Mapping[str, Any], parts: list[dict[str, Any]], where: str
) -> list[dict[str, Any]]:
    """Return the calls of a message in OpenAI's layout, from the first place that has any."""
    listed: list[Any] = []
    for field in ("tool_calls", "invalid_tool_calls"):
        listed += optional(message, field, list, where)
    if not listed:
        old = optional(extra, "function_call", dict, where)
        listed = optional(extra, "tool_calls", list, where) or ([old] if old else [])
    if not listed:
        listed = [part for part in parts if part.get("type") in CALLS]
    return [_call(call, inside) for call, inside in objects(listed, "call", where)]


def _call(call: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a call in OpenAI's layout."""
    function = optional(call, "function", dict, where) or call
    fields = [field for field in ARGUMENTS if function.get(field)]
    given = function[fields[0]] if fields else {}
    named = {"name": function.get("name") or "", "arguments": given}
    return {"function": restated(function, "id", "index", "type", *fields[:1], **named)}


def _format(key: str, field: str) -> Format:
    def recognizes(value: Mapping[str, Any]) -> bool:
        messages = value[field]
        return any(
            isinstance(message, dict) and "role" not in message and _type(message) in TYPES
            for message in (messages if isinstance(messages, list) else ())
        )

    return chat_format(
        key,
        "LangChain messages",
        field,
        lambda value, place, unread: _messages(value, field, place, unread),
        recognizes=recognizes,
    )


FORMAT = _format("langchain", "messages")
"""A state with messages."""

MESSAGES = _format("langchain-list", "input")
"""A list of messages alone."""
