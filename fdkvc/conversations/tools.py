"""Tools: the methods that a dialog's system may call, as a text that begins the dialog.

    tools FindMovies ( genre , location ) ; GetWeather ( city , date )

The text is a turn of the system: a model reads it, and a policy may evict it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

from fdkvc.core.json_input import JsonObject, objects_of, of_kind, only, parse_within
from fdkvc.core.transcripts import Mention, SkippedError, Tool, Transcript, Turn, clean_name
from fdkvc.core.unread import Unread, has_words

LISTS = ("tools", "functions")
"""Fields of a dialog, a request or a system prompt that list tools."""

SCHEMAS = ("parameters", "parametersJsonSchema", "input_schema", "inputSchema")
"""Fields of a tool with the schema of its arguments, the first that has any."""


def listed_tools(value: JsonObject, unread: Unread) -> tuple[Tool, ...]:
    """Return the tools that a request lists, in the layout of OpenAI, Anthropic, Gemini or Bedrock.

    The list, or a tool in it, may be a text of JSON. Built-in tools, which are not described as
    functions, are left out, and so is anything that is not a tool; `unread` counts these, and
    descriptions, which are not read.
    """
    tools = []
    for owner in _owners(value):
        for name in LISTS:
            listed = _parsed(owner.get(name))
            # Gemini's list of functions may be given without a list around it.
            if isinstance(listed, dict) and [*_declared(listed)] != [listed]:
                listed = [listed]
            if not isinstance(listed, list):
                unread.add(f"field {name!r}", has_words(listed))
                continue
            for item in chain.from_iterable(map(_declared, map(_parsed, listed))):
                tool = _tool(item)
                if tool is not None:
                    tools.append(tool)
                    unread.add("description of a tool", _is_described(item))
                elif isinstance(item, dict) and isinstance(item.get("type"), str):
                    unread.add(f"tool of type {clean_name(item['type'])!r}")
                else:
                    unread.add("tool of an unknown form", has_words(item))
    return tuple(dict.fromkeys(tools))


def _owners(value: JsonObject) -> Iterator[JsonObject]:
    """Yield the objects that may list tools: a request or a dialog, and its system prompts."""
    body = value.get("body")
    owner = body if isinstance(body, dict) else value
    yield owner
    if isinstance(owner.get("toolConfig"), dict):
        yield owner["toolConfig"]
    # Of a log of Inspect: the first event that gave its model any.
    events = objects_of(owner.get("events"))
    with_tools = (row for row in events if row.get("event") == "model" and row.get("tools"))
    yield from islice(with_tools, 1)
    for field in ("messages", "conversations"):
        for message in objects_of(owner.get(field)):
            if "system" in (message.get("role"), message.get("from")):
                yield message


def _parsed(value: Any) -> Any:
    """Return the value of a text of JSON; other values and texts are returned unchanged."""
    parsed = parse_within(value) if isinstance(value, str) else None
    return value if parsed is None else parsed


def _tool(value: Any) -> Tool | None:
    """Return the tool that a value describes, None if it is no tool."""
    function = of_kind(value, dict).get("function")
    tool = function if isinstance(function, dict) else value
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
        return None
    is_described = isinstance(tool.get("description"), str) and "type" not in tool
    is_function = tool is function or tool.get("type") == "function" or is_described
    if not is_function and tool.keys().isdisjoint(SCHEMAS):
        return None
    schema = _parsed(next(filter(None, map(tool.get, SCHEMAS)), None))
    slots: Any = {}
    if isinstance(schema, dict) and "properties" in schema:
        slots = schema["properties"]
    elif isinstance(schema, dict) and "type" not in schema:  # the slots themselves
        slots = {slot: part for slot, part in schema.items() if isinstance(part, dict)}
    listed = slots if isinstance(slots, dict | list) else ()
    names = map(clean_name, only(listed, str))
    return Tool(clean_name(tool["name"]), tuple(sorted(names)))


def _is_described(value: Any) -> bool:
    """Whether a tool, or something in it, has a description in words."""
    if isinstance(value, list):
        return any(map(_is_described, value))
    return isinstance(value, dict) and (
        has_words(value.get("description")) or any(map(_is_described, value.values()))
    )


def _declared(tool: Any) -> Iterator[Any]:
    """Yield the functions that a tool of Gemini declares, Bedrock's tool, or any other as it is."""
    match tool:
        case {"functionDeclarations": [*functions]} | {"function_declarations": [*functions]}:
            yield from ({"function": function} for function in functions)
        case {"toolSpec": {"inputSchema": {"json": schema}} as spec}:
            yield {**spec, "inputSchema": schema}
        case _:
            yield tool


def tools_text(tools: Sequence[Tool]) -> str:
    """Return tools as the text of a turn."""
    listed = (f"{tool.method} ( {' , '.join(tool.slots)} )" for tool in tools)
    return f"tools {' ; '.join(listed)}".replace("(  )", "( )")


def with_tools(
    transcripts: Sequence[Transcript],
) -> tuple[tuple[Transcript, ...], tuple[str, ...]]:
    """Return dialogs that begin with their tools, and why others are left out.

    A dialog that lists no tools stays as it is. Raises a ValueError if none lists any or all are
    left out.
    """
    any_tools = any(transcript.tools for transcript in transcripts)
    dialogs = []
    skipped = []
    for transcript in transcripts:
        unchanged = any_tools and not transcript.tools
        try:
            dialogs.append(transcript if unchanged else begin_with_tools(transcript))
        except SkippedError as error:
            skipped.append(str(error))
    if not dialogs:
        raise ValueError(skipped[0])
    return tuple(dialogs), tuple(skipped)


def begin_with_tools(transcript: Transcript) -> Transcript:
    """Return a dialog whose first turn lists its tools.

    Raises a ValueError if it has none, a SkippedError if it becomes too long.
    """
    if not transcript.tools:
        raise ValueError(f"{transcript.name}: its file lists no tools")
    turns = zip(transcript.turns, transcript.spoken_by, strict=True)
    speaker = next((turn.speaker for turn, role in turns if role == "system"), "system")
    # All that names a turn moves on by one.
    demands = []
    for demand in transcript.demands:
        mentions = tuple(map(_later, demand.mentions))
        demands.append(replace(demand, turn=demand.turn + 1, mentions=mentions))
    calls = []
    for call in transcript.calls:
        arguments = []
        for argument in call.arguments:
            mention = argument.mention and _later(argument.mention)
            arguments.append(argument._replace(mention=mention))
        calls.append(replace(call, turn=call.turn + 1, arguments=tuple(arguments)))
    return replace(
        transcript,
        turns=(Turn(speaker, tools_text(transcript.tools), kind="system"), *transcript.turns),
        demands=tuple(demands),
        calls=tuple(calls),
        tools_in_text=True,
    )


def _later(mention: Mention) -> Mention:
    return mention._replace(turn=mention.turn + 1)
