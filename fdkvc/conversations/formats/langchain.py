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

from fdkvc.conversations.formats.base import Placed, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.core.json_input import objects, optional, require
from fdkvc.core.unread import Unread

ROLES = {"human": "user", "ai": "assistant"}
"""The roles of types that have another name."""

TYPES = frozenset(("human", "ai", "system", "tool", "function", "developer", "chat", "remove"))

CALLS = ("tool_use", "tool_call", "function_call")
"""Types of parts that are calls; a message's `tool_calls` repeat them."""

METADATA = ("response_metadata", "usage_metadata")

READ = ("additional_kwargs", "id", "invalid_tool_calls", "lc", "tool_call_chunks", "type")
"""Fields that are read elsewhere."""

BOOKKEEPING = (*READ, "model_name", "model_provider", "service_tier", "system_fingerprint")
"""Fields that are read elsewhere, or hold nobody's words."""


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    field = "messages" if "messages" in value else "input"
    for sent, where in messages_of(value, field, place, "message"):
        if "role" in sent:
            yield sent, where
            continue
        kind, message = _type(sent), sent
        for inner in ("data", "kwargs"):
            if "content" not in sent and sent.get(inner) is not None:
                message = require(sent, inner, dict, where)
                unread.fields(sent, {*BOOKKEEPING, inner})
        extra = optional(message, "additional_kwargs", dict, where)
        unread.fields(extra, {"tool_calls", "function_call"})
        for metadata in METADATA:
            unread.fields(optional(message, metadata, dict, where), BOOKKEEPING)
        role = message.get("role") if kind == "chat" else ROLES.get(kind, kind)
        calls, content = _calls(message, extra, where), message.get("content")
        if "content" not in message and not calls:
            require(message, "content", str, where)
        if calls and isinstance(content, list):
            content = [*_without_calls(content, {*map(_key, calls)}, unread)]
        fields = {"role": role, "content": content, "tool_calls": calls}
        yield restated(message, *BOOKKEEPING, *METADATA, **fields), where


def _key(call: Mapping[str, Any]) -> str:
    """Return what a call and a part that repeats it have in common."""
    return json.dumps((call.get("name"), call.get("args", call.get("input"))), sort_keys=True)


def _without_calls(parts: list[Any], beside: set[str], unread: Unread) -> Iterator[Any]:
    """Yield the parts that are no calls; count the calls that are not among those beside."""
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in CALLS:
            yield part
        elif _key(part) not in beside:
            unread.part(part["type"])


def _type(message: Mapping[str, Any]) -> str:
    """Return a message's type; of a constructor, from the name of its class."""
    kind, path = message.get("type"), message.get("id")
    if "lc" in message and isinstance(path, list) and path:
        kind = path[-1]
    return re.sub("message(chunk)?$", "", str(kind).casefold())


def _calls(
    message: Mapping[str, Any], extra: Mapping[str, Any], where: str
) -> list[dict[str, Any]]:
    """Return the calls beside a message's words, from the first place that has any."""
    listed: list[Any] = []
    for field in ("tool_calls", "invalid_tool_calls"):
        listed += optional(message, field, list, where)
    if not listed:
        old = optional(extra, "function_call", dict, where)
        listed = optional(extra, "tool_calls", list, where) or ([old] if old else [])
    calls = [call for call, _ in objects(listed, "call", where)]
    return [
        call if "function" in call else {**call, "name": call.get("name") or ""} for call in calls
    ]


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether there are messages of LangChain, which have no role."""
    messages = value.get("messages", value.get("input"))
    return any(
        isinstance(message, dict) and "role" not in message and _type(message) in TYPES
        for message in (messages if isinstance(messages, list) else ())
    )


LABEL = "LangChain messages"

FORMAT = chat_format("langchain", LABEL, "messages", _messages, (), recognizes=recognizes)
"""A state with messages."""

MESSAGES = chat_format("langchain-list", LABEL, "input", _messages, (), recognizes=recognizes)
"""A list of messages alone."""
