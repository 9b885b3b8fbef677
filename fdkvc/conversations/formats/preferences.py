"""Preferences, as for DPO: a prompt and the chosen answer; also one answer of any other name.

The prompt and the answer are texts or lists of messages, those of ShareGPT too, in the layouts of
TRL, LLaMA-Factory, Axolotl, OpenAI and others; an answer that begins with its prompt is read alone,
also as a text of ``Human:`` and ``Assistant:``. A ``history`` has pairs of what was asked and
answered before, as in files of Alpaca with several turns. The rejected answer is counted as not
read.
"""

import re
from dataclasses import replace
from typing import Any

from fdkvc.conversations.formats.base import Messages
from fdkvc.conversations.formats.chat import chat_format, prompts_beside
from fdkvc.core.json_input import JsonObject, objects, require
from fdkvc.core.unread import Unread
from fdkvc.core.words import name_list

PROMPTS = name_list("conversations messages prompt question query instruction input")
"""Fields of a prompt; of texts, all are read."""

PREFERRED = name_list("chosen chosen_messages preferred_output completion")
"""Those by which a format is known."""

ANSWERS = (*PREFERRED, "response", "output")
"""Fields of the answer that is read; the last two only after a history."""

REJECTED = name_list("rejected rejected_messages non_preferred_output rejected_response")

# As Anthropic's hh-rlhf writes a dialog as one text.
_SAID = re.compile(r"(?:^|\n\n)(Human|Assistant):[ \t]*")


def _messages(value: JsonObject, place: str, unread: Unread) -> Messages:
    answer = next(name for name in ANSWERS if name in value)
    unread.add("rejected answer", sum(bool(value.get(name)) for name in REJECTED))
    answered = [*_said(value, answer, "assistant", place)]
    request = value.get("input")
    if isinstance(request, dict):  # as OpenAI's files have it
        unread.fields(request, {"messages"})
        value = {**value, **request, "input": None}
    yield from prompts_beside(value, place)
    for pair in value.get("history") or []:
        for role, words in zip(("user", "assistant"), pair, strict=False):
            yield {"role": role, "content": words}, place
    prompts = [*filter(value.get, PROMPTS)]
    first = answered[0][0] if answered else {}
    if str(first.get("role", first.get("from"))).casefold() in ("user", "human", "system"):
        # The answer begins with its prompt: of a prompt beside it, only what differs is counted.
        words = [_words(message) for message, _ in answered]
        for name in prompts:
            prompt = _said(value, name, "user", place)
            repeated = all(_words(message) in words for message, _ in prompt)
            unread.fields({} if repeated else {name: value[name]}, ())
        prompts = []
    for name in prompts:
        yield from _said(value, name, "user", place)
    yield from answered


def _has_answer(value: JsonObject) -> bool:
    """Whether an answer is a text, a message or a list, and not a mark or an API's response."""
    answer_value = next(value[name] for name in ANSWERS if name in value)
    message = isinstance(answer_value, dict) and bool(answer_value.keys() & {"role", "from"})
    return message or isinstance(answer_value, str | list)


def _has_history(value: JsonObject) -> bool:
    """Whether a history has pairs, and an answer follows it."""
    match value["history"]:
        case [] | None | [[_, _], *_]:
            return not value.keys().isdisjoint(ANSWERS)
    return False


def _words(message: JsonObject) -> Any:
    return message.get("content", message.get("value"))


def _said(value: JsonObject, name: str, role: str, place: str) -> Messages:
    """Yield the messages of a field: a text, a message, or a list of these."""
    listed = value[name]
    location = f"{place}, {name}"
    listed = [listed] if isinstance(listed, dict) else listed
    if isinstance(listed, list):
        yield from objects(listed, "message", location)
        return
    text = require(value, name, str, place)
    parts = _SAID.split(text)
    if len(parts) == 1 or parts[0].strip():
        parts = ["", role, text]
    for speaker, words in zip(parts[1::2], parts[2::2], strict=True):
        yield {"role": speaker.lower(), "content": words}, location


FORMAT = chat_format(
    "preferences",
    "preferences (DPO) and completions",
    "chosen",
    _messages,
    reads=(
        "system",
        "system_prompt",
        "system_message",
        "history",
        *PROMPTS,
        *ANSWERS,
        *REJECTED,
    ),
    recognizes=_has_answer,
)

FORMATS = [replace(FORMAT, key=name, field=name) for name in PREFERRED]
"""The formats of a prompt and an answer, by the answer's field."""

HISTORY = replace(FORMAT, key="history", field="history", recognizes=_has_history)
