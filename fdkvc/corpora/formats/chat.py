"""Chat messages: objects with ``role`` and ``content``, and calls of tools where there are any.

A message may name its topic in a field ``topic``. An assistant's ``tool_calls``, and the older
``function_call``, demand the texts and numbers of their arguments. ShareGPT's messages have
``from`` and ``value`` instead. Formats of agents restate their messages as these.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from fdkvc.corpora.formats.base import Format, with_calls
from fdkvc.corpora.json_input import (
    check_object,
    check_structure,
    objects,
    optional,
    parse_json,
    require,
)
from fdkvc.corpora.mentions import NO_EVIDENCE, MentionFinder, wordings_of
from fdkvc.corpora.transcripts import (
    Argument,
    Call,
    Demand,
    SkippedError,
    Transcript,
    Turn,
    check_texts,
    check_turns,
    clean,
    clean_name,
)
from fdkvc.corpora.unread import Unread
from fdkvc.limits import MAX_NAME_CHARACTERS

Placed = tuple[Mapping[str, Any], str]
"""A message and its place in the file."""

CONTENT_FIELDS = frozenset(("content", "refusal", "audio", "tool_calls", "function_call"))
"""Fields of which a message must have at least one."""

MESSAGE_FIELDS = CONTENT_FIELDS | {"role", "topic"}
"""Fields that are read of a message."""

DIALOG_FIELDS = frozenset(("tools", "id"))
"""Fields that are read of any dialog's object."""

TEXTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    "refusal": "refusal",
}
"""Types of a message's parts that have text, and its field."""

KINDS: Mapping[str, Literal["system", "result"]] = {
    "system": "system",
    "developer": "system",
    "tool": "result",
    "function": "result",
    "observation": "result",
}
"""Kinds of span by roles, those of ShareGPT too, in lower case."""

CALL_ROLE = "function_call"
"""The sender of ShareGPT's calls."""

ROLES = {"human": "user", "gpt": "assistant", CALL_ROLE: "assistant"}
"""Roles of ShareGPT's senders."""


def chat_format(
    key: str,
    label: str,
    field: str,
    messages: Callable[[Mapping[str, Any], str, Unread], Iterable[Placed]] | None = None,
    *,
    reads: Iterable[str] = (),
    named: Callable[[Mapping[str, Any]], Any] = lambda value: value.get("id"),
    cluster: Callable[[Mapping[str, Any], str], str] = lambda value, place: "",
    recognizes: Callable[[Mapping[str, Any]], bool] | None = None,
) -> Format:
    """Return a format of JSON whose dialogs are restated as chat messages.

    `messages` gets a dialog's object, its place in the file, and a counter for what is not read; by
    default, they are those in the field. `restated` keeps what is not read of a message, so that it
    is counted. `reads` are the fields of the object that are read besides the
    `field`, the name and `DIALOG_FIELDS`. `cluster` gets the object and its place.
    """

    def read(
        value: Mapping[str, Any], number: int, calls: bool = False
    ) -> Iterator[Transcript | SkippedError]:
        place, unread = f"dialog {number}", Unread()
        name = named(value)
        names = (key for key, inner in value.items() if inner == name)
        unread.fields(value, {field, *DIALOG_FIELDS, *reads, *names})
        listed = messages_of(value, field, place)
        placed = [*(messages(value, place, unread) if messages else listed)]
        yield transcript_of(placed, name, place, calls, cluster(value, place), unread)

    return Format(key, label, ("json", "jsonl"), field, read, recognizes)


def restated(message: Mapping[str, Any], *read: str, **fields: Any) -> dict[str, Any]:
    """Return a message with other fields in place of those that are read.

    Examples
    --------
    >>> restated({"from": "human", "says": "hello", "mood": "glad"}, "from", "says", role="user")
    {'mood': 'glad', 'role': 'user'}
    """
    return {name: value for name, value in message.items() if name not in read} | fields


def messages_of(
    value: Mapping[str, Any], field: str, place: str, noun: str = "turn"
) -> Iterator[Placed]:
    """Yield the objects of a list that is required, each with its place."""
    yield from objects(require(value, field, list, place), noun, place)


