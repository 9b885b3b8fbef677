"""Chat messages: objects with ``role`` and ``content``, and calls of tools where there are any.

A message may name its topic in a field ``topic``. An assistant's ``tool_calls``, the older
``function_call``, and calls in other forms (`calls`) demand the texts and numbers of their
arguments. ShareGPT's messages have ``from`` and ``value`` instead. Formats of agents restate their
messages as these. What is not read is counted.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Any, Literal

from fdkvc.conversations.formats.base import Format, parts_in, with_calls
from fdkvc.conversations.formats.calls import (
    RESULT_TAGS,
    UNKNOWN_CALL,
    as_call,
    blocks,
    calls_in,
    cut_calls,
    cut_thinking,
)
from fdkvc.conversations.mentions import NO_EVIDENCE, MentionFinder, wordings_of
from fdkvc.conversations.tools import LISTS
from fdkvc.core.json_input import check_object, objects, optional, parse_within, require
from fdkvc.core.limits import MAX_NAME_CHARACTERS
from fdkvc.core.transcripts import (
    USERS,
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
    role_of,
)
from fdkvc.core.unread import THINKING, Unread, bare, has_words, is_thinking

Placed = tuple[Mapping[str, Any], str]
"""A message and its place in the file."""

CONTENT_FIELDS = frozenset(("content", "refusal", "audio", "tool_calls", "function_call"))
"""Fields of which a message must have at least one."""

MESSAGE_FIELDS = CONTENT_FIELDS | {"role", "topic"}
"""Fields that are read of a message; of a system prompt also `LISTS`."""

SYSTEM_FIELDS = ("system", "system_prompt", "system_message")
"""Fields with a system prompt beside the messages."""

DIALOG_FIELDS = frozenset(("id", *LISTS))
"""Fields that are read of any dialog's object."""

TEXTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    **{kind: kind for kind in ("refusal", "logs")},
}
"""Types of a message's parts that have text, and its field."""

_CALLED = ("tool", "function", "toolcall", "functioncall")
_RETURNED = ("response", "responses", "result", "results", "output", "outputs")

KINDS: Mapping[str, Literal["system", "result"]] = {
    **dict.fromkeys(("system", "developer", "systemprompt"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "environment", "ipython"), "result"),
    **dict.fromkeys(map("".join, product(_CALLED, _RETURNED)), "result"),
}
"""Kinds of span by roles, those of ShareGPT too, as `bare` writes them."""

CALL_ROLES = frozenset(("functioncall", "functioncalls", "toolcall", "toolcalls", "tooluse"))
"""Roles whose words are calls, as `bare` writes them."""

