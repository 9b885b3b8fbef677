"""Renders a chat template in a process of its own, which can be killed: a template is a program.

Reads JSON from stdin: the template, its tools or null, and a list of conversations, each with
whether the assistant's turn is begun. Writes the texts as JSON, null where the template refuses
one.
"""

import json
import sys
from contextlib import suppress

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MOST_BYTES = 2**30


def refuse(message: str) -> None:
    """Raise the error of a template that does not accept a conversation."""
    raise TemplateError(message)


def as_json(value: object, indent: int | None = None) -> str:
    """Return a value as the templates of models expect it, and not as the text of a page."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def main() -> None:
    """Render, within a limit of memory where the system has one."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    template, tools, conversations = json.load(sys.stdin)
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    environment.filters["tojson"] = as_json
    texts: list[str | None] = []
    for messages, begun in conversations:
        try:
            made = environment.from_string(template)
            names = {"bos_token": "", "eos_token": "", "tools": tools}
            texts.append(made.render(messages=messages, add_generation_prompt=begun, **names))
        except Exception:  # whatever the program does
            texts.append(None)
    json.dump(texts, sys.stdout)


if __name__ == "__main__":
    main()
