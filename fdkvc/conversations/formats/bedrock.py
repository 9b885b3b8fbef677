"""Requests of Amazon Bedrock's Converse API: messages of blocks without a type.

A block has one field, which says what it is: ``text``, ``toolUse``, ``toolResult``. The system
prompt is beside the messages, as are the tools, in ``toolConfig``. Other blocks, such as images,
are counted. See https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.anthropic import turns_of_blocks
from fdkvc.conversations.formats.base import parts_in
from fdkvc.conversations.formats.chat import Placed, chat_format, messages_of
from fdkvc.core.json_input import check_object, objects, require
from fdkvc.core.unread import Unread

WORDS = ("text", "toolUse", "toolResult", "json", "guardContent", "citationsContent")
READ = (*WORDS, "cachePoint", "reasoningContent")
"""Fields by which blocks are read, or say nothing."""

BLOCKS = frozenset((*READ, "image", "document", "video", "audio"))
"""Fields of blocks by which the messages are recognized."""


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    if value.get("system") is not None:
        where = f"{place}, system prompt"
        yield {"role": "system", "content": _blocks(value["system"], where, unread)}, where
    for message, where in messages_of(value, "messages", place, "message"):
        content = _blocks(message.get("content"), where, unread)
        yield from turns_of_blocks({**message, "content": content}, where, unread)


def _blocks(content: Any, where: str, unread: Unread) -> Any:
    """Return a list of blocks as those of Anthropic's messages, and anything else as it is."""
    if not isinstance(content, list):
        return content
    blocks: list[dict[str, Any]] = []
    for block, inside in objects(content, "block", where):
        blocks += [block] if "type" in block else _block(block, inside, unread)
    return blocks


def _block(block: Mapping[str, Any], where: str, unread: Unread) -> Iterator[dict[str, Any]]:
    match block:
        case {"toolUse": use}:
            yield {**check_object(use, f"{where}: 'toolUse'"), "type": "tool_use"}
        case {"toolResult": result}:
            result = check_object(result, f"{where}: 'toolResult'")
            content = _blocks(result.get("content"), where, unread)
            yield {**result, "type": "tool_result", "content": content}
        case {"json": value}:
            yield {"type": "text", "text": json.dumps(value, ensure_ascii=False)}
        case {"guardContent": {"text": dict(text)}}:
            yield {**text, "type": "text"}
        case {"citationsContent": {"content": list(cited)}}:
            yield from _blocks(cited, where, unread)
        case {"text": _}:
            yield {"type": "text", "text": require(block, "text", str, where)}
        case {"reasoningContent": _}:
            yield {"type": "reasoning_content"}
        case _:
            yield from ({"type": kind} for kind in block if kind != "cachePoint")
            return
    unread.fields(block, READ)


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether messages have blocks of Bedrock, none of which has a type."""
    parts = [*parts_in(value["messages"], "content")]
    typed = any("type" in part for part in parts)
    return not typed and any(not BLOCKS.isdisjoint(part) for part in parts)


FORMAT = chat_format(
    "bedrock",
    "Bedrock Converse",
    "messages",
    _messages,
    reads=("system", "toolConfig"),
    recognizes=recognizes,
)
