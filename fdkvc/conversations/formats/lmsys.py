"""Rows of LMSYS-Chat-1M and WildChat: ``conversation`` of messages with ``role`` and ``content``.

A row of Chatbot Arena has two conversations about the same question, which form a cluster.
Zheng et al. 2023, *LMSYS-Chat-1M: A Large-Scale Real-World LLM Conversation Dataset*; Zhao et al.
2024, *WildChat: 1M ChatGPT Interaction Logs in the Wild*.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Format, Placed, restated
from fdkvc.conversations.formats.chat import chat_format, messages_of
from fdkvc.core.transcripts import SkippedError, Transcript, clean_name

BOOKKEEPING = ("country", "hashed_ip", "header")
"""Fields of WildChat that say where a message came from."""


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether a conversation's first turn is a message."""
    turns = value["conversation"]
    first = turns[0] if isinstance(turns, list) and turns else None
    return isinstance(first, dict) and not {"content", "value"}.isdisjoint(first)


def _messages(value: Mapping[str, Any], field: str, place: str) -> Iterator[Placed]:
    for message, where in messages_of(value, field, place):
        yield restated(message, *BOOKKEEPING), where


FORMAT = chat_format(
    "lmsys",
    "LMSYS and WildChat",
    "conversation",
    lambda value, place, _: _messages(value, "conversation", place),
    reads=BOOKKEEPING,
    named=lambda value: value.get("conversation_id") or value.get("conversation_hash"),
    recognizes=recognizes,
)


def _question(value: Mapping[str, Any]) -> str:
    return clean_name(str(value.get("question_id") or ""))


def _side(side: str) -> Format:
    """Return the format of one of two conversations."""
    field = f"conversation_{side}"
    return chat_format(
        f"arena-{side}",
        FORMAT.label,
        field,
        lambda value, place, _: _messages(value, field, place),
        reads=("conversation_a", "conversation_b", "judge", "model_a", "model_b", "winner"),
        named=lambda value: f"{_question(value)} {side}".strip(),
        cluster=lambda value, place: _question(value) or place,
    )


SIDES = _side("a"), _side("b")


def _read_sides(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript | SkippedError]:
    for side in SIDES:
        try:
            yield from side.read(value, number, calls)
        except SkippedError as error:
            yield error


ARENA = replace(SIDES[0], key="arena", read=_read_sides)
