"""Items of OpenAI's Responses API, and batch requests.

A list of items, the ``input`` of a request, or the ``output`` of a response: messages, and between
them calls (``function_call``, ``web_search_call``, …) and their outputs, which some calls have in
them. Calls that follow each other or a message of the assistant belong to its turn. Other items,
such as reasoning, are counted.
The ``body`` of a batch request has such an ``input``, or chat messages.
See https://platform.openai.com/docs/api-reference/responses.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Placed, restated
from fdkvc.conversations.formats.chat import chat_format, is_prompt, messages_of, with_system
from fdkvc.conversations.tools import LISTS
from fdkvc.core.json_input import JsonObject, objects, optional, require
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread, has_words, is_thinking

_KNOWN = re.compile(r"mcp_\w+|compaction\w*|item_reference")
"""Types of items that are counted and not read."""

GIVEN = ("arguments", "input", "action", "operation", "code", "queries")
RETURNED = ("output", "outputs", "results", "tools")
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


def _messages(body: JsonObject, place: str, unread: Unread) -> Iterator[Placed]:
    instructions = body.get("instructions")
    if isinstance(instructions, list):  # a response may return them as items
        yield from turns_of_items(messages_of(body, "instructions", place, "instruction"), unread)
    elif instructions is not None:
        text = require(body, "instructions", str, place)
        yield {"role": "system", "content": text}, f"{place}, instructions"
    items: list[Placed] = []
    if isinstance(body.get("input"), str):
        items.append(({"role": "user", "content": body["input"]}, f"{place}, input"))
    elif "input" in body:
        items += messages_of(body, "input", place, "item")
    items += objects(optional(body, "output", list, place), "item", place)
    yield from turns_of_items(items, unread)


def turns_of_items(
    items: Iterable[Placed], unread: Unread, of_log: bool = False
) -> Iterator[Placed]:
    """Yield items as chat messages: calls join the assistant's message before them."""
    turn: dict[str, Any] | None = None  # the assistant's, which calls may still join
    turn_place = ""  # where it is
    for item, location in items:
        kind = "message" if "role" in item else str(item.get("type", "message"))
        if kind == "agent_message":  # what another agent answers
            item = restated(item, "content", output=item.get("content"))
            kind = "agent_message_output"
        if kind.endswith("_call"):
            if turn is None:
                turn, turn_place = (
                    {"role": "assistant", "content": None, "tool_calls": []},
                    location,
                )
            turn["tool_calls"].append({"function": _called(item, kind)})
        elif kind not in ("message", "output") and not kind.endswith("_output"):
            if of_log or _is_known(kind, item, location):
                unread.part(kind)
            continue
        returned = next((item[field] for field in RETURNED if item.get(field)), None)
        if kind.endswith("_call") and (kind == "function_call" or returned is None):
            continue
        if turn is not None:
            yield turn, turn_place
        turn, turn_place = None, location
        if kind != "message":
            content = [returned] if isinstance(returned, dict) and "type" in returned else returned
            result_fields = {} if kind.endswith("_call") else restated(item, *RETURNED)
            yield {**result_fields, "role": "tool", "content": content}, location
        elif item.get("role") == "assistant":
            turn = {**item, "tool_calls": [*optional(item, "tool_calls", list, location)]}
        else:
            yield item, location
    if turn is not None:
        yield turn, turn_place


def _called(item: JsonObject, kind: str) -> JsonObject:
    """Return a call with ``name`` and ``arguments``."""
    if kind == "function_call":
        return item
    field = next((field for field in GIVEN if item.get(field)), "arguments")
    argument_value = item.get(field, {})
    arguments = (
        argument_value
        if isinstance(argument_value, dict) or field == "arguments"
        else {field: argument_value}
    )
    named = {"name": item.get("name", kind.removesuffix("_call")), "arguments": arguments}
    return restated(item, field, *RETURNED, **named)


def is_item_type(kind: str) -> bool:
    """Whether items of a response have a type."""
    is_named = kind.endswith(("_call", "_output")) or kind in ("message", "agent_message")
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


REQUESTS = chat_format("requests", "OpenAI batch requests", "body", _request, (), ("custom_id",))

FORMAT = chat_format(
    "responses",
    "OpenAI responses",
    "input",
    _messages,
    BODY_FIELDS,
    recognizes=lambda value: not ("instruction" in value or isinstance(value.get("output"), str)),
)

OUTPUT = replace(FORMAT, key="response", field="output")
