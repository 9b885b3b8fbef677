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
from itertools import chain, product
from typing import Any, Literal

from fdkvc.conversations.formats.base import Messages, restated
from fdkvc.conversations.formats.calls import ARGUMENTS, METHODS, UNKNOWN_CALL, calls_in
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    check_object,
    field_with,
    optional,
    parse_within,
    require,
)
from fdkvc.core.unread import Unread, bare, is_thinking
from fdkvc.core.words import name_list, name_set

CONTENT_FIELDS = name_set("content refusal audio tool_calls function_call")
"""Fields of which a message must have at least one."""

MESSAGE_FIELDS = CONTENT_FIELDS | {"role", "topic"}
"""Fields that are read of a message."""

_CALLED = name_list("tool function toolcall functioncall")
_RETURNED = name_list("response responses result results output outputs")
_RESULTS = (
    *map("".join, product(_CALLED, _RETURNED)),
    *("codeexecutionresult", "functionexecutionresult"),
)

KINDS: Mapping[str, Literal["system", "result"]] = {
    **dict.fromkeys(("system", "developer", "systemprompt"), "system"),
    **dict.fromkeys(name_list("tool function observation environment ipython"), "result"),
    **dict.fromkeys(_RESULTS, "result"),
}
"""Kinds of span by roles, as `bare` writes them."""

_CODE = "executablecode"
_CALLS = name_list(
    f"tooluse toolcall functioncall toolinvocation dynamictool toolrequest {_CODE}"
)
"""How types of parts that are calls end, as `bare` writes them; those of results, as `_RESULTS`."""

CALL_FIELDS = name_set(
    "toolcalls functioncall functioncalls tooluses toolinvocations toolrequests"
)
"""Fields of calls beside a message's words, as `bare` writes them."""

TEXTS = {
    **dict.fromkeys(name_list("text input_text output_text markdown"), "text"),
    "refusal": "refusal",
    "logs": "logs",
}
"""Types of parts that have text, and its field."""

MEDIA = name_set("image document video audio")
"""Fields of Bedrock's parts that are no text."""

SILENT_PARTS = name_set("step-start step-finish tool-approval-request tool-approval-response")
"""Types of parts without words."""

_SILENT = name_list(
    "mediaresolution partmetadata videometadata cachepoint thought thoughtsignature"
)
"""Fields of a part without a type that say nothing by themselves, as `bare` writes them."""

GIVEN = (*ARGUMENTS, "rawInput", "code")
RETURNED = name_list("output result observation response errorText error toolResult")
"""Fields with what a tool was given and what it returned, the first that has any."""

NAMES = name_list("type toolName outcome state status title view")
"""Fields of calls and results that are nobody's words."""

CALL_IDS = name_list("tool_call_id tool_use_id call_id toolCallId toolUseId callID callId id")
"""Fields with the id of a call, in the call and in its result."""

INNER = name_list("toolInvocation toolCall tool_call value function custom request")
"""Fields of a call with an object that has its name and arguments, the outer ones first."""


def is_result(message: JsonObject) -> bool:
    """Whether a message is what a tool returned."""
    return KINDS.get(bare(str(message.get("role")))) == "result"


def is_system(message: JsonObject) -> bool:
    """Whether a message is a system prompt."""
    return KINDS.get(bare(str(message.get("role")))) == "system"


def is_call_field(name: str) -> bool:
    """Whether a message's field of this name has calls."""
    return bare(name) in CALL_FIELDS


def call_id(owner: JsonObject) -> str:
    """Return the id of a call that it or its result names, "" if it names none."""
    field = field_with(owner, CALL_IDS, str)
    return owner[field] if field else ""


def is_thought(owner: JsonObject) -> bool:
    """Whether a part or a message is what a model thought."""
    marks = owner.get("thought"), owner.get("isThought")
    return True in marks or is_thinking(str(owner.get("type")))


@lru_cache(maxsize=1024)
def _kind(name: str) -> Literal["call", "result", ""]:
    """Return whether a part is a call or a result, by its type or only field."""
    if bare(name).endswith(_RESULTS):
        return "result"
    is_call = name == "tool" or (name.startswith("tool-") and name not in SILENT_PARTS)
    return "call" if is_call or bare(name).endswith(_CALLS) else ""


# ------------------------------------------------------------------------------- turns


