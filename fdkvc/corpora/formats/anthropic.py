"""Requests of Anthropic's Messages API: messages of blocks, with the system prompt beside them.

``tool_use`` blocks are calls, and each ``tool_result`` block of a user's message is a turn. The
text of ``thinking`` is among the assistant's words. Other blocks, such as images, are counted.
See https://docs.anthropic.com/en/api/messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from fdkvc.corpora.formats.base import Format
from fdkvc.corpora.formats.chat import FORMAT as CHAT
from fdkvc.corpora.formats.chat import Placed, messages_of, transcript_of
from fdkvc.corpora.json_input import check_object
from fdkvc.corpora.transcripts import Transcript

BLOCKS = ("tool_use", "tool_result", "thinking", "redacted_thinking", "server_tool_use")
"""Types of blocks by which the messages are recognized."""


def read_request(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript]:
    """Read the conversation of a request."""
    place = f"dialog {number}"
    yield transcript_of(_messages(value, place), value.get("id", value.get("title")), place, calls)


def _messages(value: Mapping[str, Any], place: str) -> Iterator[Placed]:
    """Yield chat messages: a user's tool results become turns."""
    if value.get("system") is not None:
        yield {"role": "system", "content": value["system"]}, f"{place}, system prompt"
    for message, where in messages_of(value, "messages", place, "message"):
        blocks = message.get("content")
        if not isinstance(blocks, list):
            yield message, where
            continue
        blocks = [check_object(each, f"{where}: a block of 'content'") for each in blocks]
        for is_result, some in groupby(blocks, lambda each: each.get("type") == "tool_result"):
            group = [*some]
            if is_result:
                for each in group:
                    yield {**message, "role": "tool", "content": each.get("content")}, where
                continue
            called = [each for each in group if each.get("type") == "tool_use"]
            said = {
                **message,
                "content": [each for each in group if each.get("type") != "tool_use"],
                "tool_calls": [
                    {"function": {"name": each.get("name"), "arguments": each.get("input")}}
                    for each in called
                ],
            }
            yield said, where


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether a conversation has a system prompt beside its messages, or blocks of tools."""
    messages = value["messages"]
    if "system" in value or not isinstance(messages, list):
        return "system" in value
    contents = (each.get("content") for each in messages if isinstance(each, dict))
    blocks = (block for each in contents if isinstance(each, list) for block in each)
    return any(isinstance(each, dict) and each.get("type") in BLOCKS for each in blocks)


FORMAT = Format(
    "anthropic",
    "Anthropic messages",
    ("json", "jsonl"),
    "messages",
    read_request,
    "messages of Anthropic's API: a request, its messages, a list of them, or JSON Lines",
    CHAT.topics,
    "inputs of `tool_use`",
    recognizes,
)