ROLES = {"human": "user", "gpt": "assistant", **dict.fromkeys(CALL_ROLES, "assistant")}
"""Roles that are given another name."""


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
    default, they are those of `with_system`. `restated` keeps what is not read of a message, so
    that it is counted. `reads` are the fields of the object that `messages` reads besides the
    `field`, the name and `DIALOG_FIELDS`. `cluster` gets the object and its place.
    """

    def read(
        value: Mapping[str, Any], number: int, calls: bool = False
    ) -> Iterator[Transcript | SkippedError]:
        place, unread = f"dialog {number}", Unread()
        name = named(value)
        names = (key for key, inner in value.items() if inner == name)
        besides = reads if messages else SYSTEM_FIELDS
        unread.fields(value, {field, *DIALOG_FIELDS, *besides, *names})
        listed = with_system(value, field, place)
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
    """Yield the objects of a list that is required, which may be a text of JSON, with places."""
    listed = value.get(field)
    parsed = parse_within(listed) if isinstance(listed, str) else None
    values = parsed if isinstance(parsed, list) else require(value, field, list, place)
    yield from objects(values, noun, place)


def with_system(value: Mapping[str, Any], field: str, place: str) -> Iterator[Placed]:
    """Yield the system prompts beside messages, then these."""
    messages = [*messages_of(value, field, place)]
    first = next((message for message, _ in messages), {})
    for name in SYSTEM_FIELDS:
        prompt = value.get(name)
        if prompt and prompt not in (first.get("content"), first.get("value")):
            yield {"role": "system", "content": prompt}, f"{place}, system prompt"
    yield from messages


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
    placed = [*messages]
    check_turns(name or place, len(placed))
    said = [*turns_of(placed, unread, calls_in_text)]
    return with_demands(name or place, said, calls_in_text, cluster, unread)


Said = tuple[Turn, list[tuple[str, Any]]]
"""A turn, and the method and arguments of each of its calls."""


def turns_of(messages: Iterable[Placed], unread: Unread, calls_in_text: bool) -> Iterator[Said]:
    """Yield the turns of chat messages; see `transcript_of`."""
    for sent, sent_at in messages:
        for message, where in _in_chat_terms(sent, sent_at, unread):
            topic = clean_name(optional(message, "topic", str, where))
            role, text = message["role"], _content(message, where, unread)
            kind = KINDS.get(bare(role))
            functions = _functions(message, where, unread)
            if kind is None and role_of(role) not in USERS:
                text, in_words = cut_calls(cut_thinking(text, unread), unread)
                functions += in_words
            called = [_call(function, where, unread) for function in functions]
            unread.fields(message, {*MESSAGE_FIELDS, *(LISTS if kind == "system" else ())})
            text = clean(text)
            words = with_calls(text, called if calls_in_text else [])
            yield Turn(role, words, topic or None, kind, len(words) - len(text)), called


def with_demands(
    name: str, said: Iterable[Said], calls_in_text: bool, cluster: str, unread: Unread
) -> Transcript:
    """Make the transcript of turns, and find the values that their calls need."""
    turns: list[Turn] = []
    found_calls: list[tuple[int, str, Any]] = []
    for turn, called in said:
        found_calls += [(len(turns), *call) for call in called]
        turns.append(turn)
    texts = [turn.text for turn in turns]
    beside = [("call, which is text on request", len(found_calls))] if found_calls else []
    check_texts(name, texts, [*unread.items(), *beside])
    finder = MentionFinder(texts, name)
    demands: list[Demand] = []
    calls: list[Call] = []
    missing = malformed = 0
    for place, method, values in found_calls:
        if not isinstance(values, dict):
            malformed += 1
            continue
        arguments = []
        for slot, wording in values_in(values):
            value, demanded = clean_name(wording), is_demanded(wording)
            mentions = finder.mentions(wordings_of(wording) if demanded else (), before=place)
            missing += demanded and not mentions
            if mentions:
                demands.append(
                    Demand("call", place, method, slot, value, mentions, call_number=len(calls))
                )
            arguments.append(Argument(slot, value, mentions[-1] if mentions else None))
        arguments.sort(key=lambda argument: argument.slot)
        calls.append(Call(place, method, tuple(arguments)))
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


def _in_chat_terms(sent: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    """Yield a message with ``role`` and ``content``: the calls of a message may be several."""
    message = dict(sent)
    if "role" not in message and "from" in message:
        message["role"] = require(message, "from", str, place)
        del message["from"]
    role = clean_name(require(message, "role", str, place))
    for field in ("value", "text"):
        if not message.keys() & CONTENT_FIELDS and (field in message or "from" in sent):
            content = message.get(field)
            if not isinstance(content, list | dict):
                content = require(message, field, str, place)
            message = restated(message, field, content=content)
    key = bare(role)
    if is_thinking(key) or message.get("channel") == "analysis":
        unread.add(THINKING)
        return
    name = message.get("name")
    message["role"] = ROLES.get(key, role)
    if key in CALL_ROLES:
        message = _of_calls(message, unread)
    elif key not in KINDS and isinstance(name, str) and name.strip() and bare(name) != key:
        message["role"] = clean_name(f"{message['role']} ({clean_name(name)})")
        del message["name"]
    text = message.get("content")
    for opening, closing in RESULT_TAGS:
        if key in USERS and isinstance(text, str) and closing in text:
            unread.fields(message, MESSAGE_FIELDS)
            topic = {"topic": message.get("topic")}
            for before, inside in blocks(text, opening, closing):
                if before.strip():
                    yield {**topic, "role": message["role"], "content": before}, place
                if inside is not None:
                    yield {**topic, "role": "tool", "content": inside.strip()}, place
            return
    yield message, place


def _of_calls(message: dict[str, Any], unread: Unread) -> dict[str, Any]:
    """Return a message whose words are calls with these; what has no known form stays text."""
    content = message.get("content")
    given = message if content is None else content
    calls = calls_in(given) if isinstance(given, str) else [*filter(None, [as_call(given)])]
    if not calls:
        unread.add(UNKNOWN_CALL, has_words(content))
        return message
    message = {"role": message["role"]} if given is message else message
    return restated(message, "content", tool_calls=[{"function": call} for call in calls])


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
    is_result = KINDS.get(bare(message["role"])) == "result"
    if is_result and not isinstance(content, str | list | None):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list | dict):
        for part in content if isinstance(content, list) else [content]:
            part = {"text": part} if isinstance(part, str) else part
            kind = check_object(part, f"{place}: a part of 'content'").get("type")
            texts += _part(part, "text" if kind is None else str(kind), is_result, place, unread)
    else:
        texts.insert(0, optional(message, "content", str, place))
    return "\n".join(filter(None, texts))


def _part(
    part: Mapping[str, Any], kind: str, is_result: bool, place: str, unread: Unread
) -> Iterator[str]:
    """Yield the text of a part; count one that has none."""
    field = TEXTS.get(kind)
    if field is not None and (field in part or "type" in part):
        named = (name for name in (field, "value", "content") if name in part)
        field = next(named, field)
        yield require(part, field, str, f"{place}: a part of 'content'")
        unread.fields(part, {field})
    elif is_result and KINDS.get(bare(kind)) == "result":
        unread.fields(part, ("result", "response"))
        yield json.dumps(part.get("result", part.get("response")), ensure_ascii=False)
    elif "type" in part:
        if not _part_calls(part):
            unread.part(kind)
    elif is_result:
        yield json.dumps(part, ensure_ascii=False)
    else:
        unread.fields(part, ())


def _part_calls(part: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the calls that a part is by its type."""
    if bare(str(part.get("type"))) not in ("toolcall", "functioncall"):
        return []
    call = as_call(part)
    return calls_in(str(part.get("value"))) if call is None else [call]


