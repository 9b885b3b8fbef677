"""Renders a chat template in a process of its own, within limits: a template is a program.

It reads JSON from stdin: the template, its special tokens by name, and conversations, each with its
messages, its tools or null, and whether the assistant's turn is begun. It writes JSON: the texts,
null for each that the template refuses; the reason of the last refusal; whether the template asked
for the date.
"""

import json
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    """The block with which templates of *transformers* mark what an assistant writes."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return what the block contains."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def limit(seconds: int, size: int) -> None:
    """Let the operating system, where it can, limit the CPU time and the memory of this process."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def environment(dates: list[str]) -> ImmutableSandboxedEnvironment:
    """Return the environment in which *transformers* renders templates.

    `dates` collects each format in which a template asks for today's date.
    """

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: object, ensure_ascii: bool = False, **how: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **how)

    def today(how: str) -> str:
        dates.append(how)
        return datetime.now().strftime(how)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    sandbox.globals |= {"raise_exception": refuse, "strftime_now": today}
    sandbox.filters["tojson"] = as_json
    return sandbox


def reason_of(error: Exception) -> str:
    """Return why a template fails, in one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def render(template: Template, names: dict[str, Any], most: int) -> str:
    """Return a text of at most `most` characters. Raises a MemoryError if it is longer."""
    text = ""
    for part in template.generate(names):
        text += part
        if len(text) > most:
            raise MemoryError
    return text


def main() -> None:
    """Render within the CPU seconds, bytes and characters that the arguments name."""
    seconds, size, most = map(int, sys.argv[1:])
    limit(seconds, size)
    template, tokens, conversations = json.load(sys.stdin)
    dates: list[str] = []
    texts: list[str | None] = [None] * len(conversations)
    reason = ""
    try:
        program = environment(dates).from_string(template)
    except Exception as error:  # any content may be given as a template
        reason, conversations = reason_of(error), []
    # Some templates fail without a list of tools: if all texts do, try an empty one.
    lists: list[list[Any] | None] = [None, []]
    for no_tools in lists:
        for number, (messages, tools, begun) in enumerate(conversations):
            given = {"messages": messages, "tools": no_tools if tools is None else tools}
            try:
                text = render(program, {**tokens, **given, "add_generation_prompt": begun}, most)
            except MemoryError:
                raise
            except Exception as error:  # a template is a program, and may raise anything
                reason = reason_of(error)
            else:
                texts[number], most = text, most - len(text)  # the limit is for all together
        pairs = zip(texts, conversations, strict=False)
        plain = [text for text, (_, tools, _) in pairs if tools is None]
        if any(plain) or not plain:
            break
    json.dump([texts, reason, bool(dates)], sys.stdout)


if __name__ == "__main__":
    main()