def transcript_of(
    messages: Iterable[Placed],
    named: Any,
    place: str,
    calls_in_text: bool,
    cluster: str,
    unread: Unread,
) -> Transcript:
    """Make a transcript of untrusted chat messages, those of ShareGPT too.

    Each has its place in the file, which begins errors about it. `named` is the dialog's name, if
    it is a text, or else `place` is. `cluster` is the `Transcript`'s, and
    `unread` counts what is not read, here too.
    """
    name = clean_name(named) if isinstance(named, str) else ""
    turns: list[Turn] = []
    found_calls: list[tuple[int, str, Any]] = []
    placed = [*messages]
    check_turns(name or place, len(placed))
    for at, (sent, where) in enumerate(placed):
        message = _in_chat_terms(sent, where)
        topic = clean_name(optional(message, "topic", str, where))
        role = clean_name(require(message, "role", str, where))
        called = list(_calls(message, where, unread))
        text = clean(_content(message, where, unread))
        unread.fields(message, MESSAGE_FIELDS)
        words = with_calls(text, called if calls_in_text else [])
        kind = KINDS.get(role.casefold())
        turns.append(Turn(role, words, topic or None, kind, len(words) - len(text)))
        found_calls += [(at, *call) for call in called]

    texts, name = [turn.text for turn in turns], name or place
    check_texts(name, texts)
    finder = MentionFinder(texts, name)
    demands: list[Demand] = []
    calls: list[Call] = []
    missing = malformed = 0
    for at, method, arguments in found_calls:
        if not isinstance(arguments, dict):
            malformed += 1
            continue
        made = []
        for slot, wording in _values(arguments, ""):
            value, demanded = clean_name(wording), wording.strip().casefold() not in NO_EVIDENCE
            mentions = finder.mentions(wordings_of(wording) if demanded else (), before=at)
            missing += demanded and not mentions
            if mentions:
                demand = Demand("call", at, method, slot, value, mentions, call_number=len(calls))
                demands.append(demand)
            made.append(Argument(slot, value, mentions[-1] if mentions else None))
        calls.append(Call(at, method, tuple(sorted(made, key=lambda argument: argument.slot))))
    return Transcript(
        name,
        tuple(turns),
        tuple(demands),
        missing,
        tuple(calls),
        calls_in_text,
        malformed,
        cluster,
        tuple(unread.items()),
    )


def _in_chat_terms(message: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    """Return a message with ``role`` and ``content`` where it has ``from`` and ``value``."""
    if "role" in message or "from" not in message:
        return message
    who, text = (require(message, field, str, place) for field in ("from", "value"))
    called = _json_calls(text) if who == CALL_ROLE else []
    if called:
        return {"role": ROLES[who], "tool_calls": [{"function": call} for call in called]}
    return {"role": ROLES.get(who, who), "content": text}


def _json_calls(text: str) -> list[dict[str, Any]]:
    """Return the calls in a JSON text, each a name and arguments; none if it is anything else."""
    parsed = _parsed(text)
    calls = parsed if isinstance(parsed, list) else [parsed]
    for call in calls:
        match call:
            case {"name": str(), "arguments": dict()}:
                continue
        return []
    return calls


def _content(message: Mapping[str, Any], place: str, unread: Unread) -> str:
    """Return the text of a message, its textual parts joined; count other parts."""
    if not message.keys() & CONTENT_FIELDS:
        require(message, "content", str, place)
    audio = message.get("audio")
    spoken = optional(audio, "transcript", str, place) if isinstance(audio, dict) else ""
    texts = [optional(message, "refusal", str, place), spoken]
    if audio and not spoken:
        unread.part("audio")
    content = message.get("content")
    is_result = KINDS.get(message["role"].casefold()) == "result"
    if is_result and not isinstance(content, str | list | None):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        for part in content:
            where = f"{place}: a part of 'content'"
            kind = str(check_object(part, where).get("type"))
            if kind in TEXTS:
                texts.append(require(part, TEXTS[kind], str, where))
                unread.fields(part, {TEXTS[kind]})
            else:
                unread.part(kind)
    else:
        texts.insert(0, optional(message, "content", str, place))
    return "\n".join(filter(None, texts))


def _calls(message: Mapping[str, Any], place: str, unread: Unread) -> Iterator[tuple[str, Any]]:
    """Yield method and arguments of each call; malformed arguments stay text."""
    called = []
    if message.get("function_call") is not None:
        called.append(require(message, "function_call", dict, place))
    for item in optional(message, "tool_calls", list, place):
        call = check_object(item, f"{place}: a call")
        unread.fields(call, {"function", "custom"})
        if call.get("type") == "custom":  # its input is free text
            custom = require(call, "custom", dict, place)
            arguments = {"input": require(custom, "input", str, place)}
            called.append(restated(custom, "input", arguments=arguments))
        else:
            called.append(require(call, "function", dict, place))
    for function in called:
        unread.fields(function, {"name", "arguments"})
        method = clean_name(require(function, "name", str, place))
        arguments = function.get("arguments")
        parsed = _parsed(arguments) if isinstance(arguments, str) else arguments
        yield method, parsed if isinstance(parsed, dict) else arguments


def _parsed(text: str) -> Any:
    """Parse JSON, an empty text as an object; return None if it is invalid."""
    try:
        check_structure(text.encode("utf-8", "replace"))
        return parse_json(text.strip() or "{}")
    except ValueError:
        return None


def _values(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield the path and text of every text and finite number in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{name}.{key}" if name else key
            yield from _values(inner, path[: 2 * MAX_NAME_CHARACTERS])
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from _values(inner, f"{name}.{at}")
    elif type(value) in (str, int) or (isinstance(value, float) and math.isfinite(value)):
        yield clean_name(name), str(value)


FORMAT = chat_format(
    "chat", "chat messages", "messages", named=lambda value: value.get("id", value.get("title"))
)

SHARED = chat_format("shared", "ShareGPT", "conversations")
