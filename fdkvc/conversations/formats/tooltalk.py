"""ToolTalk: ``conversation``, whose assistant turns have ``apis`` before their text.

The agent reads each call and its response before the next, and first the ``metadata`` of the user,
as in the benchmark's own evaluation (``microsoft/ToolTalk``,
``src/tooltalk/evaluation/evaluate_openai.py``). Conversations with the same suites of tools form a
cluster. Farn and Shin 2023, *ToolTalk: Evaluating Tool-Usage in a Conversational Setting*.
"""

from fdkvc.conversations.formats.base import Messages, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.core.json_input import (
    JsonObject,
    listed_objects,
    objects_of,
    only,
    optional,
    require,
)
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread

USER_DATA = ("location", "timestamp", "username", "session_token")
"""What the system prompt says of the user."""


def _about(value: JsonObject, place: str) -> tuple[str, str]:
    """Return the cluster of a conversation, and no name of its own."""
    suites = only(optional(value, "suites_used", list, place), str)
    return clean_name(" + ".join(sorted(suites))), ""


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    data = optional(value, "metadata", dict, place)
    lines = [f"{name}: {data[name]}" for name in USER_DATA if data.get(name) is not None]
    unread.fields(data, USER_DATA)
    if lines:
        yield {"role": "system", "content": "\n".join(lines)}, f"{place}, metadata"
    for turn, location in messages_of(value, "conversation", place):
        for api, inside in listed_objects(turn, "apis", "api", location):
            request = require(api, "request", dict, inside)
            unread.fields(api, {"request", "response", "exception"})
            answer = {name: api.get(name) for name in ("response", "exception")}
            yield {**request, "role": "assistant", "observation": answer}, inside
        text = optional(turn, "text", str, location)
        yield restated(turn, "apis", "text", content=text), location


FORMAT = chat_format(
    "tooltalk",
    "ToolTalk",
    "conversation",
    _messages,
    ("metadata", "suites_used"),
    names=("name", "conversation_id"),
    name_of=_about,
    recognizes=lambda value: any("apis" in turn for turn in objects_of(value["conversation"])),
)
