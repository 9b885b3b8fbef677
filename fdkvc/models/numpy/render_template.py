"""Renders a chat template in a process of its own, within limits: a template is a program.

It reads lines of JSON from stdin. The first has the template and its special tokens by name. Any
other is a list of conversations, each with its messages, its tools or null, and whether the
assistant's turn is begun. For it a line of JSON is written: the texts, null for each that the
template refuses; the reason of the last refusal; whether the template asked for the date.
"""

import json
import math
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
    """Let the operating system, where it can, limit the memory and the further CPU time."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        usage = resource.getrusage(resource.RUSAGE_SELF)
        end = math.ceil(usage.ru_utime + usage.ru_stime) + seconds
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(
            resource.RLIMIT_CPU, (end, resource.getrlimit(resource.RLIMIT_CPU)[1])
        )
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


def environment(dates: list[str]) -> ImmutableSandboxedEnvironment:
    """Return the environment in which *transformers* renders templates.

    `dates` collects each format in which a template asks for today's date.
    """

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def as_json(value: object, ensure_ascii: bool = False, **options: Any) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, **options)

    def today(form: str) -> str:
        dates.append(form)
        return datetime.now().strftime(form)

    sandbox = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    sandbox.globals |= {"raise_exception": refuse, "strftime_now": today}
    sandbox.filters["tojson"] = as_json
    return sandbox


def reason_of(error: Exception) -> str:
    """Return why a template fails, in one line of at most 200 characters."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def render(template: Template, names: dict[str, Any], size: int) -> str:
    """Return a text of at most `size` characters. Raises a MemoryError if it is longer."""
    text = ""
    for part in template.generate(names):
        text += part
        if len(text) > size:
            raise MemoryError
    return text


def render_all(
    template: Template, names: dict[str, Any], conversations: list[Any], size: int
) -> tuple[list[str | None], str]:
    """Return the texts of conversations, None for a refused one, and why the last was refused."""
    texts: list[str | None] = [None] * len(conversations)
    reason = ""
    for number, (messages, tools, answer_begun) in enumerate(conversations):
        of_messages = {
            "messages": messages,
            "tools": tools,
            "add_generation_prompt": answer_begun,
        }
        try:
            text = render(template, names | of_messages, size)
        # This ends the process, by which the caller knows that a limit is exceeded.
        except MemoryError:
            raise
        except Exception as error:  # a template is a program, and may raise anything
            reason = reason_of(error)
        else:
            texts[number] = text
            size -= len(text)  # the limit is for all together
    return texts, reason


def main() -> None:
    """Render within the CPU seconds, bytes and characters that the arguments name."""
    seconds, memory, size = map(int, sys.argv[1:])
    limit(seconds, memory)
    program, names = json.loads(sys.stdin.readline())
    dates: list[str] = []
    template = None
    reason = ""
    try:
        template = environment(dates).from_string(program)
    except Exception as error:  # any content may be given as a template
        reason = reason_of(error)
    for line in sys.stdin:
        conversations = json.loads(line)
        texts = list[str | None]()
        if template:
            texts, reason = render_all(template, names, conversations, size)
            # Some templates fail without a list of tools: if all texts do, try an empty one.
            if not any(texts):
                listed = [(row[0], row[1] or [], row[2]) for row in conversations]
                texts, reason = render_all(template, names, listed, size)
        texts += [None] * (len(conversations) - len(texts))
        print(json.dumps([texts, reason, bool(dates)]), flush=True)
        # What is limited is the CPU time of the whole process, so the end moves with each request.
        limit(seconds, memory)


if __name__ == "__main__":
    main()
