"""Chat messages: objects with ``role`` and ``content``, or with ``from`` and ``value``.

A dialog is read in three steps: a format restates its messages as these (`chat_format`), each
message becomes turns (`turns_of`, with `parts` and `calls`), and the texts and numbers in the
arguments of calls are looked for in earlier turns (`with_demands`). What is not read is counted.

A message may name its topic in a field ``topic``.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, takewhile
from typing import Any

from fdkvc.conversations.formats.base import (
    Dialogs,
    Format,
    Messages,
    Placed,
    restated,
    with_calls,
)
from fdkvc.conversations.formats.calls import (
    UNKNOWN_CALL,
    as_call,
    calls_in,
    cut_calls,
    cut_thinking,
)
from fdkvc.conversations.formats.messages import CALL_ROLES, ROLES, as_message, is_message
from fdkvc.conversations.formats.parts import (
    CONTENT_FIELDS,
    KINDS,
    MESSAGE_FIELDS,
    call_id,
    is_call_field,
    is_system,
    is_thought,
    text_of,
    turns_of_parts,
)
from fdkvc.conversations.formats.steps import EMPTY_RESULT, parts_of_words
from fdkvc.conversations.formats.trees import PARENTS, field_of
from fdkvc.conversations.mentions import NO_EVIDENCE, MentionFinder, wordings_of
from fdkvc.conversations.tools import LISTS, listed_tools
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    check_object,
    objects,
    objects_of,
    of_kind,
    only,
    optional,
    parse_within,
    require,
)
from fdkvc.core.limits import MAX_NAME_CHARACTERS
from fdkvc.core.transcripts import (
    USERS,
    Argument,
    Call,
    Demand,
    Transcript,
    Turn,
    check_texts,
    check_turns,
    clean,
    clean_name,
    role_of,
)
from fdkvc.core.unread import THINKING, Unread, bare, has_words, is_thinking
from fdkvc.core.words import name_set

PROMPT_FIELDS = name_set(
    "system systemprompt systemmessage systeminstruction systeminstructions"
)
"""Fields of a system prompt that stands beside the messages, as `bare` writes them."""

COPIED_CALL = "call written again under its id"

DIALOG_FIELDS = frozenset(("id", "toolConfig", *LISTS))
"""Fields that are read of any dialog's object."""


def chat_format(
    key: str,
    label: str,
    field: str,
    messages: Callable[[JsonObject, str, Unread], Iterable[Placed]] | None = None,
    reads: Iterable[str] = (),
    names: Sequence[str] = ("id",),
    recognizes: Callable[[JsonObject], bool] | None = None,
    name_of: Callable[[JsonObject, str], tuple[str, str]] = lambda value, place: ("", ""),
    noun: str = "dialog",
) -> Format:
    """Return a format of JSON whose dialogs are restated as chat messages.

    `messages` gets a dialog's object, its place in the file, and a counter for what is not read; by
    default, they are those of `with_system`. `restated` keeps what is not read of a message, so
    that it is counted. `reads` are the fields of the object that are read besides the `field` and
    `DIALOG_FIELDS`. `name_of` returns the cluster and the name of a dialog; without a
    name, it is the first text in the fields `names`, or else its place, which begins with `noun`.
    """

    def read(value: JsonObject, number: int, calls: bool = False) -> Dialogs:
        place = f"{noun} {number}"
        check_object(value, place)
        unread = Unread()
        cluster, name = name_of(value, place)
        named = next(filter(value.get, names), "id")
        beside = [] if messages else [*filter(is_prompt, value), answer_beside(value)[0]]
        unread.fields(value, {field, named, *DIALOG_FIELDS, *reads, *beside})
        listed = (
            messages(value, place, unread) if messages else with_system(value, field, place)
        )
        if not name and isinstance(value.get(named), str):
            name = clean_name(value[named])
        yield conversation(value, name or place, [*listed], calls, unread, cluster)

    return Format(key, label, ("json", "jsonl"), field, read, recognizes)


def run_name(value: JsonObject, key: str, kind: str, number: str) -> tuple[str, str]:
    """Return the cluster and the name of a run of a task, empty if it does not name the task."""
    task = value.get(key)
    run = value.get(number)
    if not isinstance(task, str | int):
        return "", ""
    cluster = clean_name(f"{kind} {task}")
    return cluster, f"{cluster}, {number} {run}" if isinstance(run, int) else cluster


def conversation(
    owner: JsonObject,
    name: str,
    messages: Sequence[Placed],
    calls: bool,
    unread: Unread,
    cluster: str = "",
) -> Transcript:
    """Return the dialog of some messages; the object around them lists its tools."""
    check_turns(name, len(messages))
    turns = [*turns_of(_oldest_first(messages), unread, calls)]
    tools = listed_tools(owner, unread)
    return replace(with_demands(name, turns, calls, cluster, unread), tools=tools)


