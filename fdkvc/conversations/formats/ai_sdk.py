"""Messages of Vercel's AI SDK: those of its pages and those for its models.

A page's message has ``parts``: texts, reasoning, and tools that were called, with their input and
output (``tool-NAME``, ``dynamic-tool``; in version 4 ``tool-invocation``). A model's message has
``content`` with parts ``tool-call`` and ``tool-result``. The calls of a step are one turn, and each
output another. Reasoning, files, sources and data are counted.
See https://ai-sdk.dev/docs/reference/ai-sdk-core/ui-message.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from fdkvc.conversations.formats.anthropic import turns_of_blocks
from fdkvc.conversations.formats.base import parts_in
from fdkvc.conversations.formats.chat import Placed, chat_format, messages_of, restated
from fdkvc.core.json_input import objects, optional, require
from fdkvc.core.unread import Unread, is_thinking

NO_WORDS = ("step-start", "tool-approval-request", "tool-approval-response")
"""Types of parts without words."""

INPUTS = ("input", "args", "rawInput")
OUTPUTS = ("output", "result", "errorText")
"""Fields of a tool's part with what it was given and what it returned, the first that has any."""

TOOL_FIELDS = frozenset((*INPUTS, *OUTPUTS, "toolName", "toolInvocation", "type", "state", "title"))


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    for message, where in messages_of(value, "messages", place, "message"):
        content = message.get("content")
        parts: list[Any] = optional(message, "parts", list, where)
        invoked = optional(message, "toolInvocations", list, where)
        if not parts and not invoked and not isinstance(content, list):
            yield message, where
            continue
        spoken = [{"type": "text", "text": content}] if isinstance(content, str) else content
        placed: list[Placed] = [*objects(parts or spoken or (), "part", where)]
        in_parts = {json.dumps(_called(part), sort_keys=True) for part, _ in placed}
        others = [call for call in invoked if json.dumps(call, sort_keys=True) not in in_parts]
        if not parts:
            calls = objects(others, "tool invocation", where)
            placed[:0] = [({"type": "tool-", "toolInvocation": call}, at) for call, at in calls]
            others = []
        blocks = [*_blocks(placed, where, unread)]
        said = restated(message, "parts", content=blocks, toolInvocations=others)
        texts = "".join(str(part["text"]) for part, _ in placed if "text" in part)
        if parts and content and "".join(str(content).split()) not in "".join(texts.split()):
            unread.add("field 'content'")
        if any(is_thinking(str(part.get("type"))) for part, _ in placed):
            said.pop("reasoning", None)  # the parts repeat it
        yield from turns_of_blocks(said, where, unread)


def _called(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a part, or the call in it."""
    inner = part.get("toolInvocation")
    return inner if isinstance(inner, dict) else part


def _blocks(parts: list[Placed], place: str, unread: Unread) -> Iterator[dict[str, Any]]:
    """Yield parts as blocks of Anthropic's messages, the calls of a step before their outputs."""
    for is_tool, group in groupby(parts, lambda placed: _is_tool(placed[0])):
        results = []
        for part, where in group:
            kind = optional(part, "type", str, where)
            if not is_tool:
                if kind in NO_WORDS:
                    unread.fields(part, {"type"})
                else:
                    yield restated(part, "state")
                continue
            call = _called(part)
            unread.fields(part, TOOL_FIELDS)
            if call is not part:
                unread.fields(call, TOOL_FIELDS)
            if kind != "tool-result":
                named = {"toolName": kind.removeprefix("tool-")} if call is part else {}
                name = require({**named, **call}, "toolName", str, where)
                given = [call[field] for field in INPUTS if call.get(field)]
                yield {"type": "tool_use", "name": name, "input": given[0] if given else {}}
            returned = [call[field] for field in OUTPUTS if call.get(field) is not None]
            results += [{"type": "tool_result", "content": _text(words)} for words in returned[:1]]
        yield from results


def _is_tool(part: Mapping[str, Any]) -> bool:
    kind = str(part.get("type"))
    return kind == "dynamic-tool" or (kind.startswith("tool-") and kind not in NO_WORDS)


def _text(output: Any) -> Any:
    """Return an output as a text, or as the parts that a model reads of it."""
    match output:
        case {"type": "content", "value": list(parts), **more} if not more:
            return parts
        case {"type": "text" | "json" | "error-text" | "error-json", "value": value, **more} if (
            not more
        ):
            return _text(value)
        case str():
            return output
    return json.dumps(output, ensure_ascii=False)


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether messages have typed parts, or the content of a model's messages with tools."""
    messages = value["messages"]
    typed = (part for field in ("parts", "toolInvocations") for part in parts_in(messages, field))
    return any("type" in part or "toolName" in part for part in typed) or any(
        part.get("type") in ("tool-call", "tool-result") for part in parts_in(messages, "content")
    )


FORMAT = chat_format("ai-sdk", "AI SDK messages", "messages", _messages, recognizes=recognizes)
