"""Calls as files write them: under several names, and in the words of an assistant."""

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from fdkvc.conversations.formats.base import restated
from fdkvc.core.json_input import Fields, JsonObject, field_with, json_only, parse_within
from fdkvc.core.limits import MAX_LITERAL_CHARACTERS
from fdkvc.core.unread import THINKING, Unread, has_words
from fdkvc.core.words import name_list

METHODS = name_list("name api_name tool tool_name toolName function_name action function")
ARGUMENTS = name_list(
    "arguments parameters args input tool_input action_input kwargs param_dict"
)
"""Fields with the name and the arguments of a call; the first that a call has counts."""

UNKNOWN_CALL = "call of an unknown form, which stays text"
"""The note on words that are marked as a call but have no known form."""

_TAGS = name_list("tool_call tool_calls function_call function_calls minimax:tool_call")

CALL_TAGS = (
    *((f"<{name}>", f"</{name}>") for name in _TAGS),
    *(("<function=", "</function>"), ("<invoke ", "</invoke>")),
    *((f"<｜{name}▁begin｜>", f"<｜{name}▁end｜>") for name in ("tool▁calls", "tool▁call")),
    ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"),
    *((f"<|tool_call_{begins}|>", "<|tool_call_end|>") for begins in ("begin", "start")),
    *(
        (mark, "")
        for mark in ("<functioncall>", "<|tool_call|>", "<|python_tag|>", "[TOOL_CALLS]")
    ),
)
"""The marks before and after calls in an assistant's words, as models write them.

Outer marks stand before inner ones. Where nothing marks the end, a call ends where the next begins.
"""

_NAMES = """
access_mcp_resource apply_diff browser_action codebase_search execute_command fetch_instructions
insert_content list_code_definition_names list_files new_task read_file replace_in_file
search_and_replace search_files switch_mode update_todo_list use_mcp_tool web_fetch write_to_file
"""
XML_TOOLS = tuple(_NAMES.split())
"""Tools that Cline and Roo Code call by a tag of their name, which has a tag for each argument."""

# What models write after the arguments, such as </s>, <|im_end|> and the end of a code block.
_END = re.compile(r"(?:</functioncall>|</s>|<\|\w{1,24}\|>|```)\s*\Z")
_NAMED = re.compile(  # a name, and the marks before its arguments
    r"(?:function<[^<>]{1,24}>)?(?:functions\.|name=\")?([\w.-]{1,128})(?::\d{1,9})?\"?\s?"
    r"(?:>|<[|｜][^<>]{1,40}>|(?:\[CALL_ID\]\w{1,64})?\[ARGS\])?\s?(?:```json)?"
)
# GLM's arguments, which are rewritten as <parameter=key>.
_ARGUMENT = re.compile(r"<arg_key>\s?([^<>]{1,128})</arg_key>\s?<arg_value>")
_XML = re.compile(r"(?s)\s*<(\w{1,64})>(.*?)</\1>\s*")
# A list of Python's calls, as Llama and LFM write it; names may have spaces, as ToolACE's.
_PYTHON = re.compile(r"(?s)\[\s?[^\W\d][\w .:/&-]{0,127}\(.*\)\s?\]")
_PYTHON_BEGIN = re.compile(  # such a list before words
    rf"(?s)\s*(\[\s?[^\W\d][\w .:/&-]{{0,127}}\(.{{0,{MAX_LITERAL_CHARACTERS}}}?\)\s?\])"
)
_PYTHON_MARK = re.compile(  # how such a list begins, also one that cannot be read
    r"""\s*\[\s?[^\W\d][\w .:/&-]{0,127}\(\s?(?:\w{1,64}\s?=|["'])"""
)
# A text, which stays; the name of a call; JSON's constants.
_TOKEN = re.compile(
    r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')"""
    r"|([^\W\d][\w.:/&-]{0,64}(?: [\w.:/&-]{1,64}){0,8}(?: ?\([\w .:/&-]{1,32}\)(?=\s?\())?)\s?\("
    r"|\b(true|false|null)\b"
)
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}

THINKING_TAGS = (
    *((f"<{name}>", f"</{name}>") for name in name_list("think thinking thought reasoning")),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
)
"""The marks before and after thinking in an assistant's words."""