def _oldest_first(messages: Sequence[Placed]) -> Sequence[Placed]:
    """Return messages in order: OpenAI's Assistants list the newest first.

    System prompts without a time stay before the others. Between the first and the last message,
    which need a time, others may lack one.
    """
    prompts = [*takewhile(_is_timeless_prompt, messages)]
    listed = messages[len(prompts) :]
    times = [message.get("created_at") for message, _ in listed]
    numbers = only(times, int)
    match times:
        case [int(newest), *_, int(oldest)] if newest > oldest:
            if numbers == sorted(numbers, reverse=True):
                return [*prompts, *listed[::-1]]
    return messages


def _is_timeless_prompt(placed: Placed) -> bool:
    return is_system(placed[0]) and "created_at" not in placed[0]


def messages_of(value: JsonObject, field: str, place: str, noun: str = "turn") -> Messages:
    """Yield the objects of a required list, which may be a text of JSON, with their places."""
    listed = value.get(field)
    parsed = parse_within(listed) if isinstance(listed, str) else None
    values = parsed if isinstance(parsed, list) else require(value, field, list, place)
    if len(values) == 1 and isinstance(values[0], list):  # of LangSmith
        (values,) = values
    yield from objects(values, noun, place)


def is_prompt(name: str) -> bool:
    """Whether a field beside the messages has their system prompt."""
    return bare(name).removeprefix("genai") in PROMPT_FIELDS


def prompts_beside(value: JsonObject, place: str) -> Messages:
    """Yield the system prompts beside the messages of an object, as messages."""
    for name in filter(is_prompt, value):
        prompt = value[name]
        if isinstance(prompt, dict) and "parts" in prompt:
            yield {**prompt, "role": "system"}, f"{place}, system prompt"
        elif prompt:
            yield {"role": "system", "content": prompt}, f"{place}, system prompt"


def with_system(value: JsonObject, field: str, place: str) -> Messages:
    """Yield the messages in a field as `with_prompts` does."""
    return with_prompts(value, [*messages_of(value, field, place)], place)


def with_prompts(owner: JsonObject, messages: Sequence[Placed], place: str) -> Messages:
    """Yield an object's system prompts that the first message does not repeat, and messages."""
    spoken = texts_of(messages[0][0]) if messages else set()
    for prompt, location in prompts_beside(owner, place):
        if not texts_of(restated(prompt, "role")) <= spoken:
            yield prompt, location
    yield from messages
    _, answer = answer_beside(owner)
    if answer and answer not in [message for message, _ in messages]:
        yield answer, f"{place}, answer"


def answer_beside(owner: JsonObject) -> tuple[str, JsonObject]:
    """Return the field of an answer of OpenAI's API beside its request, and its message.

    Both are empty without one, or with several to choose from.
    """
    for field, answer in (("response", owner.get("response")), ("choices", owner)):
        match answer:
            case {"choices": [{"message": dict(message)}]}:
                return field, message
    return "", {}


Spoken = tuple[Turn, list[tuple[str, Any]]]
"""A turn, and the method and arguments of each of its calls."""


def turns_of(
    messages: Iterable[Placed], unread: Unread, calls_in_text: bool
) -> Iterator[Spoken]:
    """Yield the turns of untrusted messages; errors begin with the place of a message."""
    tools: dict[str, str] = {}  # the called tool, by the id of the call
    waiting: dict[str, str] = {}  # calls without a result so far, by their ids
    placed = chain.from_iterable(_in_chat_terms(*sent, unread) for sent in messages)
    for message, location in placed:
        topic = clean_name(optional(message, "topic", str, location))
        role = message["role"]
        text = text_of(message, location, unread)
        kind = KINDS.get(bare(role))
        if kind == "result":
            waiting.pop(call_id(message), None)
        calls = new_calls(message["tool_calls"], waiting)
        unread.add(COPIED_CALL, len(message["tool_calls"]) - len(calls))
        functions = [call["function"] for call in calls]
        if kind is None and role_of(role) not in USERS:
            text, in_words = cut_calls(cut_thinking(text, unread), unread)
            functions += in_words
        called = [_call(function, location, unread) for function in functions]
        for function, (method, _) in zip(functions, called, strict=True):
            if named := call_id(function):
                tools[named] = method
        tool = tools.get(call_id(message), "") if kind == "result" else ""
        unread.fields(message, {*MESSAGE_FIELDS, *(LISTS if kind == "system" else ())})
        text = clean(text)
        words = with_calls(text, called if calls_in_text else [])
        yield Turn(role, words, topic or None, kind, len(words) - len(text), tool), called


def new_calls(calls: Iterable[JsonObject], waiting: dict[str, str]) -> list[JsonObject]:
    """Return calls without those that were made under their id, and have no result yet."""
    unmade = []
    for call in calls:
        function = of_kind(call, dict).get("function")
        key = call_id(of_kind(function, dict))
        text = json.dumps(call)
        if not key or waiting.get(key) != text:
            unmade.append(call)
        waiting[key] = text
    return unmade


