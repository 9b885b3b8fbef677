"""Tools: the methods that a dialog's system may call, as a text that begins the dialog.

    tools FindMovies ( genre , location ) ; GetWeather ( city , date )

The text is a turn of the system: a model reads it, and a policy may evict it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from fdkvc.corpora.transcripts import Mention, SkippedError, Tool, Transcript, Turn, clean_name


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
        slots = properties if isinstance(properties, dict) else ()
        tools.append(Tool(clean_name(name), tuple(sorted(map(clean_name, slots)))))
    return tuple(tools)


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
    some_list = any(transcript.tools for transcript in transcripts)
    begun, skipped = [], []
    for transcript in transcripts:
        as_it_is = some_list and not transcript.tools
        try:
            begun.append(transcript if as_it_is else begin_with_tools(transcript))
        except SkippedError as error:
            skipped.append(str(error))
    if not begun:
        raise ValueError(skipped[0])
    return tuple(begun), tuple(skipped)


def begin_with_tools(transcript: Transcript) -> Transcript:
    """Return a dialog whose first turn lists its tools.

    Raises a ValueError if it has none, a SkippedError if it becomes too long.
    """
    if not transcript.tools:
        raise ValueError(f"{transcript.name}: its file lists no tools")
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
        turns=(Turn(speaker, tools_text(transcript.tools), kind="system"), *transcript.turns),
        demands=tuple(demands),
        calls=tuple(calls),
        tools_in_text=True,
    )


def _later(mention: Mention) -> Mention:
    return mention._replace(turn=mention.turn + 1)