def as_call(value: Any) -> JsonObject | None:
    """Return an object with ``name`` and ``arguments`` of a call in any known form, else None."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict):
        return None
    named = field_with(value, METHODS, str)
    given_field = field_with(value, ARGUMENTS, dict | str)
    if not (named and given_field):
        return None
    function = {"name": value[named], "arguments": value[given_field]}
    return restated(value, named, given_field, **function)


def calls_in(text: str) -> list[JsonObject]:
    """Return the calls that a text is, as JSON or within tags; none if it is anything else."""
    bare, tagged = cut_calls(text, Unread())
    return tagged if tagged and not bare else _parsed_calls(text)


def _parsed_calls(text: str) -> list[JsonObject]:
    """Return the calls of a text: one in JSON, a list, one per line, or as in `_named_calls`."""
    text = _END.sub("", text).strip()
    lines = text.splitlines()
    parsed = parse_within(text) if lines else None
    if parsed is None and all(line.startswith("{") for line in lines):
        parsed = [*map(parse_within, lines)]
    listed = parsed if isinstance(parsed, list) else [parsed]
    calls = [*filter(None, map(as_call, listed))]
    return calls if len(calls) == len(listed) else _named_calls(text)


def _named_calls(text: str) -> list[JsonObject]:
    """Return the calls of a text that is Python, or the one whose name begins the text."""
    if _PYTHON.fullmatch(text) and len(text) <= MAX_LITERAL_CHARACTERS:
        return _python_calls(text)
    named = _NAMED.match(text)
    if named is None:
        return []
    arguments_text = text[named.end() :].strip()
    arguments = {}
    tagged = _ARGUMENT.sub(r"<parameter=\1>", arguments_text)
    tagged = tagged.replace("</arg_value>", "</parameter>")
    for _, inside in blocks(tagged, "<parameter", "</parameter>"):
        name, _, value = (inside or "").partition(">")
        name = re.sub(r'^.*?=\s*"?|["\s].*', "", name.strip())
        if name:
            arguments[name] = _value(value)
    parsed = parse_within(tagged) if tagged.startswith("{") else arguments or None
    return [{"name": named[1], "arguments": parsed}] if isinstance(parsed, dict) else []


def _python_calls(text: str) -> list[JsonObject]:
    """Return the calls of a list in Python; none if an argument is not a value with a name."""
    methods: list[str] = []

    def plain(token: re.Match[str]) -> str:
        if token[2]:
            methods.append(token[2])
            return f"f{len(methods) - 1}("
        return token[1] or _CONSTANTS[token[3]]

    calls: list[JsonObject] = []
    # Python's parser raises each of these for some text.
    with suppress(
        AttributeError, ValueError, SyntaxError, TypeError, MemoryError, RuntimeError, KeyError
    ):
        parsed: Any = ast.parse(_TOKEN.sub(plain, text), mode="eval").body
        for call in parsed.elts:
            if call.args:
                return []
            arguments = {row.arg: ast.literal_eval(row.value) for row in call.keywords}
            name = methods[int(call.func.id[1:])]
            calls.append({"name": name, "arguments": json_only(arguments)})
        return calls
    return []


def _value(text: str) -> Any:
    """Return an argument's text, or the object or list that it is as JSON."""
    parsed = parse_within(text) if text.strip().startswith(("{", "[")) else None
    return text.strip() if parsed is None else parsed


def _tagged(text: str) -> Fields:
    """Return the values of a text that is tags alone; those of a tag that comes again in a list."""
    values: dict[str, list[Any]] = {}
    place = 0
    while (tag := _XML.match(text, place)) is not None:
        nested = _tagged(tag[2]) if tag[1] in ("args", "file") else None  # of Roo Code
        values.setdefault(tag[1], []).append(nested or _value(tag[2]))
        place = tag.end()
    if place < len(text):
        return {}
    singles = {name: found[0] for name, found in values.items() if len(found) == 1}
    return values | singles


def cut_calls(text: str, unread: Unread) -> tuple[str, list[JsonObject]]:
    """Return an assistant's words without the calls in them, and these calls."""
    # 1. Words that are JSON or Python alone.
    whole_calls = _parsed_calls(text) if text.lstrip().startswith(("{", "[")) else []
    if whole_calls and all(isinstance(call["arguments"], dict) for call in whole_calls):
        return "", whole_calls
    listed_calls = _PYTHON_BEGIN.match(text)
    if listed_calls and (calls := _python_calls(listed_calls[1])):
        return text[listed_calls.end() :].strip(), calls
    unread.add(UNKNOWN_CALL, _PYTHON_MARK.match(text) is not None)
    # 2. Calls between marks. What is between marks but is no call stays in the words.
    all_calls = []
    named = {f"<{name}>": name for name in XML_TOOLS if f"<{name}>" in text}
    # So that calls stay in the order in which they stand.
    in_order = sorted(named, key=text.find)
    for opening, closing in (*CALL_TAGS, *((tag, f"</{named[tag]}>") for tag in in_order)):
        if opening not in text:
            continue
        word_pieces = []
        for preceding, inside in blocks(text, opening, closing):
            calls = calls_in(inside) if inside else []
            if opening in named:
                arguments = _tagged(inside or "")
                calls = [{"name": named[opening], "arguments": arguments}] if arguments else []
            all_calls += calls
            is_kept = inside is not None and not calls
            word_pieces.append(
                f"{preceding}{opening}{inside}{closing}" if is_kept else preceding
            )
        text = "".join(word_pieces).strip() if all_calls else text
        unread.add(UNKNOWN_CALL, text.count(opening))
    return text, all_calls


def cut_thinking(text: str, unread: Unread) -> str:
    """Return an assistant's words without its thinking, which may lack its beginning or end."""
    for opening, closing in THINKING_TAGS:
        if closing in text or text.lstrip().startswith(opening):
            pieces = [*blocks(text, opening, closing)]
            words = [preceding for preceding, _ in pieces]
            thought = [inside for _, inside in pieces[:-1]]
            begin, tag, position = words[-1].partition(closing)
            if tag and not thought:  # the chat template has the opening tag
                thought = [begin]
                words = [position]
            elif not thought and text.lstrip().startswith(opening):  # it was cut off
                thought = [text]
                words = []
            text = "".join(words).strip()
            unread.add(THINKING, sum(map(has_words, thought)))
    return text


def blocks(text: str, opening: str, closing: str) -> Iterator[tuple[str, str | None]]:
    """Yield the text before each block and the text in it; last, what follows, and None.

    A block stands between two tags. Without a `closing` tag, it ends where the next begins, or with
    the text.
    """
    position = 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing or opening, start + len(opening))
        if end < 0 and closing:
            break
        end = len(text) if end < 0 else end
        yield text[position:start], text[start + len(opening) : end]
        position = end + len(closing)
    yield text[position:], None
