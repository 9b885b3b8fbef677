"""Files of dialogs that no format reads: what they seem to be, and the nearest thing to do."""

from collections.abc import Mapping
from typing import Any

from fdkvc.core.transcripts import clean_name
from fdkvc.core.words import listed

AS_MESSAGES = "give each dialog as 'messages', a list of objects with 'role' and 'content'"

SEEMS: Mapping[tuple[str, ...], str] = {
    ("instruction", "output"): "an instruction with its answer (Alpaca)",
    ("prompt", "response"): "a single question with its answer",
    ("query", "response"): "a single question with its answer",
    ("question", "answer"): "a single question with its answer",
    ("input", "output"): "a single question with its answer",
    ("prompt",): "a prompt without an answer",
    ("custom_id", "response"): "a result of a batch, whose request has the dialog",
    ("custom_id", "params"): "a request of an Anthropic batch, whose 'params' have the dialog",
    ("choices",): "an answer of OpenAI's API without its request",
    ("resourceSpans",): "a trace of OpenTelemetry",
    ("text",): "a plain text, of which a line is read as a turn if it begins as in 'User: hello'",
}
"""What an object seems to be that has all of these fields; the first counts."""


def unknown_sentence(place: str, value: Mapping[str, Any], inside: str | None = None) -> str:
    """Say what an object seems to be that has none of the fields of a known format.

    `inside` is its field that holds dialogs of a known format.

    Examples
    --------
    >>> print(unknown_sentence("dialog 0", {"prompt": "a", "response": "b"}))
    dialog 0: it has 'prompt' and 'response', so it seems to be a single question with its answer, \
and neither 'messages' nor another field of a known format: give each dialog as 'messages', a list \
of objects with 'role' and 'content'
    """
    names = [repr(clean_name(name)[:30]) for name in value]
    shown = [*names[:3], "more"] if len(names) > 3 else names
    seems = next((words for names, words in SEEMS.items() if value.keys() >= {*names}), "")
    so = f"so it seems to be {seems}, " if seems else ""
    has = f"it has {listed(shown)}, {so}and" if names else "it has"
    to_do = f"give what {clean_name(inside)[:30]!r} holds alone" if inside else AS_MESSAGES
    return f"{place}: {has} neither 'messages' nor another field of a known format: {to_do}"
