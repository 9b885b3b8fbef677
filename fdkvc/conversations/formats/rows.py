"""Formats of messages that need a row and no file: the field of the messages, and what is peculiar.

Gemini's requests have ``contents`` of parts. Rows of LMSYS-Chat-1M and WildChat, and sessions of
Goose, have a ``conversation``; one of Chatbot Arena has two about the same question, which form a
cluster. VS Code's export of Copilot has ``requests``, each with the rounds of its answer.
"""

from dataclasses import replace

from fdkvc.conversations.formats.base import Dialogs, Format, Messages, read_each, restated
from fdkvc.conversations.formats.chat import (
    chat_format,
    has_messages,
    messages_of,
    prompts_beside,
    with_system,
)
from fdkvc.core.json_input import (
    JsonObject,
    check_object,
    listed_objects,
    optional,
    require,
)
from fdkvc.core.transcripts import clean_name
from fdkvc.core.unread import Unread, is_thinking
from fdkvc.core.words import name_list, name_set

# ------------------------------------------------------------------------------- Gemini


def _contents(value: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield contents, each of which may be a text or a part alone; the user's have no role."""
    yield from prompts_beside(value, place)
    contents = value.get("contents")
    contents = [contents] if isinstance(contents, str | dict) else contents
    for number, content in enumerate(require({"contents": contents}, "contents", list, place)):
        location = f"{place}, content {number}"
        if isinstance(content, str) or (isinstance(content, dict) and "text" in content):
            content = {"parts": content}
        content = {"parts": [], **check_object(content, location)}
        yield {**content, "role": content.get("role") or "user"}, location


PROMPTS = ("systemInstruction", "system_instruction")

GEMINI = chat_format("gemini", "Gemini contents", "contents", _contents, reads=PROMPTS)

# ------------------------------------------------------------------------------- conversation

ORIGIN = ("country", "hashed_ip", "header")
"""Fields of WildChat that say where a message came from."""


def _turns(value: JsonObject, place: str, unread: Unread) -> Messages:
    for message, location in with_system(value, "conversation", place):
        yield restated(message, *ORIGIN), location


ROW = chat_format(
    "lmsys",
    "LMSYS, WildChat and Goose",
    "conversation",
    _turns,
    ORIGIN,
    names=("conversation_id", "conversation_hash", "name"),
    recognizes=lambda value: has_messages(value["conversation"]),
)


def _side(side: str) -> Format:
    """Return the format of one of two conversations."""

    def name_of(value: JsonObject, place: str) -> tuple[str, str]:
        question = clean_name(str(value.get("question_id") or ""))
        return question or place, f"{question} {side}".strip()

    both = name_list("conversation_a conversation_b judge model_a model_b winner")
    return chat_format(
        f"arena-{side}", ROW.label, f"conversation_{side}", None, both, name_of=name_of
    )


SIDES = _side("a"), _side("b")


def _read_sides(value: JsonObject, number: int, calls: bool = False) -> Dialogs:
    for side in SIDES:
        yield from read_each(side.read, [value], "dialog", number, calls, Unread())


ARENA = replace(SIDES[0], key="arena", read=_read_sides)

# ------------------------------------------------------------------------------- Copilot


def _requests(value: JsonObject, place: str, unread: Unread) -> Messages:
    """Yield what was asked, each round of the answer with its calls and results, and the rest."""
    for request, location in messages_of(value, "requests", place, "request"):
        question = require(request, "message", dict, location)
        yield {**question, "role": "user"}, location
        result = optional(request, "result", dict, location)
        metadata = optional(result, "metadata", dict, location)
        unread.fields(request, name_set("message response result variableData"))
        unread.fields(result, {"metadata"})
        unread.fields(metadata, {"toolCallRounds", "toolCallResults"})
        results = optional(metadata, "toolCallResults", dict, location)
        round_words = ""
        for row, inside in listed_objects(metadata, "toolCallRounds", "round", location):
            words = optional(row, "response", str, inside)
            round_words += words
            yield restated(row, "response", role="assistant", content=words), inside
            for call, _ in listed_objects(row, "toolCalls", "call", inside):
                key = str(call.get("id"))
                if key in results:
                    content = check_object(results[key], f"{inside}: a result").get("content")
                    yield {"role": "tool", "tool_call_id": key, "content": content}, inside
        parts = []
        for part, _ in listed_objects(request, "response", "part", location):
            words = part.get("value")
            kind = str(part.get("kind"))
            if is_thinking(kind):
                unread.part(kind)
            # The response repeats words of the rounds.
            elif isinstance(words, str) and words.strip() not in round_words:
                parts.append({"type": "text", "text": words})
            else:
                unread.fields(part, ("value", "kind", "toolId"))
        if parts:
            yield {"role": "assistant", "content": parts}, location


def _has_requests(value: JsonObject) -> bool:
    """Whether an object is an export of VS Code, which may lack the name of who answers."""
    match value["requests"]:
        case [{"requestId": str(), "message": {"text": str()}}, *_]:
            return True
    return "responderUsername" in value


COPILOT = chat_format(
    "copilot",
    "VS Code's export of Copilot",
    "requests",
    _requests,
    recognizes=_has_requests,
)
