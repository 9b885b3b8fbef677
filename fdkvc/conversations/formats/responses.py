"""Items of OpenAI's Responses API, and batch requests.

A list of items, the ``input`` of a request, or the ``output`` of a response: messages, and between
them calls (``function_call``, ``web_search_call``, …) and their outputs, which some calls have in
them. Calls that follow each other or a message of the assistant belong to its turn. Other items,
such as reasoning, are counted.
The ``body`` of a batch request has such an ``input``, or chat messages.
See https://platform.openai.com/docs/api-reference/responses.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from fdkvc.conversations.formats.base import Messages, Placed, restated
from fdkvc.conversations.formats.chat import chat_format, is_prompt, messages_of, with_system
from fdkvc.conversations.tools import LISTS
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    listed_objects,
    of_kind,
    optional,
    require,
)
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread, has_words, is_thinking
from fdkvc.core.words import name_list

SPEAKERS = name_list("system user assistant tool_result")
"""Types of items that Grok writes as messages."""

PICTURE = "image_generation_call"
"""A call whose result is no text."""

_KNOWN = re.compile(rf"mcp_\w+|compaction\w*|item_reference|{PICTURE}")
"""Types of items that are counted and not read."""

GIVEN = name_list("arguments input action operation code queries")
RETURNED = name_list("output outputs results tools")
"""Fields of items with what a tool was given and what it returned, the first that has any."""

BODY_FIELDS = frozenset(("input", "instructions", "messages", "output", *LISTS))
"""Fields that are read of a request or a response."""


def _request(value: JsonObject, place: str, unread: Unread) -> Iterable[Placed]:
    """Return the messages of a request of a batch: chat messages, or the input of a response."""
    body = require(value, "body", dict, place)
    unread.fields(body, {*BODY_FIELDS, *filter(is_prompt, body)})
    if "input" in body and "messages" not in body:
        return _messages(body, f"{place}, body", unread)
    return with_system(body, "messages", f"{place}, body")


def _messages(body: JsonObject, place: str, unread: Unread) -> Messages:
    instructions = body.get("instructions")
    if isinstance(instructions, list):  # a response may return them as items
        yield from turns_of_items(
            messages_of(body, "instructions", place, "instruction"), unread
        )
    elif instructions is not None:
        text = require(body, "instructions", str, place)
        yield {"role": "system", "content": text}, f"{place}, instructions"
    items: list[Placed] = []
    if isinstance(body.get("input"), str):
        items.append(({"role": "user", "content": body["input"]}, f"{place}, input"))
    elif "input" in body:
        items += messages_of(body, "input", place, "item")
    if isinstance(body.get("output"), dict):  # a message alone, of Langfuse and Bedrock
        body = {"output": [body["output"]]}
    items += listed_objects(body, "output", "item", place)
    yield from turns_of_items(items, unread)


def turns_of_items(items: Iterable[Placed], unread: Unread, of_log: bool = False) -> Messages:
    """Yield items as chat messages: calls join the assistant's message before them."""
    turn: tuple[Fields, str] | None = None  # the assistant's, which calls may still join
    for item, location in items:
        kind = "message" if "role" in item else str(item.get("type", "message"))
        if kind in SPEAKERS:
            item = restated(item, "type", role=kind)
            kind = "message"
        if kind == "agent_message":  # what another agent answers
            item = restated(item, "content", output=item.get("content"))
            kind = "agent_message_output"
        returned = next(filter(None, map(item.get, RETURNED)), None)
        returned = [returned] if "type" in of_kind(returned, dict) else returned
        message: JsonObject = item
        if kind.endswith("_call") and kind != PICTURE:
            turn = turn or ({"role": "assistant", "content": None, "tool_calls": []}, location)
            turn[0]["tool_calls"].append({"function": _called(item, kind)})
            if kind == "function_call" or returned is None:
                continue
            message = {"role": "tool", "content": returned}
        elif kind == "output" or kind.endswith("_output"):
            message = restated(item, *RETURNED, role="tool", content=returned)
        elif kind != "message":
            if of_log or _is_known(kind, item, location):
                unread.part(kind)
            continue
        if turn is not None:
            yield turn
        turn = None
        if message.get("role") == "assistant":
            calls = [*optional(message, "tool_calls", list, location)]
            turn = {**message, "tool_calls": calls}, location
        else:
            yield message, location
    if turn is not None:
        yield turn


def _called(item: JsonObject, kind: str) -> JsonObject:
    """Return a call with ``name`` and ``arguments``."""
    if kind == "function_call":
        return item
    field = next(filter(item.get, GIVEN), "arguments")
    arguments = item.get(field, {})
    if field != "arguments" and not isinstance(arguments, dict):
        arguments = {field: arguments}
    named = {"name": item.get("name", kind.removesuffix("_call")), "arguments": arguments}
    return restated(item, field, *RETURNED, **named)


def is_item_type(kind: str) -> bool:
    """Whether items of a response have a type."""
    is_named = kind.endswith(("_call", "_output")) or kind == "agent_message"
    return is_named or _KNOWN.fullmatch(kind) is not None or is_thinking(kind)


def _is_known(kind: str, item: JsonObject, place: str) -> bool:
    """Whether the API has items of a type; a ValueError if it does not, and this one has words."""
    if _KNOWN.fullmatch(kind) or is_thinking(kind):
        return True
    for name, child in item.items():
        if name != "type" and has_words(child, name):
            raise ValueError(
                f"{place} is of the type {clean_name(kind)!r}, which is not known, but has words "
                f"in {clean_name(name)!r}: a message needs 'role' and 'content'"
            )
    return False


def _is_response(value: JsonObject) -> bool:
    """Whether an object is no question with its answer, and no request with its response."""
    is_pair = "instruction" in value or isinstance(value.get("output"), str)
    return not is_pair and not isinstance(value.get("input"), dict)


REQUESTS = chat_format(
    "requests", "OpenAI batch requests", "body", _request, (), ("custom_id",)
)

FORMAT = chat_format(
    "responses",
    "OpenAI responses",
    "input",
    _messages,
    BODY_FIELDS,
    recognizes=_is_response,
)

OUTPUT = replace(FORMAT, key="response", field="output")
