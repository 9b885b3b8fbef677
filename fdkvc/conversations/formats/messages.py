"""Messages in the spellings of many programs: who says it, and in which field the words stand."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from fdkvc.conversations.formats.base import restated
from fdkvc.conversations.formats.calls import blocks
from fdkvc.conversations.formats.parts import KINDS
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    check_object,
    objects_of,
    of_kind,
    optional,
    require,
)
from fdkvc.core.transcripts import ASSISTANTS, USERS, clean_name
from fdkvc.core.unread import Unread, bare, is_thinking
from fdkvc.core.words import name_list, name_set

CALL_ROLES = name_set("functioncall functioncalls toolcall toolcalls tooluse")
"""Roles whose words are calls, as `bare` writes them."""

ROLES = {
    **dict.fromkeys(name_list("human prompter enduser you requester"), "user"),
    **dict.fromkeys(name_list("gpt ai gemini copilot responder"), "assistant"),
    **dict.fromkeys(CALL_ROLES, "assistant"),
}
"""The names of roles that files call otherwise, as `bare` writes them."""

NAMED = (
    USERS | ASSISTANTS | name_set("developer tool toolresult function functionexecutionresult")
)
"""Roles that a message may have in another field: a type of another kind is that of a part."""

MAX_SPEAKER_CHARACTERS = 64
"""Characters of a value that may name a speaker: a longer one is words."""

SPEAKERS = name_list("role from sender author speaker type kind")
"""Fields that may name the speaker; `role` and `from` may have any name."""

WORDS = name_list("value text parts message body")
"""Fields with the words where there is no `content`."""

WRAPPERS = name_list("message data kwargs info author additional_kwargs intermediate_data")
"""Fields with an object that has a part of the message."""

INSTRUCTIONS = "user_editable_context"
"""The type of custom instructions."""

CHATGPT_TEXTS: Mapping[str, tuple[str, ...]] = {
    INSTRUCTIONS: ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
    "tether_browsing_display": ("result", "summary"),
}
"""Fields with the words of a content by its type; of others, `text` and `parts`."""

THOUGHTS = ("thoughts", "reasoning_recap")
"""Types of content that is thinking, which is counted."""

METADATA = ("response_metadata", "usage_metadata")
_LABELS = name_list("id model_name model_provider service_tier system_fingerprint")
_REPEATED = ("lc", "tool_call_chunks", "type")


def role_of_name(name: Any) -> str:
    """Return the role that a speaker's name stands for, "" if it is not known.

    Examples
    --------
    >>> role_of_name("HumanMessage"), role_of_name("tool_result"), role_of_name("note")
    ('user', 'toolresult', '')
    """
    is_short = isinstance(name, str) and len(name) <= MAX_SPEAKER_CHARACTERS
    return _role_of(name) if is_short else ""


@lru_cache(maxsize=4096)
def _role_of(name: str) -> str:
    key = re.sub("message(chunk)?$", "", bare(name))
    is_known = key in USERS | ASSISTANTS | KINDS.keys() | CALL_ROLES | ROLES.keys()
    if key in CALL_ROLES:
        return key
    return ROLES.get(key, key) if is_known or is_thinking(key) else ""


def unwrapped(message: JsonObject) -> Fields:
    """Return a message as one object, with its speaker in ``role`` where it is known."""
    fields = dict(message)
    path = fields.get("id")
    if "lc" in fields and isinstance(path, list) and path:  # a constructor of LangChain
        fields["type"] = path[-1]
    for name in WRAPPERS:
        wrapped = fields.get(name)
        if isinstance(wrapped, dict):
            wrapped = unwrapped(wrapped)
            outer_fields = {
                field: value
                for field, value in fields.items()
                if value or field not in wrapped
            }
            fields = wrapped | restated(outer_fields, name)
    if "role" not in fields and "from" not in fields:
        for name in SPEAKERS:
            role = role_of_name(fields.get(name))
            if role in NAMED:
                return restated(fields, name, role=role)
    return fields


def is_message(value: Any) -> bool:
    """Whether a value is an object that names its speaker."""
    return isinstance(value, dict) and not unwrapped(value).keys().isdisjoint(("role", "from"))


def as_message(sent: JsonObject, place: str, unread: Unread) -> Fields:
    """Return a message with its speaker in ``role`` and its words in ``content``."""
    message = unwrapped(sent)
    if "role" not in message and "from" in message:
        message = restated(message, "from", role=require(message, "from", str, place))
    message["role"] = clean_name(require(message, "role", str, place))
    for name in METADATA:
        unread.fields(optional(message, name, dict, place), _LABELS)
    # LangChain keeps calls apart that its own parser refused.
    refused = optional(message, "invalid_tool_calls", list, place)
    if refused:
        called = optional(message, "tool_calls", list, place)
        unread.add("reason why a call was refused", len(refused))
        calls = [
            restated(call, "error") if isinstance(call, dict) else call for call in refused
        ]
        message["tool_calls"] = [*called, *calls]
    message = restated(message, "invalid_tool_calls", *METADATA, *_REPEATED)
    content = message.get("content")
    if isinstance(content, dict) and not content.keys().isdisjoint(("content_type", "parts")):
        return of_chatgpt(message, place, unread)
    field = "output" if _is_items(message.get("output")) else "parts"
    parts: Any = message.get(field)
    if parts:
        is_alone = isinstance(parts, str | dict)
        parts = [parts] if is_alone else require(message, field, list, place)
        _count_beside(message, parts, unread)
        message = restated(message, field, content=parts)
        if message.get("toolInvocations") and not message.get("tool_calls"):
            invoked = message["toolInvocations"]
            message = restated(message, "toolInvocations", tool_calls=invoked)
        return message
    for name in WORDS:
        if message.get("content") is None and name in message:
            words = message[name]
            is_structure = isinstance(words, list | dict)
            words = words if is_structure else optional(message, name, str, place)
            message = restated(message, name, content=words)
    # Some programs write the words of a message in two fields.
    repeated = [name for name in WORDS if message.get(name) == message.get("content")]
    return restated(message, *repeated)


def of_chatgpt(message: JsonObject, place: str, unread: Unread) -> Fields:
    """Return a message of ChatGPT, whose ``content`` is an object, with a list of parts.

    What the assistant addresses to a tool, its ``recipient``, is a call; what tools answer is a
    result. Custom instructions are the system prompt. Images and thoughts are counted.
    """
    content = message["content"]
    parts = [*parts_of_content(content, place, unread)]
    recipient = message.get("recipient")
    spoken = restated(message, "recipient", content=parts)
    if content.get("content_type") == INSTRUCTIONS:
        spoken["role"] = "system"
    elif message.get("role") == "assistant" and recipient not in (None, "", "all"):
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        spoken["content"] = [part for part in parts if part["type"] != "text"]
        spoken["tool_calls"] = [{"function": {"name": recipient, "arguments": text}}]
    return spoken


def parts_of_content(content: JsonObject, location: str, unread: Unread) -> Iterator[Fields]:
    """Yield what a content says as parts of a chat message; what is empty is left out."""
    kind = optional(content, "content_type", str, location)
    if kind in THOUGHTS:
        yield {"type": "thoughts"}
        return
    fields = CHATGPT_TEXTS.get(kind, ("text",))
    unread.fields(content, {*fields, "content_type", "parts"})
    texts: list[Any] = [optional(content, field, str, location) for field in fields]
    for text in [*texts, *optional(content, "parts", list, location)]:
        if text in (None, ""):
            continue
        part = {"text": text} if isinstance(text, str) else text
        part = check_object(part, f"{location}: a part of 'parts'")
        if isinstance(part.get("text"), str):
            yield restated(part, "content_type", type="text")
        elif "content_type" in part:
            yield restated(part, "content_type", type=str(part["content_type"]))
        else:
            yield part


def _is_items(value: Any) -> bool:
    """Whether a value is a list of typed items, such as calls and their outputs."""
    items = of_kind(value, list)
    return bool(items) and all("type" in of_kind(item, dict) for item in items)


def _count_beside(message: Fields, parts: Any, unread: Unread) -> None:
    """Count the words beside parts that these do not repeat."""
    joined = "".join(texts_in(parts)).split()
    for name in ("content", *WORDS):
        words = message.get(name)
        if isinstance(words, str) and name != "parts":
            words = without_details(words)
            unread.add(f"field {name!r}", "".join(words.split()) not in "".join(joined))
            del message[name]


def without_details(words: str) -> str:
    """Return an assistant's words without what Open WebUI shows of calls and thinking in them."""
    return "".join(preceding for preceding, _ in blocks(words, "<details", "</details>"))


def texts_in(parts: Any) -> Iterator[str]:
    """Yield the texts of parts, and of the parts in them."""
    for part in objects_of(parts):
        yield str(part.get("text", ""))
        yield from texts_in(part.get("content"))