def turns_of_parts(message: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield a message as chat messages: words with their calls, and each result by itself.

    Results that stand in calls follow the last of these calls.
    """
    parts = message.get("content")
    call_fields = [name for name in message if is_call_field(name) and message[name]]
    if isinstance(parts, dict) and not is_result(message):
        parts = [parts]
    if not isinstance(parts, list):
        if not call_fields:
            yield {**message, "tool_calls": []}, place
            return
        parts = [parts] if parts else []
    typed = [*chain.from_iterable(_typed(part, message, place, unread) for part in parts)]
    for name in call_fields:
        calls = _calls_beside(message, name, place, unread)
        # The AI SDK's calls were made before the words.
        typed = [*calls, *typed] if name == "toolInvocations" else [*typed, *calls]
    message = restated(message, "content", *filter(is_call_field, message))
    turns = _turns_of(typed, message.get("role"), unread)
    if any(is_thinking(str(part.get("type"))) for part in typed):  # a field repeats it
        message = {name: value for name, value in message.items() if not is_thinking(name)}
    # What stands beside the parts belongs to the first turn that is not a result of them.
    first = next((turn for turn in turns if "tool_calls" in turn), None)
    if first is None and (not turns or message.keys() & CONTENT_FIELDS):
        first = {"content": [], "tool_calls": []}
        turns.append(first)
    if first is None:
        unread.fields(message, MESSAGE_FIELDS)
    else:
        first |= {**message, "tool_calls": first["tool_calls"]}
    for turn in turns:
        yield {"tool_calls": [], **turn, "topic": message.get("topic")}, place


def _turns_of(typed: Iterable[Fields], role: Any, unread: Unread) -> list[Fields]:
    """Return the turns of typed parts: words and calls join until a result is between them."""
    turns = []
    turn: Fields | None = None  # the last one, if words and calls may still join it
    returned: list[Fields] = []  # the results that stand in its calls
    copies = set()  # of the calls so far: a message may have them in two fields
    for part in typed:
        kind = str(part.get("type"))
        if returned and _kind(kind) != "call":
            turns += returned
            turn = None
            returned = []
        if kind in SILENT_PARTS:
            unread.fields(part, {"type", "tokens"})
            continue
        if _kind(kind) == "result":
            turns.append(_result(part))
            turn = None
            continue
        if turn is None:
            turn = {"role": role, "content": [], "tool_calls": []}
            turns.append(turn)
        if _kind(kind) != "call":
            turn["content"].append(part)
            continue
        for call, result in _calls_in(part, kind, unread):
            key = json.dumps([*map(call["function"].get, ("name", "arguments", "id"))])
            if key not in copies or not call["function"].get("id"):
                turn["tool_calls"].append(call)
                returned += result
            copies.add(key)
    return [*turns, *returned]


def _typed(part: Any, message: JsonObject, place: str, unread: Unread) -> Iterator[Fields]:
    """Yield a part with its ``type``, also if only a field says what it is."""
    part = _as_part(part, place)
    if part.get("type") == "message" and isinstance(part.get("content"), list):
        for child in part["content"]:
            yield from _typed(child, message, place, unread)
        return
    if part.keys() == {"type", "data"} and isinstance(part["data"], dict):
        part = part["data"] | {"type": part["type"]}
    if "type" in part:
        yield part
        return
    fields = {name: child for name, child in part.items() if child is not None} or part
    for name, child in fields.items():
        # In what a tool returned, a field of this name may be anything.
        if _kind(name) and (isinstance(child, dict) or not is_result(message)):
            child = check_object(child, f"{place}: {name!r}")
            unread.fields(fields, {name, *filter(_is_silent, fields)})
            yield {**({"name": name} if bare(name) == _CODE else {}), **child, "type": name}
            return
    match fields:
        case {"thought": True}:
            yield {"type": "thought"}
        case {"guardContent": {"text": dict(text)}}:
            yield {**text, "type": "text"}
        case {"citationsContent": {"content": list(cited)}}:
            for child in cited:
                yield from _typed(child, message, place, unread)
        case {"name": str(), "arguments": str() | dict()}:  # of AutoGen
            yield {**fields, "type": "tool_call"}
        case {"call_id": str(), "content": str()}:
            yield {**fields, "type": "tool_result"}
        case {"kind": str(kind)} if kind in TEXTS or _kind(kind):
            yield restated(fields, "kind", type=kind)
        case _:
            yield fields


def _as_part(part: Any, place: str) -> Fields:
    """Return a part as an object, also if it is a text; a ValueError if it is neither."""
    return check_object(
        {"text": part} if isinstance(part, str) else part, _place_of_part(place)
    )


def _place_of_part(place: str) -> str:
    return f"{place}: a part of 'content'"


def _is_silent(name: str) -> bool:
    return bare(name) in _SILENT


# ------------------------------------------------------------------------------- results


def _result(part: JsonObject) -> Fields:
    """Return a result as a message of a tool."""
    content = part.get("content")
    field, words = _returned(part) if content is None else ("content", content)
    return restated(part, field, "name", "tool_calls", *NAMES, role="tool", content=words)


def _returned(owner: JsonObject) -> tuple[str, Any]:
    """Return the field with what a tool returned ("" if there is none), and its text or parts."""
    fields = [field for field in RETURNED if owner.get(field) is not None]
    field = next(filter(owner.get, fields), fields[0] if fields else "")
    return field, _words(owner[field]) if field else None


def _words(output: Any) -> Any:
    """Return an output as a text, or as the parts that a model reads of it."""
    match output:
        case {"type": str(kind), "value": value} if len(output) == 2:  # of the AI SDK
            if kind.endswith(("text", "json")):
                return _words(value)
            if kind == "content" and isinstance(value, list):
                return value
        case (
            {"status": str(), "value": value} | {"text": str(value)} | {"output": str(value)}
        ) if len(output) <= 2:
            return value if isinstance(value, list) else _words(value)
    if isinstance(output, list) and output and all(map(_is_text, output)):
        return output
    return output if isinstance(output, str) else json.dumps(output, ensure_ascii=False)


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in TEXTS


# ------------------------------------------------------------------------------- calls


def _calls_in(
    part: JsonObject, kind: str, unread: Unread
) -> Iterator[tuple[Fields, list[Fields]]]:
    """Yield the calls of a part, each as a ``function``, with the result that stands in it."""
    if isinstance(part.get("value"), str):  # a call as a text
        calls = calls_in(part["value"])
        if not calls:
            unread.part(kind)
        for call in calls:
            yield {"function": call}, []
        return
    call = {"toolName": kind.removeprefix("tool-")} if kind.startswith("tool-") else {}
    call |= part
    for name in INNER:
        child = call.get(name)
        if isinstance(child, dict):
            if name == "custom":  # its input is free text
                child = restated(child, "input", arguments={"input": child.get("input")})
            call = restated(call, name) | child
    if isinstance(part.get("state"), dict):  # opencode's
        call |= part["state"]
    key = call_id(call) or call_id(part)
    field, content = _returned(call)
    if field == "error" and call.keys().isdisjoint(METHODS):  # it was no call
        unread.part(kind)
        return
    function = _function(call, key, field)
    failed = {"is_error": True} if call.get("status") == "error" else {}
    results = [{"role": "tool", "content": content, "tool_call_id": key, **failed}]
    yield {"function": function}, results if field else []


def _function(call: JsonObject, key: str, returned: str) -> Fields:
    """Return a call with ``id``, ``name`` and ``arguments``, by whatever fields these have."""
    name = field_with(call, METHODS, str) or "name"
    argument_field = next(filter(call.get, GIVEN), "")
    arguments = call[argument_field] if argument_field else call.get("arguments", {})
    function_fields = {"id": key, "name": call.get(name), "arguments": arguments}
    return restated(call, name, argument_field, returned, *NAMES) | function_fields


def _calls_beside(message: JsonObject, field: str, place: str, unread: Unread) -> list[Fields]:
    """Return the calls in a field of a message as parts."""
    calls = message[field]
    if isinstance(calls, str):
        calls = parse_within(calls)
        unread.add(UNKNOWN_CALL, calls is None)
        calls = calls or []
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        require(message, field, list, place)
    parts = [check_object(call, f"{place}: a call") for call in calls]
    return [{**call, "type": "tool_call"} for call in parts]


# ------------------------------------------------------------------------------- words


def text_of(message: JsonObject, place: str, unread: Unread) -> str:
    """Return the text of a message, its textual parts joined; count other parts."""
    audio = message.get("audio")
    content = message.get("content")
    spoken = optional(audio, "transcript", str, place) if isinstance(audio, dict) else ""
    texts = [optional(message, "refusal", str, place), spoken]
    if audio and not spoken:
        unread.part("audio")
    if is_result(message) and not isinstance(content, str | list | None):
        return json.dumps(content, ensure_ascii=False)
    if isinstance(content, list):
        for part in content:
            part = _as_part(part, place)
            texts += _texts(part, is_result(message), _place_of_part(place), unread)
    else:
        texts.insert(0, optional(message, "content", str, place))
    return "\n".join(filter(None, texts))


def _texts(part: JsonObject, in_result: bool, place: str, unread: Unread) -> Iterator[str]:
    """Yield the text of a part; count one that has none."""
    if in_result and "type" in part and isinstance(part.get("document"), dict):  # of Cohere
        part = part["document"]
    kind = part.get("type")
    field = TEXTS.get("text" if kind is None else str(kind))
    if in_result and isinstance(part.get("text"), str):  # of whatever type
        field = "text"
    if in_result and part.keys() == {"value"} and isinstance(part["value"], str):
        field = "value"
    if field is not None and (field in part or "type" in part):
        named = (name for name in (field, "value", "content") if name in part)
        field = next(named, field)
        child = part.get(field)
        if isinstance(child, dict):
            yield require(child, "value", str, place)
        else:
            yield require(part, field, str, place)
        unread.fields(part, {field, *filter(_is_silent, part)})
    elif "type" in part:
        unread.part(str(kind))
    elif in_result and not (len(part) == 1 and part.keys() <= MEDIA):
        yield json.dumps(part["json"] if part.keys() == {"json"} else part, ensure_ascii=False)
    else:
        for name, child in part.items():
            if isinstance(child, dict) and not _is_silent(name):
                unread.part(name)  # such as an image
            elif not _is_silent(name):
                unread.fields({name: child}, ())