def with_demands(
    name: str,
    spoken_turns: Iterable[Spoken],
    calls_in_text: bool,
    cluster: str,
    unread: Unread,
) -> Transcript:
    """Make the transcript of turns, and find the values that their calls need."""
    turns: list[Turn] = []
    found_calls = []
    for turn, called in spoken_turns:
        found_calls += [(len(turns), *call) for call in called]
        turns.append(turn)
    texts = [turn.text for turn in turns]
    call_note = [("call, which is text on request", len(found_calls))] if found_calls else []
    # Before mentions are looked for, which takes long.
    check_texts(name, texts, [*unread.items(), *call_note])
    finder = MentionFinder(texts, name)
    demands = []
    calls: list[Call] = []
    missing = malformed = 0
    for place, method, values in found_calls:
        if not isinstance(values, dict):
            malformed += 1
            continue
        arguments = []
        for slot, wording in values_in(values):
            value = clean_name(wording)
            demanded = is_demanded(wording)
            mentions = finder.mentions(wordings_of(wording) if demanded else (), before=place)
            missing += demanded and not mentions
            if mentions:
                demands.append(
                    Demand(
                        "call", place, method, slot, value, mentions, call_number=len(calls)
                    )
                )
            arguments.append(Argument(slot, value, mentions[-1] if mentions else None))
        # Files write the arguments of a call in any order.
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


def _in_chat_terms(sent: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield a message in the form of `turns_of_parts`; nothing for what a model only thought."""
    # 1. Who says what.
    message = as_message(sent, place, unread)
    call = as_call(message) if message.get("content") is None else None
    if call:  # what it returned may stand beside it
        message = {"role": "assistant", "tool_calls": [restated(call, "role")]}
    role = message["role"]
    name = message.get("name")
    key = bare(role)
    message["role"] = ROLES.get(key, role)
    is_person = key not in KINDS and key not in CALL_ROLES
    if is_person and isinstance(name, str) and name.strip() and bare(name) != key:
        message["role"] = clean_name(f"{message['role']} ({clean_name(name)})")
        del message["name"]
    if is_thinking(key) or message.get("channel") == "analysis" or is_thought(message):
        unread.add(THINKING)
        return
    # 2. Calls and results in its words.
    if key in CALL_ROLES:
        message = _of_calls(message, unread)
    elif is_person:
        message = _in_parts(message, role_of(message["role"]) not in USERS)
    if not message.keys() & CONTENT_FIELDS and not any(map(is_call_field, message)):
        require(message, "content", str, place)
    yield from turns_of_parts(message, place, unread)


def _in_parts(message: Fields, is_assistant: bool) -> Fields:
    """Return a message with parts for the calls and results in its words."""
    content = message.get("content")
    parts: list[Any] = []
    for part in content if isinstance(content, list) else [content]:
        text = part
        if isinstance(part, dict) and part.get("type", "text") == "text":
            text = part.get("text")
        if parts[-1:] == [EMPTY_RESULT] and isinstance(text, str):  # Cline's heading alone
            parts[-1] = EMPTY_RESULT | {"content": text}
            continue
        inside = parts_of_words(text, is_assistant) if isinstance(text, str) else []
        parts += inside or [part]
    is_changed = any(isinstance(part, dict) and part.get("type") != "text" for part in parts)
    return {**message, "content": parts} if is_changed else message


def _of_calls(message: Fields, unread: Unread) -> Fields:
    """Return a message whose words are calls with ``tool_calls``, if their form is known."""
    content = message.get("content")
    calls = (
        calls_in(content) if isinstance(content, str) else [*filter(None, [as_call(content)])]
    )
    if not calls:
        unread.add(UNKNOWN_CALL, has_words(content))
        return message
    return restated(message, "content", tool_calls=[{"function": call} for call in calls])


def _call(function: JsonObject, place: str, unread: Unread) -> tuple[str, Any]:
    """Return method and arguments of a call; malformed arguments stay text."""
    unread.fields(function, {"name", "arguments"})
    method = clean_name(require(function, "name", str, place))
    arguments = parsed = function.get("arguments") or {}
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
        for key, child in value.items():
            path = f"{name}.{key}" if name else key
            yield from values_in(child, path[: 2 * MAX_NAME_CHARACTERS])
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from values_in(child, f"{name}.{index}")
    # By the exact type, as a bool is an int, too.
    elif type(value) in (str, int) or (isinstance(value, float) and math.isfinite(value)):
        yield clean_name(name), str(value)


def texts_of(value: Any) -> set[str]:
    """Return the texts and finite numbers in a value that are not empty."""
    return {text for _, text in values_in(value)} - {""}


def has_messages(value: Any) -> bool:
    """Whether the first objects of a list are messages, and none of a tree."""
    items = parse_within(value) if isinstance(value, str) else value
    first_objects = objects_of(of_kind(items, list)[:8])
    return all(is_message(item) and not field_of(item, PARENTS) for item in first_objects)


FORMAT = chat_format(
    "chat",
    "chat messages (OpenAI, Anthropic, Bedrock, AI SDK, LangChain)",
    "messages",
    names=("id", "title"),
    recognizes=lambda value: has_messages(value["messages"]),
)

SHARED = chat_format("shared", "ShareGPT", "conversations")
