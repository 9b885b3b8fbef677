"""Claude's export, ``conversations.json``: ``chat_messages`` of a ``sender``.

A message's words are the blocks of its ``content``, as in Anthropic's API, or else its ``text``,
after the text that was extracted from its attachments. Read is the branch that ends at
``current_leaf_message_uuid``, or else at the last message.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fdkvc.conversations.formats.base import Placed, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.conversations.formats.trees import LEAVES, OTHER_BRANCH, branches, field_of
from fdkvc.core.json_input import objects, optional, require
from fdkvc.core.unread import Unread

BOOKKEEPING = ("attachments", "chat_messages", "content", "files", "sender", "text")
"""Fields that are read elsewhere, or hold nobody's words."""


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    messages = [*messages_of(value, "chat_messages", place, "message")]
    leaf = field_of(value, LEAVES)
    branch = branches([(row[0], row) for row in messages], leaf, place)[-1]
    unread.add(OTHER_BRANCH, len(messages) - len(branch))
    for message, location in branch:
        blocks: list[dict[str, Any]] = []
        names = set()
        attachments = optional(message, "attachments", list, location)
        for attached, inside in objects(attachments, "attachment", location):
            unread.fields(attached, {"extracted_content", "file_name", "file_type"})
            names.add(str(attached.get("file_name")))
            text = optional(attached, "extracted_content", str, inside)
            blocks.append({"type": "text", "text": text} if text else {"type": "attachment"})
        for file, _ in objects(optional(message, "files", list, location), "file", location):
            unread.fields(file, {"file_name"})
            if str(file.get("file_name")) not in names:
                blocks.append({"type": "file"})
        content = optional(message, "content", list, location)
        text = optional(message, "text", str, location)
        blocks += content or ([{"type": "text", "text": text}] if text else [])
        sender = require(message, "sender", str, location)
        yield restated(message, *BOOKKEEPING, role=sender, content=blocks), location


FORMAT = chat_format(
    "claude", "Claude's export", "chat_messages", _messages, BOOKKEEPING, names=("name",)
)
