"""What a pretrained chat model reads around the words of each message.

A chat template is a program for a whole conversation. Here it renders a few conversations, from
which the texts before and after a message of each role are taken.
"""

import functools
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdkvc.corpora.transcripts import Tool
from fdkvc.limits import MAX_TEMPLATE_CHARACTERS, MAX_TEMPLATE_SECONDS

_A, _B, _C = "\ue000a\ue001", "\ue000b\ue001", "\ue000c\ue001"


@functools.lru_cache(maxsize=8)
def chat_template(template: str) -> Mapping[str, str] | None:
    """Return the texts around messages, None if the template cannot be read message by message.

    By name: those before a message of the roles ``user``, ``assistant``, ``system`` (its prompt)
    and ``tool``; ``prompt`` before the first message, unless that is a system prompt; ``end`` after
    any message, and ``result_end`` between the text of a tool's result and that. It is rendered in
    a sandbox, in a process that is killed after `MAX_TEMPLATE_SECONDS`.

    Examples
    --------
    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    >>> texts = chat_template(turns + "{% if add_generation_prompt %}<assistant>{% endif %}")
    >>> texts["user"], texts["tool"], texts["end"]
    ('<user>', '<tool>', '</>')
    """
    if not template or len(template) > MAX_TEMPLATE_CHARACTERS:
        return None
    user, answer = {"role": "user", "content": _A}, {"role": "assistant", "content": _B}
    more = [{"role": role, "content": _C} for role in ("user", "tool")]
    prompted = [{"role": "system", "content": _B}, user]
    conversations = [
        ([user], False),
        ([user], True),
        *(([user, answer, message], False) for message in more),
        (prompted, False),
    ]
    question, begun, several, tool, system = _rendered(template, conversations)
    if question is None or begun is None or several is None:
        return None
    prompt, _, end = question.partition(_A)
    start = begun.removeprefix(question)
    before, _, rest = several.partition(_B)
    after, _, last = rest.partition(_C)
    users = after.removeprefix(end)
    if not end or before != begun or after == users or last != end or not prompt.endswith(users):
        return None
    texts = {"user": users, "assistant": start, "tool": users, "system": start}
    texts |= {"prompt": prompt.removesuffix(users), "end": end, "result_end": ""}
    earlier = several[: -len(users + _C + end)]
    if tool is not None and _C in tool and tool.startswith(earlier) and tool.endswith(end):
        texts["tool"], _, last = tool.removeprefix(earlier).partition(_C)
        texts["result_end"] = last.removesuffix(end)
    if system is not None and system.endswith(_B + end + users + _A + end):
        texts["system"] = system.partition(_B)[0]
    return texts


@functools.lru_cache(maxsize=1024)
def tools_prompt(template: str, tools: tuple[Tool, ...], prompted: bool = False) -> str | None:
    """Return the text of the system prompt in which a template lists tools, None if it does not.

    It is without the model's own prompt if that of a dialog follows (`prompted`).
    """
    texts = chat_template(template) if "tools" in template else None
    if texts is None:
        return None
    functions = [
        {"name": tool.method, "parameters": {"type": "object", "properties": slots}}
        for tool in tools
        for slots in [{slot: {"type": "string"} for slot in tool.slots}]
    ]
    listed = [{"type": "function", "function": function} for function in functions]
    messages = [{"role": "system", "content": ""}] * prompted + [{"role": "user", "content": _A}]
    (text,) = _rendered(template, [(messages, False)], listed)
    start, end = texts["system"], texts["end"] + texts["user"]
    prompt = (text or "").partition(_A)[0]
    if not (prompt.startswith(start) and prompt.endswith(end)):
        return None
    prompt = prompt[len(start) : -len(end)]
    return prompt if all(tool.method in prompt for tool in tools) else None


def _rendered(
    template: str,
    conversations: list[tuple[list[dict[str, str]], bool]],
    tools: list[dict[str, Any]] | None = None,
) -> list[str | None]:
    """Return the text of each conversation, None where the template refuses it."""
    command = [sys.executable, str(Path(__file__).with_name("render_template.py"))]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([template, tools, conversations]),
            capture_output=True,
            text=True,
            timeout=MAX_TEMPLATE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return [None] * len(conversations)
    texts: list[str | None] = json.loads(done.stdout)
    return texts
