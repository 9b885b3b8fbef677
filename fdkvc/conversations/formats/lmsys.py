"""Rows of LMSYS-Chat-1M and WildChat: ``conversation`` of messages with ``role`` and ``content``.

A row of Chatbot Arena has two conversations about the same question, which form a cluster.
Zheng et al. 2023, *LMSYS-Chat-1M: A Large-Scale Real-World LLM Conversation Dataset*; Zhao et al.
2024, *WildChat: 1M ChatGPT Interaction Logs in the Wild*.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Format, Placed, read_each, restated
from fdkvc.conversations.formats.chat import SYSTEM_FIELDS, chat_format, messages_of
from fdkvc.core.transcripts import SkippedError, Transcript, clean_name
from fdkvc.core.unread import Unread

BOOKKEEPING = ("country", "hashed_ip", "header")
"""Fields of WildChat that say where a message came from."""


def recognizes(value: Mapping[str, Any]) -> bool:
    """Whether a conversation's first turn is a message."""
    turns = value["conversation"]
    first = turns[0] if isinstance(turns, list) and turns else None
    return isinstance(first, dict) and not {"content", "value"}.isdisjoint(first)


def _messages(value: Mapping[str, Any], place: str, unread: Unread) -> Iterator[Placed]:
    for message, where in messages_of(value, "conversation", place):
        yield restated(message, *BOOKKEEPING), where


_OTHERS = ("conversation_a", "conversation_b", "judge", "model_a", "model_b", "winner")
ARENA_FIELDS = (*SYSTEM_FIELDS, *_OTHERS)
"""Fields that are read of a row of Chatbot Arena, or say where it comes from."""

FORMAT = chat_format(
    "lmsys",
    "LMSYS and WildChat",
    "conversation",
    _messages,
    BOOKKEEPING,
    names=("conversation_id", "conversation_hash"),
    recognizes=recognizes,
)


def _side(side: str) -> Format:
    """Return the format of one of two conversations."""

    def about(value: Mapping[str, Any], place: str) -> tuple[str, str]:
        question = clean_name(str(value.get("question_id") or ""))
        return question or place, f"{question} {side}".strip()

    field = f"conversation_{side}"
    return chat_format(f"arena-{side}", FORMAT.label, field, reads=ARENA_FIELDS, about=about)


SIDES = _side("a"), _side("b")


def _read_sides(
    value: Mapping[str, Any], number: int, calls: bool = False
) -> Iterator[Transcript | SkippedError]:
    for side in SIDES:
        yield from read_each(side.read, [value], "dialog", number, calls, Unread())


ARENA = replace(SIDES[0], key="arena", read=_read_sides)
