"""Chat messages: objects with ``role`` and ``content``, and calls of tools where there are any.

A message may name its topic in a field ``topic``. An assistant's ``tool_calls``, and the older
``function_call``, demand the texts and numbers of their arguments. ShareGPT's messages have
``from`` and ``value`` instead; a batch request has a ``body`` with messages, or with the ``input``
of a response, in which calls are items between the messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.corpora.formats.base import Format, with_calls
from fdkvc.corpora.json_input import (
    check_object,
    check_structure,
    optional,
    parse_json,
    require,
)
from fdkvc.corpora.transcripts import (
    Argument,
    Call,
    Demand,
    MentionFinder,
    Transcript,
    Turn,
    check_turns,
    clean,
    clean_name,
)

CONTENT_FIELDS = frozenset(("content", "refusal", "tool_calls", "function_call"))
"""Fields of which a message must have at least one."""

TEXTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Types of a message's parts that have text, and its field."""


CALL_ROLE = "function_call"
"""The sender of ShareGPT's calls."""

ROLES = {"human": "user", "gpt": "assistant", CALL_ROLE: "assistant"}
"""Roles of ShareGPT's senders."""


def read_conversation(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript]:
    """Read one conversation; errors name it, the turn and the field."""
    place = f"dialog {number}"
    named = value.get("id", value.get("title"))
    yield _conversation(require(value, "messages", list, place), named, place, calls)


def read_shared(value: Mapping[str, Any], number: int, calls: bool = False) -> Iterator[Transcript]:
    """Read one conversation of ShareGPT."""
    place = f"dialog {number}"
    yield _conversation(require(value, "conversations", list, place), value.get("id"), place, calls)


def read_request(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript]:
    """Read the conversation of a request of a batch."""
    place = f"dialog {number}"
    body, inside = require(value, "body", dict, place), f"{place}, body"
    if "input" in body and "messages" not in body:
        messages = list(_of_response(body, inside))
    else:
        messages = require(body, "messages", list, inside)
    yield _conversation(messages, value.get("custom_id"), place, calls)


def _conversation(messages: list[Any], named: Any, place: str, calls_in_text: bool) -> Transcript:
    name = clean_name(named) if isinstance(named, str) else ""
    turns: list[Turn] = []
    found_calls: list[tuple[int, str, Any]] = []
    check_turns(place, len(messages))
    for at, found in enumerate(messages):
        where = f"{place}, turn {at}"
        message = _in_chat_terms(check_object(found, where), where)
        topic = clean_name(optional(message, "topic", str, where))
        role = clean_name(require(message, "role", str, where))
        called = list(_calls(message, where))
        words = with_calls(clean(_content(message, where)), called if calls_in_text else [])
        turns.append(Turn(role, words, topic or None))
        found_calls += [(at, *call) for call in called]

    finder = MentionFinder([turn.text for turn in turns], place)
    demands, missing, calls, malformed = [], 0, [], 0
    for at, method, arguments in found_calls:
        if not isinstance(arguments, dict):
            malformed += 1
            continue
        made = []
        for slot, wording in _values(arguments, ""):
            mentions = finder.mentions([wording], before=at)
            value = clean_name(wording)
            if mentions:
                demands.append(Demand("call", at, method, slot, value, mentions))
            else:
                missing += 1
            made.append(Argument(slot, value, mentions[-1] if mentions else None))
        calls.append(Call(at, method, tuple(sorted(made, key=lambda each: each.slot))))
    return Transcript(
        name or place, tuple(turns), tuple(demands), missing, tuple(calls), calls_in_text, malformed
    )


