"""Several turns in the words of one message, as its parts: calls, results, and words between them.

An assistant may write whole steps (ReAct's ``Action:`` and ``Observation:``) or channels (Harmony);
a user's words may hold what tools returned, between tags or after a heading.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fdkvc.conversations.formats.calls import blocks, calls_in
from fdkvc.core.json_input import JsonObject, check_structure, parse_within
from fdkvc.core.unread import bare

Part = JsonObject

EMPTY_RESULT = {"type": "tool_result", "content": ""}

RESULT_TAGS = (("<tool_response>", "</tool_response>"), ("[TOOL_RESULTS]", "[/TOOL_RESULTS]"))
"""The marks before and after a tool's result in a user's words."""

_RESULT_HEADING = re.compile(
    r"\s{0,9}\*{0,2}(?:EXECUTION RESULT of \[[^]\n]{1,128}]"
    r"|\[\w{1,64}(?: for [^\n]{0,512}?)?] Result"
    r"|(?i:observation|(?:tool|function)[ _](?:result|response|output))(?: \d{1,4})?)"
    r"(?::\*\*|\*{0,2}:)\s{0,9}"
)
"""How a user's words begin that are a tool's result, of OpenHands, Cline, ReAct and others."""

_STEP = re.compile(  # a label, which may be bold
    r"(?m)^\*{0,2}(Thought|Action Input|Action|Observation|Final Answer)(?: \d{1,4})?"
    r"(?::\*\*|\*{0,2}:)"
)
_FINAL = ("finalanswer", "finish")
"""Actions that are the answer to the user, as `bare` writes them."""
_FENCE = re.compile(r"\A```(?:json)?\s|```\s*\Z")
_BRACKETED = re.compile(r"(?s)\s*(\w{1,128})\[(.*)]\s*")
_HARMONY = re.compile(r"<\|(?:start|end|return|call)\|>")
_CHANNELS = ("analysis", "commentary", "final")
_BARE_HEADING = re.compile(  # of a channel whose marks are gone
    r"(?P<result>functions\.[\w.-]{1,64}? to=)?assistant(?: to=functions\.(?P<tool>[\w.-]{1,64}?))?"
    rf"(?P<channel>{'|'.join(_CHANNELS)})(?: to=functions\.(?P<called>[\w.-]{{1,64}}))?"
    r"(?: (?:json|code)(?=\s*\{))?"
)


def parts_of_words(text: str, is_assistant: bool) -> list[Part]:
    """Return the parts of a text that is several turns, none if it is one."""
    if not is_assistant:
        parts = [*_results(text)]
    elif "<|message|>" in (marked := _with_marks(text)):
        return [*_channels(marked)]
    # LangChain's agents write an action as one object of JSON.
    elif '"action_input"' in text and text.lstrip().startswith(("{", "```")):
        parts = [*map(_acted, _action(text))]
    else:
        parts = [*_steps(text)] if "Action" in text else []
    return parts if any(part["type"] != "text" for part in parts) else []


def _text(words: str) -> Part:
    return {"type": "text", "text": words.strip()}


def _answer(words: str) -> Part:
    return {"type": "output_text", "text": words.strip()}


def _acted(call: Part) -> Part:
    """Return an action as a call, or as the words of a final answer."""
    match call["arguments"]:
        case str(words) | {"input": str(words)} if bare(call["name"]) in _FINAL:
            return _answer(words)
        case str(words):
            call = {**call, "arguments": _given(words)[0]}
    return {"type": "tool_use", **call}


def _result(words: str) -> Part:
    return {"type": "tool_result", "content": words.strip()}


def _results(text: str) -> Iterator[Part]:
    """Yield a user's words and the results in them."""
    heading = _RESULT_HEADING.match(text)
    if heading is not None:
        yield _result(text[heading.end() :])
        return
    for opening, closing in RESULT_TAGS:
        if closing in text:
            for words, inside in blocks(text, opening, closing):
                if words.strip():
                    yield {"type": "text", "text": words}
                if inside is not None:
                    yield _result(inside)
            return


def _steps(text: str) -> Iterator[Part]:
    """Yield thoughts and answers as words, actions as calls, and observations as results."""
    pieces = _STEP.split(text)
    labels = ["", *pieces[1::2]]
    bodies = pieces[0::2]
    acted = ""
    for number, (label, body) in enumerate(zip(labels, bodies, strict=True)):
        has_input = labels[number + 1 : number + 2] == ["Action Input"]
        words = ""
        calls = _action(body) if label == "Action" and not has_input else []
        if label == "Action" and has_input and len(body.strip().splitlines()) == 1:
            acted = body.strip()
        elif label == "Action Input" and acted:
            arguments, words = _given(body)
            calls = [{"name": acted, "arguments": arguments}]
            acted = ""
        elif label == "Observation":
            yield _result(body)
        elif not calls:
            words = f"{label}:{body}" if label else body
        for call in calls:
            yield _acted(call)
        if words.strip():
            yield _text(words)


def _action(body: str) -> list[Part]:
    """Return the calls of an action without an input of its own."""
    named = _BRACKETED.fullmatch(body)
    written_call = [{"name": named[1], "arguments": {"input": named[2]}}] if named else []
    return calls_in(_FENCE.sub("", body.strip())) or [*written_call]


def _given(body: str) -> tuple[Any, str]:
    """Return the arguments that a text begins with, and the words after them."""
    text = _FENCE.sub("", body.strip())
    if text.startswith("{"):
        with suppress(ValueError, RecursionError):
            check_structure(text.encode())
            arguments, end = json.JSONDecoder().raw_decode(text)
            return arguments, text[end:]
    parsed = parse_within(text)
    return (parsed if isinstance(parsed, dict) else {"input": text}), ""


def _with_marks(text: str) -> str:
    """Return a text of Harmony with its marks, also if these were taken as special tokens."""
    marked = text.lstrip()
    is_begun = marked.startswith("assistant")
    marked = f"assistant{marked}" if marked.startswith(_CHANNELS) else marked
    headings = [*_BARE_HEADING.finditer(marked)]
    if not headings or headings[0].start() > 0 or len(headings) + is_begun < 2:
        return text

    def with_marks(heading: re.Match[str]) -> str:
        tool = heading["tool"] or heading["called"]
        recipient = f" to=functions.{tool}" if tool else ""
        begin = f"<|start|>{heading['result'] or ''}<|channel|>"
        return f"{begin}{heading['channel']}{recipient}<|message|>"

    return _BARE_HEADING.sub(with_marks, marked)


def _channels(text: str) -> Iterator[Part]:
    """Yield what a model wrote in the channels of Harmony."""
    for piece in _HARMONY.split(text):
        heading, mark, body = piece.partition("<|message|>")
        recipient = re.search(r"\bto=(?:functions\.)?([\w.-]+)", heading)
        if not mark:
            yield from [_text(piece)] if piece.strip() else []
        elif heading.lstrip().startswith("functions."):
            yield _result(body)
        elif "<|channel|>analysis" in heading and recipient is None:
            yield {"type": "thinking", "text": body}
        elif recipient is not None:
            yield {"type": "tool_use", "name": recipient[1], "arguments": body}
        else:
            yield _answer(body)
