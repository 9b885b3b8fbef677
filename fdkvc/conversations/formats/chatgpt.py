"""ChatGPT's export, ``conversations.json``: each conversation is a tree of messages.

Read is the branch that ends at ``current_node``, or without one, as in DeepSeek's export, at
the last node that is nobody's parent. `of_chatgpt` says how a message is read. Hidden messages and
those of other branches are counted.
"""

from fdkvc.conversations.formats.base import Messages, restated
from fdkvc.conversations.formats.chat import chat_format
from fdkvc.conversations.formats.messages import INSTRUCTIONS, of_chatgpt, parts_of_content
from fdkvc.conversations.formats.parts import MESSAGE_FIELDS
from fdkvc.conversations.formats.trees import OTHER_BRANCH, branch_to
from fdkvc.core.json_input import (
    Fields,
    JsonObject,
    check_object,
    listed_objects,
    optional,
    require,
)
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list

HIDDEN = "hidden message"

READ = name_list("author current_node is_visually_hidden_from_conversation mapping recipient")
"""Fields that are read elsewhere."""

_MODEL = ("default_model_slug", "model_slug", "reasoning_status", "resolved_model_slug")
_STATE = name_list("channel finish_details message_type moderation_results thinking_effort")
_ORIGIN = name_list(
    "conversation_origin gizmo_type metadata real_author serialization_metadata"
)

BOOKKEEPING = frozenset((*READ, *_MODEL, *_STATE, *_ORIGIN))
"""Fields that are read elsewhere, or hold nobody's words."""


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    nodes = {}
    for key, node in require(value, "mapping", dict, place).items():
        nodes[key] = check_object(node, f"{place}, node {clean_name(key)!r}")
    parents = {key: optional(node, "parent", str, place) for key, node in nodes.items()}
    inner = {*parents.values()}
    leaves = [key for key in nodes if key not in inner]
    has_leaf = leaves and "current_node" not in value
    leaf = leaves[-1] if has_leaf else require(value, "current_node", str, place)
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
        if message and "fragments" in message:
            yield _of_deepseek(message, location, unread), location
        elif message:
            yield from _turn(message, location, unread)


def _of_deepseek(message: JsonObject, location: str, unread: Unread) -> Fields:
    """Return a message of DeepSeek, whose fragments say what they are."""
    unread.fields(message, {"fragments"})
    role = "assistant"
    parts = []
    for fragment, inside in listed_objects(message, "fragments", "fragment", location):
        kind = optional(fragment, "type", str, inside).lower()
        text = fragment.get("content") or ""
        if kind == "request":
            role = "user"
        is_text = kind in ("request", "response") and isinstance(text, str)
        kind = "text" if is_text else kind
        parts.append(restated(fragment, "content", type=kind, text=text))
    return {"role": role, "content": parts}


def _turn(message: JsonObject, location: str, unread: Unread) -> Messages:
    author = require(message, "author", dict, location)
    metadata = optional(message, "metadata", dict, location)
    content = optional(message, "content", dict, location)
    role = require(author, "role", str, location)
    is_hidden = metadata.get("is_visually_hidden_from_conversation")
    if is_hidden and content.get("content_type") != INSTRUCTIONS:
        unread.add(HIDDEN, any(parts_of_content(content, location, unread)))
        return
    for owner in (author, metadata, optional(author, "metadata", dict, location)):
        unread.fields(owner, BOOKKEEPING)
    spoken = of_chatgpt({**message, "content": content, "role": role}, location, unread)
    chat_message = restated(spoken, *BOOKKEEPING)
    if spoken["content"] or "tool_calls" in spoken:
        yield chat_message, location
    else:
        unread.fields(chat_message, MESSAGE_FIELDS)


FORMAT = chat_format(
    "chatgpt", "ChatGPT's export", "mapping", _messages, BOOKKEEPING, names=("title",)
)