def _of_response(body: Mapping[str, Any], place: str) -> Iterator[Any]:
    """Yield the input of a response as chat messages; there, calls are items of their own."""
    if body.get("instructions") is not None:
        yield {"role": "system", "content": require(body, "instructions", str, place)}
    if isinstance(body["input"], str):
        yield {"role": "user", "content": body["input"]}
        return
    for item in require(body, "input", list, place):
        match item:
            case {"type": "function_call"}:
                yield {"role": "assistant", "function_call": item}
            case {"type": "custom_tool_call"}:
                yield {"role": "assistant", "tool_calls": [{"type": "custom", "custom": item}]}
            case {"type": "function_call_output" | "custom_tool_call_output"}:
                yield {"role": "tool", "content": item.get("output")}
            case {"type": str(kind)} if kind != "message":  # such as reasoning
                yield {"role": "assistant", "content": None}
            case _:
                yield item


def _in_chat_terms(message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return a message with ``role`` and ``content`` where it has ``from`` and ``value``."""
    if "role" in message or "from" not in message:
        return message
    who, text = (require(message, field, str, place) for field in ("from", "value"))
    called = _json_calls(text) if who == CALL_ROLE else []
    if called:
        return {"role": ROLES[who], "tool_calls": [{"function": each} for each in called]}
    return {"role": ROLES.get(who, who), "content": text}


def _json_calls(text: str) -> list[dict[str, Any]]:
    """Return the calls in a JSON text, each a name and arguments; none if it is anything else."""
    found = _parsed(text)
    calls = found if isinstance(found, list) else [found]
    valid = all(
        isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("arguments"), dict)
        for each in calls
    )
    return calls if valid else []


def _content(message: Mapping[str, Any], place: str) -> str:
    """Return the text of a message, its textual parts joined."""
    if not message.keys() & CONTENT_FIELDS:
        require(message, "content", str, place)
    texts = [optional(message, "refusal", str, place)]
    if isinstance(message.get("content"), list):
        for found in message["content"]:
            where = f"{place}: a part of 'content'"
            field = TEXTS.get(str(check_object(found, where).get("type")))
            if field is not None:
                texts.append(require(found, field, str, where))
    else:
        texts.insert(0, optional(message, "content", str, place))
    return "\n".join(filter(None, texts))


def _calls(message: Mapping[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """Yield method and arguments of each call; malformed arguments stay text, not an error.

    A dialog in which a model made such a mistake is worth inspecting.
    """
    called = []
    if message.get("function_call") is not None:
        called.append(require(message, "function_call", dict, place))
    for found in optional(message, "tool_calls", list, place):
        call = check_object(found, f"{place}: a call")
        if call.get("type") == "custom":  # its input is free text
            custom = require(call, "custom", dict, place)
            arguments = {"input": require(custom, "input", str, place)}
            called.append({"name": custom.get("name"), "arguments": arguments})
        else:
            called.append(require(call, "function", dict, place))
    for function in called:
        method = clean_name(require(function, "name", str, place))
        arguments = function.get("arguments")
        found = _parsed(arguments) if isinstance(arguments, str) else arguments
        yield method, found if isinstance(found, dict) else arguments


def _parsed(text: str) -> Any:
    """Parse JSON, an empty text as an object; return None if it is invalid."""
    try:
        check_structure(text.encode("utf-8", "replace"))
        return parse_json(text.strip() or "{}")
    except ValueError:
        return None


def _values(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every text and number in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _values(inner, f"{name}.{at}")
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield clean_name(name), str(value)


FORMAT = Format(
    "chat",
    "chat messages",
    ("json", "jsonl"),
    "messages",
    read_conversation,
    "chat messages with `role` and `content`: one conversation, a list of them, or JSON Lines",
    "a field `topic` of a message",
    "arguments of `tool_calls` and `function_call`",
)

SHARED = Format(
    "shared",
    "ShareGPT",
    ("json", "jsonl"),
    "conversations",
    read_shared,
    "ShareGPT: `conversations` of messages with `from` and `value`",
    demands="arguments of what `function_call` says",
)

REQUESTS = Format(
    "requests",
    "OpenAI batch requests",
    ("json", "jsonl"),
    "body",
    read_request,
    "OpenAI batch requests, whose `body` has chat messages, or the `input` of a response",
    FORMAT.topics,
    FORMAT.demands,
)
