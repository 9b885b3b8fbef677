"""Requests of Anthropic's Messages API: messages of blocks, with the system prompt beside them.

``tool_use`` blocks are calls, and each ``tool_result`` block is a turn, also those of a server
(``mcp_tool_use``, …). Other blocks, such as thinking and images, are counted.
See https://docs.anthropic.com/en/api/messages.
"""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from fdkvc.conversations.formats.base import parts_in
from fdkvc.conversations.formats.chat import (
    CONTENT_FIELDS,
    MESSAGE_FIELDS,
    SYSTEM_FIELDS,
    Placed,
    chat_format,
    restated,
    with_system,
)
from fdkvc.core.json_input import check_object
from fdkvc.core.unread import Unread


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    """Yield chat messages: a user's tool results become turns."""
    for message, where in with_system(value, "messages", place):
        yield from turns_of_blocks(message, where, unread)


def turns_of_blocks(message: Mapping[str, Any], where: str, unread: Unread) -> Iterator[Placed]:
    """Yield a message as chat messages: a result in its blocks is a turn, so are calls beside."""
    blocks = message.get("content")
    if not isinstance(blocks, list):
        yield message, where
        return
    blocks = [check_object(block, f"{where}: a block of 'content'") for block in blocks]
    unread.fields(message, MESSAGE_FIELDS)
    beside = {name: message[name] for name in CONTENT_FIELDS - {"content"} if message.get(name)}
    message = {"role": message.get("role"), "topic": message.get("topic")}
    for is_result, group in groupby(blocks, lambda block: _is(block, "tool_result")):
        said: dict[str, Any] = {**message, "content": [], "tool_calls": []}
        for block in group:
            if is_result:
                topic = message["topic"]
                yield restated(block, role="tool", topic=topic), where
            elif _is(block, "tool_use"):
                call = restated(block, "input", arguments=block.get("input"))
                said["tool_calls"].append({"function": call})
            else:
                said["content"].append(block)
        if not is_result:
            yield said, where
    if beside:
        yield {**message, **beside}, where


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether a conversation has a system prompt beside its messages, or blocks of tools."""
    parts = parts_in(value["messages"], "content")
    return "system" in value or any(
        _is(part, "tool_use", "tool_result", "thinking") for part in parts
    )


def _is(block: Mapping[str, Any], *types: str) -> bool:
    """Whether a block is of some types, or of the like of a server."""
    return str(block.get("type")).endswith(types)


FORMAT = chat_format(
    "anthropic",
    "Anthropic messages",
    "messages",
    _messages,
    reads=SYSTEM_FIELDS,
    named=lambda value: value.get("id", value.get("title")),
    recognizes=recognizes,
)
