"""Items of OpenAI's Responses API, and batch requests.

A list of items, the ``input`` of a request, or the ``output`` of a response: messages, and between
them calls (``function_call``, ``custom_tool_call``) and their outputs. Calls that follow each other
or a message of the assistant belong to its turn. Other items, such as web searches, are counted.
The ``body`` of a batch request has such an ``input``, or chat messages.
See https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fdkvc.corpora.formats.base import Format
from fdkvc.corpora.formats.chat import FORMAT as CHAT
from fdkvc.corpora.formats.chat import part_name, transcript_of
from fdkvc.corpora.json_input import optional, require
from fdkvc.corpora.transcripts import Transcript


def read_response(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript]:
    """Read the conversation of a request's input, a response's output, or both."""
    yield _conversation(value, value.get("id"), f"dialog {number}", "", calls)


def read_request(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript]:
    """Read the conversation of a request of a batch."""
    place = f"dialog {number}"
    body = require(value, "body", dict, place)
    if "input" in body and "messages" not in body:
        yield _conversation(body, value.get("custom_id"), place, ", body", calls)
    else:
        messages = require(body, "messages", list, f"{place}, body")
        yield transcript_of(messages, value.get("custom_id"), place, calls)


def _conversation(
    body: Mapping[str, Any], named: Any, place: str, inside: str, calls: bool
) -> Transcript:
    unread: Counter[str] = Counter()
    messages = [*_messages(body, place + inside, unread)]
    return transcript_of(messages, named, place, calls, unread=unread)


def _messages(body: Mapping[str, Any], place: str, unread: Counter[str]) -> Iterator[Any]:
    instructions = body.get("instructions")
    if isinstance(instructions, list):  # a response may return them as items
        yield from _turns(instructions, unread)
    elif instructions is not None:
        yield {"role": "system", "content": require(body, "instructions", str, place)}
    items: list[Any] = []
    if isinstance(body.get("input"), str):
        items.append({"role": "user", "content": body["input"]})
    elif "input" in body:
        items += require(body, "input", list, place)
    yield from _turns([*items, *optional(body, "output", list, place)], unread)


def _turns(items: list[Any], unread: Counter[str]) -> Iterator[Any]:
    turn: dict[str, Any] | None = None  # the assistant's, which calls may still join
    for item in items:
        match item:
            case {"type": "function_call"}:
                call = {"function": item}
            case {"type": "custom_tool_call"}:
                call = {"type": "custom", "custom": item}
            case _:
                if turn is not None:
                    yield turn
                turn = None
                match item:
                    case {"type": "function_call_output" | "custom_tool_call_output"}:
                        yield {"role": "tool", "content": item.get("output")}
                    case {"type": "message", "role": "assistant"} | {"role": "assistant"}:
                        turn = {**item}
                    case {"type": "reasoning"}:
                        unread[part_name("reasoning")] += not item.get("content")
                        yield {"role": "assistant", "content": item.get("content")}
                    case {"type": str(kind)} if kind != "message":  # such as a web search
                        unread[part_name(kind)] += 1
                        yield {"role": "assistant", "content": None}
                    case _:
                        yield item
                continue
        turn = turn or {"role": "assistant", "content": None}
        turn["tool_calls"] = [*turn.get("tool_calls", []), call]
    if turn is not None:
        yield turn


REQUESTS = Format(
    "requests",
    "OpenAI batch requests",
    ("json", "jsonl"),
    "body",
    read_request,
    "OpenAI batch requests, whose `body` has chat messages, or the `input` of a response",
    CHAT.topics,
    CHAT.demands,
)

FORMAT = Format(
    "responses",
    "OpenAI responses",
    ("json", "jsonl"),
    "input",
    read_response,
    "items of OpenAI's Responses API: a list of them, a request's `input`, a response's `output`",
    CHAT.topics,
    "arguments of `function_call` and `custom_tool_call`",
)

OUTPUT = replace(FORMAT, key="response", field="output")
