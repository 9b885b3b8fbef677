"""Parts of messages in the spellings of many APIs: texts, calls, and results of calls.

A part says what it is by its ``type``, or by its only field (Bedrock's ``toolUse``, Gemini's
``functionCall``). A call may be a part (Anthropic's ``tool_use``, the AI SDK's ``tool-NAME``) or
stand beside the words (OpenAI's ``tool_calls``), and have its result in it. `turns_of_parts`
restates a message in one form: calls are ``tool_calls`` with a ``function``, and each result is a
message of a tool. `text_of` then reads its words.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any, Literal

from fdkvc.conversations.formats.base import Placed, restated
from fdkvc.conversations.formats.calls import ARGUMENTS, METHODS, UNKNOWN_CALL, calls_in
from fdkvc.core.json_input import check_object, optional, parse_within, require
from fdkvc.core.unread import Unread, bare, has_words, is_thinking

CONTENT_FIELDS = frozenset(("content", "refusal", "audio", "tool_calls", "function_call"))
"""Fields of which a message must have at least one."""

MESSAGE_FIELDS = CONTENT_FIELDS | {"role", "topic"}
"""Fields that are read of a message."""

_CALLED = ("tool", "function", "toolcall", "functioncall")
_RETURNED = ("response", "responses", "result", "results", "output", "outputs")
_RESULTS = (*map("".join, product(_CALLED, _RETURNED)), "codeexecutionresult")

KINDS: Mapping[str, Literal["system", "result"]] = {
    **dict.fromkeys(("system", "developer", "systemprompt"), "system"),
    **dict.fromkeys(("tool", "function", "observation", "environment", "ipython"), "result"),
    **dict.fromkeys(_RESULTS, "result"),
}
"""Kinds of span by roles, as `bare` writes them."""

_CODE = "executablecode"
_CALLS = ("tooluse", "toolcall", "functioncall", "toolinvocation", "dynamictool", _CODE)
"""How types of parts that are calls end, as `bare` writes them; those of results, as `_RESULTS`."""

TEXTS = {
    **dict.fromkeys(("text", "input_text", "output_text"), "text"),
    **{kind: kind for kind in ("refusal", "logs")},
}
"""Types of parts that have text, and its field."""

MEDIA = frozenset(("image", "document", "video", "audio"))
"""Fields of Bedrock's parts that are no text."""

SILENT_PARTS = frozenset(("step-start", "tool-approval-request", "tool-approval-response"))
"""Types of parts without words."""

_METADATA = ("mediaresolution", "partmetadata", "videometadata")
_SILENT = (*_METADATA, "cachepoint", "thought", "thoughtsignature")
"""Fields of a part without a type that say nothing by themselves, as `bare` writes them."""

GIVEN = (*ARGUMENTS, "rawInput", "code")
RETURNED = ("output", "result", "response", "errorText", "error")
"""Fields with what a tool was given and what it returned, the first that has any."""

NAMES = ("type", "toolName", "outcome", "state")
"""Fields of calls and results that are nobody's words."""

CALL_IDS = ("tool_call_id", "tool_use_id", "call_id", "toolCallId", "toolUseId", "id")
"""Fields with the id of a call, in the call and in its result."""


def is_result(message: Mapping[str, Any]) -> bool:
    """Whether a message is what a tool returned."""
    return KINDS.get(bare(str(message.get("role")))) == "result"


def call_id(owner: Mapping[str, Any]) -> str:
    """Return the id of a call that it or its result names, "" if it names none."""
    named = (owner[field] for field in CALL_IDS if isinstance(owner.get(field), str))
    return next(named, "")


@lru_cache(maxsize=1024)
def _kind(name: str) -> Literal["call", "result", ""]:
    """Return whether a part is a call or a result, by its type or only field."""
    if bare(name).endswith(_RESULTS):
        return "result"
    called = name.startswith("tool-") and name not in SILENT_PARTS
    return "call" if called or bare(name).endswith(_CALLS) else ""


# ------------------------------------------------------------------------------- turns


