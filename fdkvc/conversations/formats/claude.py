"""Claude's export, ``conversations.json``: ``chat_messages`` of a ``sender``.

A message's words are the blocks of its ``content``, as in Anthropic's API, or else its ``text``,
after the text that was extracted from its attachments. Read is the branch that ends at
``current_leaf_message_uuid``, or else at the last message.
"""

from collections.abc import Iterator

from fdkvc.conversations.formats.base import Messages, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.conversations.formats.trees import LEAVES, OTHER_BRANCH, branches, field_of
from fdkvc.core.json_input import Fields, JsonObject, listed_objects, optional, require
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list

BOOKKEEPING = name_list("attachments chat_messages content files sender text")
"""Fields that are read elsewhere, or hold nobody's words."""


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    messages = [*messages_of(value, "chat_messages", place, "message")]
    leaf = field_of(value, LEAVES)
    branch = branches([(row[0], row) for row in messages], leaf, place)[-1]
    unread.add(OTHER_BRANCH, len(messages) - len(branch))
    for message, location in branch:
        parts = [*_attached(message, location, unread)]
        content = optional(message, "content", list, location)
        text = optional(message, "text", str, location)
        parts += content or ([{"type": "text", "text": text}] if text else [])
        sender = require(message, "sender", str, location)
        yield restated(message, *BOOKKEEPING, role=sender, content=parts), location


def _attached(message: JsonObject, place: str, unread: Unread) -> Iterator[Fields]:
    """Yield the texts of a message's attachments, and a part for each file without one."""
    names = set()
    for attachment, location in listed_objects(message, "attachments", "attachment", place):
        unread.fields(attachment, {"extracted_content", "file_name", "file_type"})
        names.add(str(attachment.get("file_name")))
        text = optional(attachment, "extracted_content", str, location)
        yield {"type": "text", "text": text} if text else {"type": "attachment"}
    for file, _ in listed_objects(message, "files", "file", place):
        unread.fields(file, {"file_name"})
        if str(file.get("file_name")) not in names:
            yield {"type": "file"}


FORMAT = chat_format(
    "claude", "Claude's export", "chat_messages", _messages, BOOKKEEPING, names=("name",)
)
