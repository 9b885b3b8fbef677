"""Calls as files write them: under several names, and in the words of an assistant."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fdkvc.core.json_input import parse_within
from fdkvc.core.unread import THINKING, Unread, has_words

METHODS = ("name", "tool", "tool_name", "toolName", "function_name", "action")
ARGUMENTS = ("arguments", "parameters", "args", "input", "tool_input", "action_input", "kwargs")
"""Names of the fields of a call."""

UNKNOWN_CALL = "call of an unknown form, which stays text"
"""What is not read where something is marked as a call."""

CALL_TAGS = (
    ("<tool_call>", "</tool_call>"),
    ("<function_call>", "</function_call>"),
    ("<functioncall>", "</functioncall>"),
    ("<function=", "</function>"),
)
"""What is around a call in an assistant's words; what follows the last is of no known form."""

THINKING_TAGS = (
    *((f"<{name}>", f"</{name}>") for name in ("think", "thinking", "thought", "reasoning")),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
)
"""What is around thinking in an assistant's words."""


def as_call(value: Any) -> Mapping[str, Any] | None:
    """Return an object with ``name`` and ``arguments`` of a call in any known form, else None.

    Examples
    --------
    >>> as_call({"tool": "book", "tool_input": {"seats": 2}})
    {'name': 'book', 'arguments': {'seats': 2}}
    >>> as_call({"function": {"name": "stop", "arguments": "{}"}})
    {'name': 'stop', 'arguments': '{}'}
    """
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return None
    named = next((name for name in METHODS if isinstance(value.get(name), str)), None)
    given = next((name for name in ARGUMENTS if isinstance(value.get(name), dict | str)), None)
    if named is None or given is None:
        return None
    rest = {name: inner for name, inner in value.items() if name not in (named, given)}
    return {"name": value[named], "arguments": value[given], **rest}


def calls_in(text: str) -> list[Mapping[str, Any]]:
    """Return the calls that a text is, as JSON or within tags; none if it is anything else."""
    bare, tagged = cut_calls(text, Unread())
    return tagged if tagged and not bare else _parsed_calls(text)


def _parsed_calls(text: str) -> list[Mapping[str, Any]]:
    """Return the calls of a text of JSON: one, a list, or one on each line."""
    lines = text.strip().splitlines()
    parsed = parse_within(text) if lines else None
    if parsed is None and all(line.startswith("{") for line in lines):
        parsed = [*map(parse_within, lines)]
    calls = [as_call(call) for call in (parsed if isinstance(parsed, list) else [parsed])]
    return [] if None in calls else [call for call in calls if call is not None]


def cut_calls(text: str, unread: Unread) -> tuple[str, list[Mapping[str, Any]]]:
    """Return an assistant's words without the calls in them, and these calls.

    Examples
    --------
    >>> cut_calls('Ok. <tool_call>{"name": "go", "arguments": {"to": 2}}</tool_call>', Unread())
    ('Ok.', [{'name': 'go', 'arguments': {'to': 2}}])
    """
    all_calls: list[Mapping[str, Any]] = []
    for opening, closing in CALL_TAGS:
        if opening not in text:
            continue
        kept: list[str] = []
        for before, inside in blocks(text, opening, closing):
            calls = calls_in(inside) if inside else []
            all_calls += calls
            is_kept = inside is not None and not calls
            kept.append(f"{before}{opening}{inside}{closing}" if is_kept else before)
        text = "".join(kept).strip() if all_calls else text
        unread.add(UNKNOWN_CALL, text.count(opening))
    return text, all_calls


def cut_thinking(text: str, unread: Unread) -> str:
    """Return an assistant's words without its thinking, which may lack its beginning or end.

    Examples
    --------
    >>> cut_thinking("They want one. </think> Here.", Unread())
    'Here.'
    """
    for opening, closing in THINKING_TAGS:
        if closing in text or text.lstrip().startswith(opening):
            pieces: Sequence[tuple[str, str | None]] = [*blocks(text, opening, closing)]
            thought = [inside for _, inside in pieces if inside is not None]
            words = [before for before, _ in pieces]
            begin, tag, after = words[-1].partition(closing)
            if tag and not thought:  # what opens it is in the template
                thought, words = [begin], [after]
            elif not thought and text.lstrip().startswith(opening):  # it ends before its end
                thought, words = [text], []
            text = "".join(words).strip()
            unread.add(THINKING, sum(map(has_words, thought)))
    return text


def blocks(text: str, opening: str, closing: str) -> Iterator[tuple[str, str | None]]:
    """Yield the text before each block between two tags, and in it; last what follows, and None.

    Examples
    --------
    >>> [*blocks("a <b> c </b> d <b>", "<b>", "</b>")]
    [('a ', ' c '), (' d <b>', None)]
    """
    after = 0
    while (start := text.find(opening, after)) >= 0:
        end = text.find(closing, start + len(opening))
        if end < 0:
            break
        yield text[after:start], text[start + len(opening) : end]
        after = end + len(closing)
    yield text[after:], None