def turns_of_parts(message: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    """Yield a message as chat messages: words with their calls, and each result by itself.

    Results that stand in calls follow the last of these calls.
    """
    calls, parts = _calls_beside(message, place, unread), message.get("content")
    if isinstance(parts, dict) and not is_result(message):
        parts = [parts]
    message = restated(message, "content", "tool_calls", "function_call")
    if not isinstance(parts, list):
        yield {**message, "content": parts, "tool_calls": calls}, place
        return
    typed = [part for given in parts for part in _typed(given, message, place, unread)]
    turns = _turns_of(typed, message.get("role"), unread)
    if any(is_thinking(str(part.get("type"))) for part in typed):  # a field repeats it
        message = {name: value for name, value in message.items() if not is_thinking(name)}
    # What stands beside the parts belongs to the first turn that is not a result of them.
    first = next((turn for turn in turns if "tool_calls" in turn), None)
    if first is None and (calls or not turns or message.keys() & CONTENT_FIELDS):
        first = {"content": [], "tool_calls": []}
        turns.append(first)
    if first is None:
        unread.fields(message, MESSAGE_FIELDS)
    else:
        first |= {**message, "tool_calls": [*calls, *first["tool_calls"]]}
    for turn in turns:
        yield {"tool_calls": [], **turn, "topic": message.get("topic")}, place


def _turns_of(typed: Iterable[dict[str, Any]], role: Any, unread: Unread) -> list[dict[str, Any]]:
    """Return the turns of typed parts: words and calls join until a result is between them."""
    turns: list[dict[str, Any]] = []
    said: dict[str, Any] | None = None  # the last turn, if words and calls may still join it
    returned: list[dict[str, Any]] = []  # the results that stand in its calls
    for part in typed:
        kind = str(part.get("type"))
        if returned and _kind(kind) != "call":
            turns += returned
            said, returned = None, []
        if kind in SILENT_PARTS:
            unread.fields(part, {"type"})
            continue
        if _kind(kind) == "result":
            turns.append(_result(part))
            said = None
            continue
        if said is None:
            said = {"role": role, "content": [], "tool_calls": []}
            turns.append(said)
        if _kind(kind) == "call":
            made, results = _calls_in(part, kind, unread)
            said["tool_calls"] += made
            returned += results
        else:
            said["content"].append(part)
    return [*turns, *returned]


def _typed(
    part: Any, message: Mapping[str, Any], place: str, unread: Unread
) -> Iterator[dict[str, Any]]:
    """Yield a part with its ``type``, also if only a field says what it is."""
    part = {"text": part} if isinstance(part, str) else part
    part = check_object(part, f"{place}: a part of 'content'")
    if "type" in part:
        yield part
        return
    given = {name: inner for name, inner in part.items() if inner is not None} or part
    for name, inner in given.items():
        # In what a tool returned, a field of this name may be anything.
        if _kind(name) and (isinstance(inner, dict) or not is_result(message)):
            inner = check_object(inner, f"{place}: {name!r}")
            unread.fields(given, {name, *filter(_is_silent, given)})
            yield {**({"name": name} if bare(name) == _CODE else {}), **inner, "type": name}
            return
    match given:
        case {"thought": True}:
            yield {"type": "thought"}
        case {"guardContent": {"text": dict(text)}}:
            yield {**text, "type": "text"}
        case {"citationsContent": {"content": list(cited)}}:
            for inner in cited:
                yield from _typed(inner, message, place, unread)
        case _:
            yield given


def _is_silent(name: str) -> bool:
    return bare(name) in _SILENT


# ------------------------------------------------------------------------------- results


def _result(part: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a message of a tool."""
    content = part.get("content")
    field, words = _returned(part) if content is None else ("content", content)
    return restated(part, field, "name", *NAMES, role="tool", content=words)


def _returned(owner: Mapping[str, Any]) -> tuple[str, Any]:
    """Return the field with what a tool returned ("" if there is none), and its text or parts."""
    fields = [field for field in RETURNED if owner.get(field) is not None]
    field = next(filter(owner.get, fields), fields[0] if fields else "")
    return field, _words(owner[field]) if field else None


def _words(output: Any) -> Any:
    """Return an output as a text, or as the parts that a model reads of it."""
    if isinstance(output, dict) and output.keys() == {"type", "value"}:  # of the AI SDK
        kind, value = str(output["type"]).removeprefix("error-"), output["value"]
        if kind in ("text", "json"):
            return _words(value)
        if kind == "content" and isinstance(value, list):
            return value
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


# ------------------------------------------------------------------------------- calls


def _calls_in(
    part: Mapping[str, Any], kind: str, unread: Unread
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the calls of a part, each as a ``function``, and the results that stand in it."""
    if isinstance(part.get("value"), str):  # a call as a text
        calls = calls_in(part["value"])
        if not calls:
            unread.part(kind)
        return [{"function": call} for call in calls], []
    inside = (part.get("toolInvocation"), part.get("function"))
    inner = next((owner for owner in inside if isinstance(owner, dict)), part)
    if inner is not part:
        unread.fields(part, {"toolInvocation", "function", *NAMES})
    elif kind.startswith("tool-"):
        inner = {"toolName": kind.removeprefix("tool-"), **part}
    named, (field, content) = call_id(inner) or call_id(part), _returned(inner)
    results = [{"role": "tool", "content": content, "tool_call_id": named}] if field else []
    return [{"function": _function(inner, named, field)}], results


def _function(call: Mapping[str, Any], named: str, returned: str = "") -> dict[str, Any]:
    """Return a call with ``id``, ``name`` and ``arguments``, by whatever fields these have."""
    name = next((field for field in METHODS if isinstance(call.get(field), str)), "name")
    given = next((field for field in GIVEN if call.get(field)), "")
    about = {"id": named, "name": call.get(name), "arguments": call[given] if given else {}}
    return restated(call, name, given, returned, "title", *NAMES) | about


def _calls_beside(message: Mapping[str, Any], place: str, unread: Unread) -> list[dict[str, Any]]:
    """Return the calls beside a message's words with ``name`` and ``arguments``."""
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
            function = restated(custom, "input", arguments=arguments)
        elif not isinstance(call.get("function"), dict) and not call.keys().isdisjoint(METHODS):
            functions.append(_function(call, call_id(call)))
            continue
        else:
            function = require(call, "function", dict, place)
        unread.fields(call, {"function", "custom"})
        functions.append({"id": call_id(call), **function})
    return [{"function": function} for function in functions]


# ------------------------------------------------------------------------------- words


def text_of(message: Mapping[str, Any], place: str, unread: Unread) -> str:
    """Return the text of a message, its textual parts joined; count other parts."""
    audio, content = message.get("audio"), message.get("content")
    spoken = optional(audio, "transcript", str, place) if isinstance(audio, dict) else ""
    texts = [optional(message, "refusal", str, place), spoken]
    if audio and not spoken:
        unread.part("audio")
    if is_result(message) and not isinstance(content, str | list | None):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        for part in content:
            part = {"text": part} if isinstance(part, str) else part
            part = check_object(part, f"{place}: a part of 'content'")
            texts += _texts(part, is_result(message), f"{place}: a part of 'content'", unread)
    else:
        texts.insert(0, optional(message, "content", str, place))
    return "\n".join(filter(None, texts))


def _texts(part: Mapping[str, Any], in_result: bool, place: str, unread: Unread) -> Iterator[str]:
    """Yield the text of a part; count one that has none."""
    kind = part.get("type")
    field = TEXTS.get("text" if kind is None else str(kind))
    if in_result and isinstance(part.get("text"), str):  # of whatever type
        field = "text"
    if field is not None and (field in part or "type" in part):
        named = (name for name in (field, "value", "content") if name in part)
        field = next(named, field)
        yield require(part, field, str, place)
        unread.fields(part, {field, *filter(_is_silent, part)})
    elif "type" in part:
        unread.part(str(kind))
    elif in_result and not (len(part) == 1 and part.keys() <= MEDIA):
        yield json.dumps(part["json"] if part.keys() == {"json"} else part, ensure_ascii=False)
    else:
        for name, inner in part.items():
            if isinstance(inner, dict) and not _is_silent(name):
                unread.part(name)  # such as an image
            elif not _is_silent(name):
                unread.fields({name: inner}, ())
