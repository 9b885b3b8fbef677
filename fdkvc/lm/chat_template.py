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
from typing import NamedTuple

from fdkvc.limits import MAX_TEMPLATE_CHARACTERS, MAX_TEMPLATE_SECONDS

_A, _B, _C = "\ue000a\ue001", "\ue000b\ue001", "\ue000c\ue001"


class ChatTemplate(NamedTuple):
    """The texts around messages."""

    prompt: str
    """Before the first message, unless that is a system prompt."""
    starts: Mapping[str, str]
    """Before a message: of the roles user, assistant, system (the prompt) and tool."""
    end: str
    """After any message."""


@functools.lru_cache(maxsize=8)
def chat_template(template: str) -> ChatTemplate | None:
    """Return the texts around messages, None if the template cannot be read message by message.

    It is rendered in a sandbox, in a process that is killed after `MAX_TEMPLATE_SECONDS`.

    Examples
    --------
    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    >>> texts = chat_template(turns + "{% if add_generation_prompt %}<assistant>{% endif %}")
    >>> texts.starts["user"], texts.starts["tool"], texts.end
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
    starts = {"user": users, "assistant": start, "tool": users, "system": start}
    if (
        tool is not None
        and tool.endswith(_C + end)
        and tool.startswith(several[: -len(after + _C + end)])
    ):
        starts["tool"] = tool[len(several) - len(users + _C + end) : -len(_C + end)]
    if system is not None and system.endswith(_B + end + users + _A + end):
        starts["system"] = system.partition(_B)[0]
    return ChatTemplate(prompt.removesuffix(users), starts, end)


def _rendered(
    template: str, conversations: list[tuple[list[dict[str, str]], bool]]
) -> list[str | None]:
    """Return the text of each conversation, None where the template refuses it."""
    command = [sys.executable, str(Path(__file__).with_name("render_template.py"))]
    try:
        done = subprocess.run(
            command,
            input=json.dumps([template, conversations]),
            capture_output=True,
            text=True,
            timeout=MAX_TEMPLATE_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return [None] * len(conversations)
    texts: list[str | None] = json.loads(done.stdout)
    return texts
