"""ChatGPT's export, ``conversations.json``: each conversation is a tree of messages.

Read is the branch that ends at ``current_node``. What the assistant addresses to a tool, its
``recipient``, is a call; what tools answer, browsing and code too, are results. Custom instructions
are the system prompt. Hidden messages, images, thoughts and the messages of other branches are
counted.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.base import Placed, restated
from fdkvc.conversations.formats.chat import chat_format
from fdkvc.conversations.formats.parts import MESSAGE_FIELDS
from fdkvc.conversations.formats.trees import OTHER_BRANCH, branch_to
from fdkvc.core.json_input import check_object, optional, require
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread

HIDDEN = "hidden message"

INSTRUCTIONS = "user_editable_context"
"""The type of custom instructions."""

TEXTS: Mapping[str, tuple[str, ...]] = {
    INSTRUCTIONS: ("user_profile", "user_instructions"),
    "model_editable_context": ("model_set_context",),
    "tether_browsing_display": ("result", "summary"),
}
"""Fields with the words of a content by its type; of others, `text` and `parts`."""

THOUGHTS = ("thoughts", "reasoning_recap")
"""Types of content that is thinking, which is counted."""

READ = ("author", "current_node", "is_visually_hidden_from_conversation", "mapping", "recipient")
"""Fields that are read elsewhere."""

_MODEL = ("default_model_slug", "model_slug", "reasoning_status", "resolved_model_slug")
_STATE = ("channel", "finish_details", "message_type", "moderation_results", "thinking_effort")
_ORIGIN = ("conversation_origin", "gizmo_type", "metadata", "real_author", "serialization_metadata")

BOOKKEEPING = frozenset((*READ, *_MODEL, *_STATE, *_ORIGIN))
"""Fields that are read elsewhere, or hold nobody's words."""


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    nodes = {
        key: check_object(node, f"{place}, node {clean_name(key)!r}")
        for key, node in require(value, "mapping", dict, place).items()
    }
    leaf = require(value, "current_node", str, place)
    parents = {key: optional(node, "parent", str, place) for key, node in nodes.items()}
    path = branch_to(leaf, parents, place)
    # The first node of a whole branch is the root, which has no parent.
    missing = parents[path[0]] if path else leaf
    if missing or not path:
        raise ValueError(f"{place}: 'mapping' has no node {clean_name(missing)!r}")
    for key in nodes.keys() - {*path}:
        unread.add(OTHER_BRANCH, nodes[key].get("message") is not None)
    for key in path:
        location = f"{place}, node {clean_name(key)!r}"
        unread.fields(nodes[key], {"message", "parent", "children"})
        message = optional(nodes[key], "message", dict, location)
        if message:
            yield from _turn(message, location, unread)


def _turn(message: Mapping[str, Any], location: str, unread: Unread) -> Iterator[Placed]:
    author = require(message, "author", dict, location)
    metadata = optional(message, "metadata", dict, location)
    content = optional(message, "content", dict, location)
    role, recipient = require(author, "role", str, location), message.get("recipient")
    parts = [*_parts(content, location, unread)]
    if metadata.get("is_visually_hidden_from_conversation") and (
        content.get("content_type") != INSTRUCTIONS
    ):
        unread.add(HIDDEN, bool(parts))
        return
    for owner in (author, metadata, optional(author, "metadata", dict, location)):
        unread.fields(owner, BOOKKEEPING)
    chat_message = restated(message, *BOOKKEEPING, role=role, content=parts)
    if content.get("content_type") == INSTRUCTIONS:
        chat_message["role"] = "system"
    elif role == "assistant" and recipient not in (None, "", "all"):
        text = "\n".join(part["text"] for part in parts if part["type"] == "text")
        function = {"name": recipient, "arguments": text}
        chat_message |= {
            "content": [part for part in parts if part["type"] != "text"],
            "tool_calls": [{"function": function}],
        }
    if parts:
        yield chat_message, location
    else:
        unread.fields(chat_message, MESSAGE_FIELDS)


def _parts(content: Mapping[str, Any], location: str, unread: Unread) -> Iterator[dict[str, Any]]:
    """Yield what a content says as parts of a chat message; what is empty is left out."""
    kind = optional(content, "content_type", str, location)
    if kind in THOUGHTS:
        yield {"type": "thoughts"}
        return
    fields = TEXTS.get(kind, ("text",))
    unread.fields(content, {*fields, "content_type", "parts"})
    texts: list[Any] = [optional(content, field, str, location) for field in fields]
    for text in [*texts, *optional(content, "parts", list, location)]:
        if text in (None, ""):
            continue
        part = {"text": text} if isinstance(text, str) else text
        part = check_object(part, f"{location}: a part of 'parts'")
        is_text = isinstance(part.get("text"), str)
        kind = "text" if is_text else str(part.get("content_type"))
        yield restated(part, "content_type", type=kind)


FORMAT = chat_format(
    "chatgpt", "ChatGPT's export", "mapping", _messages, BOOKKEEPING, names=("title",)
)
