"""Tools: the methods that a dialog's system may call, as a text that begins the dialog.

    tools FindMovies ( genre , location ) ; GetWeather ( city , date )

The text is a turn of the system: a model reads it, and a policy may evict it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fdkvc.corpora.json_input import check_structure, objects, optional, parse_json, require
from fdkvc.corpora.transcripts import (
    Mention,
    SkippedError,
    Tool,
    Transcript,
    Turn,
    clean_name,
)
from fdkvc.limits import MAX_SCHEMA_BYTES
from fdkvc.parameters import check_most

Schema = Mapping[str, tuple[Tool, ...]]
"""The tools of each service."""


def listed_tools(value: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Return the tools that a conversation or request lists, in the layout of OpenAI or Anthropic.

    Built-in tools, which have no layout of a function, are left out, as is what is not a tool.

    Examples
    --------
    >>> weather = {"name": "GetWeather", "input_schema": {"properties": {"date": {}, "city": {}}}}
    >>> listed_tools({"tools": [weather, {"type": "web_search"}]})
    (Tool(method='GetWeather', slots=('city', 'date')),)
    """
    body = value.get("body")
    listed = (body if isinstance(body, dict) else value).get("tools")
    tools = []
    for tool in listed if isinstance(listed, list) else ():
        match tool:
            case {"function": {"name": str(name)} as function}:
                schema = function.get("parameters")
            case {"type": "function", "name": str(name)} | {"name": str(name), "parameters": _}:
                schema = tool.get("parameters")
            case {"name": str(name), "input_schema": schema}:
                pass
            case _:
                continue
        properties = schema.get("properties") if isinstance(schema, dict) else None
        tools.append(_tool(name, properties if isinstance(properties, dict) else ()))
    return tuple(tools)


def _tool(name: str, slots: Iterable[str]) -> Tool:
    return Tool(clean_name(name), tuple(sorted(map(clean_name, slots))))


def read_schema(content: bytes) -> Schema:
    """Read a schema of the Schema-Guided Dialogue dataset: services with their intents.

    Raises a ValueError that names the place.
    """
    check_most("the schema has", len(content), "bytes", MAX_SCHEMA_BYTES)
    try:
        check_structure(content)
        services = parse_json(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise ValueError("the schema is not UTF-8 text") from None
    if not isinstance(services, list):
        raise ValueError("the schema is not a list of services")
    schema = {}
    for service, place in objects(services, "service", "the schema"):
        tools = []
        for intent, inside in objects(require(service, "intents", list, place), "intent", place):
            required = [str(slot) for slot in optional(intent, "required_slots", list, inside)]
            slots = [*required, *optional(intent, "optional_slots", dict, inside)]
            tools.append(_tool(require(intent, "name", str, inside), slots))
        schema[clean_name(require(service, "service_name", str, place))] = tuple(tools)
    return schema


def tools_text(tools: Sequence[Tool]) -> str:
    """Return tools as the text of a turn.

    Examples
    --------
    >>> tools_text([Tool("FindMovies", ("genre", "location")), Tool("GetAlarms", ())])
    'tools FindMovies ( genre , location ) ; GetAlarms ( )'
    """
    listed = (f"{tool.method} ( {' , '.join(tool.slots)} )" for tool in tools)
    return f"tools {' ; '.join(listed)}".replace("(  )", "( )")


def with_tools(
    transcripts: Sequence[Transcript], schema: Schema | None = None
) -> tuple[tuple[Transcript, ...], tuple[str, ...]]:
    """Return dialogs that begin with their tools, and why others are left out.

    Without a schema, a dialog that lists no tools stays as it is. Raises a ValueError if none lists
    any or all are left out, or as `begin_with_tools`.
    """
    some_list = any(transcript.tools for transcript in transcripts)
    begun, skipped = [], []
    for transcript in transcripts:
        as_it_is = some_list and schema is None and not transcript.tools
        try:
            begun.append(transcript if as_it_is else begin_with_tools(transcript, schema))
        except SkippedError as error:
            skipped.append(str(error))
    if not begun:
        raise ValueError(skipped[0])
    return tuple(begun), tuple(skipped)


def begin_with_tools(transcript: Transcript, schema: Schema | None = None) -> Transcript:
    """Return a dialog whose first turn lists its services' tools, of its file or of a schema.

    Raises a ValueError if it has no tools or the schema lacks one of its services, a SkippedError
    if it becomes too long.
    """
    tools = transcript.tools
    if schema is not None:
        missing = [service for service in transcript.topics if service not in schema]
        if missing:
            raise ValueError(f"{transcript.name}: the schema lacks the service {missing[0]}")
        tools = tuple(tool for service in sorted(transcript.topics) for tool in schema[service])
    if not tools:
        raise ValueError(f"{transcript.name}: its file lists no tools, and no schema is given")
    turns = zip(transcript.turns, transcript.spoken_by, strict=True)
    speaker = next((turn.speaker for turn, by in turns if by == "system"), "system")
    demands = (
        replace(demand, turn=demand.turn + 1, mentions=tuple(map(_later, demand.mentions)))
        for demand in transcript.demands
    )
    calls = (
        replace(
            call,
            turn=call.turn + 1,
            arguments=tuple(
                argument._replace(mention=argument.mention and _later(argument.mention))
                for argument in call.arguments
            ),
        )
        for call in transcript.calls
    )
    return replace(
        transcript,
        turns=(Turn(speaker, tools_text(tools), kind="system"), *transcript.turns),
        demands=tuple(demands),
        calls=tuple(calls),
        tools=tools,
        tools_in_text=True,
    )


def _later(mention: Mention) -> Mention:
    return mention._replace(turn=mention.turn + 1)