def _functions(message: Mapping[str, Any], place: str, unread: Unread) -> list[Mapping[str, Any]]:
    """Return the calls beside a message's words, each with ``name`` and ``arguments``."""
    functions: list[Mapping[str, Any]] = []
    if called := message.get("function_call"):
        parsed = parse_within(called) if isinstance(called, str) else called
        is_call = isinstance(parsed, dict) and parsed
        functions.append(parsed if is_call else require(message, "function_call", dict, place))
    items = message.get("tool_calls")
    if isinstance(items, str):
        parsed = parse_within(items)
        unread.add(UNKNOWN_CALL, parsed is None and has_words(items))
        items = parsed if isinstance(parsed, list) else []
    if isinstance(items, dict):
        items = [items] if items else []
    for item in items if isinstance(items, list) else optional(message, "tool_calls", list, place):
        call = check_object(item, f"{place}: a call")
        if call.get("type") == "custom":  # its input is free text
            custom = require(call, "custom", dict, place)
            arguments = {"input": require(custom, "input", str, place)}
            functions.append(restated(custom, "input", arguments=arguments))
        elif "function" not in call and (flat := as_call(call)) is not None:
            functions.append(flat)
            continue
        else:
            functions.append(require(call, "function", dict, place))
        unread.fields(call, {"function", "custom"})
    calls = map(_part_calls, parts_in([message], "content"))
    return [*functions, *chain.from_iterable(calls)]


def _call(function: Mapping[str, Any], place: str, unread: Unread) -> tuple[str, Any]:
    """Return method and arguments of a call; malformed arguments stay text."""
    unread.fields(function, {"name", "arguments"})
    method = clean_name(require(function, "name", str, place))
    arguments = parsed = function.get("arguments")
    for _ in range(2):  # a text of JSON, also within another
        if isinstance(parsed, str):
            parsed = parse_within(parsed)
    return method, parsed if isinstance(parsed, dict) else arguments


def is_demanded(wording: str) -> bool:
    """Whether a mention of a call's value would be evidence for it."""
    return wording.strip().casefold() not in NO_EVIDENCE


def values_in(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and text of every text and finite number in a value."""
    if isinstance(value, dict):
        for key, inner in value.items():
            path = f"{name}.{key}" if name else key
            yield from values_in(inner, path[: 2 * MAX_NAME_CHARACTERS])
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from values_in(inner, f"{name}.{index}")
    elif type(value) in (str, int) or (isinstance(value, float) and math.isfinite(value)):
        yield clean_name(name), str(value)


FORMAT = chat_format(
    "chat", "chat messages", "messages", named=lambda value: value.get("id", value.get("title"))
)

SHARED = chat_format("shared", "ShareGPT", "conversations")
