"""What a pretrained chat model reads around the words of each message.

A chat template is a Jinja program that writes a whole conversation. It renders each dialog with
marks in place of its words, in a process of its own, and what stands between two marks is what the
model reads between two messages::

    roles                       user, assistant
    conversation, with marks    user: ▯0   assistant: ▯1
    rendered                    <s><user>▯0</><assistant>▯1</>
    cut at the marks            <s><user>     </><assistant>      </>

A template may strip or escape the words themselves, so each mark has spaces and letters around it:
what is left of them is told by `Edge`. A second rendering with the marks alone must agree.

`chat_texts` learns from short conversations which roles a template accepts, and
`ChatTexts.render` returns what it writes around the messages of a dialog.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from itertools import product, starmap
from pathlib import Path
from threading import Lock, Timer
from typing import Any, NamedTuple

from fdkvc.core.limits import (
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_CHARACTERS,
    MAX_TEMPLATE_SECONDS,
    MAX_TEMPLATE_TEXT,
    MAX_TEMPLATE_WAIT,
)
from fdkvc.core.transcripts import Tool

Roles = Sequence[str]
"""The roles of messages: ``system``, ``user``, ``assistant`` or ``tool``, and ``thinking`` for an
assistant's message with thinking in its text."""

START, END, BEGUN = "", "", "begun"
"""In place of a role: before the first message, after the last, and after it where the assistant's
next message is begun, as with ``add_generation_prompt``."""

THINKING = "<think>", "</think>"

JOIN = "\n\n"
"""Written between the texts of two passages that are given as one message."""

NO_MARGINS = "", ""
MARGINS = "\n\n\n\t\nÄb<", '>"Äb\n\t \n\n\n'
"""Text around each mark: a template may strip spaces, or escape "Ä" and "<", but no template writes
such spaces itself."""

# Marks are in a private-use area of Unicode, which no template writes or strips.
_WORDS, _THOUGHT = "\ue000{:04d}\ue001", "\ue002{:04d}\ue001"
_MARK = re.compile("([\ue000\ue002]\\d{4}\ue001)")

SpecialTokens = tuple[tuple[str, str], ...]
"""The names of special tokens, such as ``bos_token``, and their texts, for a template."""

ToolList = tuple[tuple[Tool, ...], bool]
"""The tools of a dialog, and whether its own system prompt follows."""

Message = tuple[str, list[int]]
"""The role of a message, and the passages that are its text."""

LIMITS = (
    f"{MAX_TEMPLATE_SECONDS} s of CPU time ({MAX_TEMPLATE_WAIT} s in all), "
    f"{MAX_TEMPLATE_BYTES >> 20} MB or {MAX_TEMPLATE_TEXT:,} characters"
)


class Edge(NamedTuple):
    """What a template does to the start or the end of a message's text."""

    spaces: str | None = ""
    """The characters that it strips there; None for any space, as `str.strip` has it."""
    escaped: bool = False
    """Whether the text is escaped as in JSON."""

    def start(self, text: str) -> str:
        """Return the start of a text as the template writes it."""
        return self.written_text(text.lstrip(self.spaces))

    def end(self, text: str) -> str:
        """Return the end of a text as the template writes it."""
        return self.written_text(text.rstrip(self.spaces))

    def written_text(self, text: str) -> str:
        """Return a part of a text as the template writes it, escaped or not."""
        return json.dumps(text, ensure_ascii=False)[1:-1] if self.escaped else text


EDGES = [*starmap(Edge, product(("", "\n", None), (False, True)))]
"""What templates do to an edge of a text, those that leave most of it first."""


class ReadPassage(NamedTuple):
    """A passage that is read: one that the template does not leave out."""

    number: int
    """Its index among the passages."""
    role: str
    """The role of its message."""
    start: Edge
    """What the template does to the start of its words."""
    end: Edge
    """What it does to their end."""
    separator: str | None
    """What it writes between thinking and words; None without thinking, or if that is left out."""

    def content(self, text: str) -> tuple[str, Sequence[int]]:
        """Return the text of the passage as the template writes it, and where it came from.

        That is, for each character, the index of the one in `text` that it stands for.
        """
        words = range(len(text))
        thought = range(0)
        # 1. Where the thinking is, if it is written, and where the words after it begin.
        if self.role == "thinking":
            mark = text.rindex(THINKING[1])
            words = range(mark + len(THINKING[1]), len(text))
            if self.separator is not None:
                # Without a start mark, the text before the answer has already written it.
                opening = text.find(THINKING[0], 0, mark)
                start = opening + len(THINKING[0]) if opening >= 0 else 0
                thought = _stripped(text, range(start, mark), "\n", "\n")
        # 2. What the template strips from the words.
        words = _stripped(text, words, self.start.spaces, self.end.spaces)
        # 3. Thinking, what is between, and words. An escaped character is several.
        edge = Edge(escaped=self.start.escaped or self.end.escaped)
        if not (edge.escaped or thought or self.separator):
            return text[words.start : words.stop], words
        separator = self.separator or ""
        written_words = [edge.written_text(text[place]) for place in words]
        places = [*thought, *[words.start] * len(separator)]
        for place, written_word in zip(words, written_words, strict=True):
            places += [place] * len(written_word)
        return text[thought.start : thought.stop] + separator + "".join(written_words), places


def _stripped(text: str, places: range, start: str | None, end: str | None) -> range:
    """Return the places of a part of a text without these characters at its start and end."""
    part = text[places.start : places.stop]
    last = places.start + len(part.rstrip(end))
    return range(min(places.stop - len(part.lstrip(start)), last), last)


class Rendering(NamedTuple):
    """What a template writes for messages."""

    passages: Sequence[ReadPassage]
    """The passages that it writes, in order."""
    texts: Sequence[str]
    """What it writes before, between and after them: one text more."""

    def whole_text(self, words: Mapping[int, str]) -> str:
        """Return all that is written, with these words for the passages."""
        parts = [self.texts[0]]
        for passage, text in zip(self.passages, self.texts[1:], strict=True):
            parts += passage.content(words[passage.number])[0], text
        return "".join(parts)


class GivenRoles(NamedTuple):
    """The roles under which messages are given to a template, which may not know all roles."""

    tool: str = "tool"
    """The role for a tool's result; "" if the template leaves results out."""
    later_prompt: str = "system"
    """The role for a system prompt after other messages."""
    first_prompt: str = "system"
    """The role for a system prompt before other messages."""

    def role(self, roles: Roles, index: int) -> str:
        """Return the role under which a message is given, "" if it is left out."""
        if roles[index] == "system":
            return self.later_prompt if {*roles[:index]} - {"system"} else self.first_prompt
        return self.tool if roles[index] == "tool" else roles[index]


@dataclass(frozen=True, eq=False)
class ChatTexts:
    """What a template writes around the text of each message.

    Two neighbours of one role are given as one message where the template refuses them.
    """

    template: Template
    """The process that renders it."""
    roles: GivenRoles
    """The roles under which messages are given to it."""
    gaps: frozenset[tuple[str, str, str]]
    """Two roles, and what it writes between their messages, in short conversations."""
    thinks: bool
    """Whether it treats thinking in an assistant's text differently from words."""
    notes: tuple[str, ...]
    """What it leaves out of a dialog, or reads as something else."""

    @functools.cached_property
    def pairs(self) -> frozenset[tuple[str, str]]:
        """The pairs of roles that may follow each other."""
        return frozenset((role, next_role) for role, next_role, _ in self.gaps)

    def role_of(self, role: str, text: str) -> str:
        """Return the role of a message with this text, which may be ``thinking``."""
        # The end alone: the prompt for an answer may already have written the start.
        thinking = role == "assistant" and self.thinks and THINKING[1] in text
        return "thinking" if thinking else role

    def messages(self, roles: Roles, given: GivenRoles | None = None) -> list[Message]:
        """Return the messages in which passages of some roles are given to the template.

        Raises a ValueError where the template refuses a message.
        """
        messages: list[Message] = []
        for index in range(len(roles)):
            role = (given or self.roles).role(roles, index)
            previous = messages[-1][0] if messages else START
            if not role:  # left out
                continue
            if (previous, role) in self.pairs:
                messages.append((role, [index]))
            # What the template refuses is joined to the message before, or follows an empty one.
            elif previous == role:
                messages[-1][1].append(index)
            elif {(previous, "user"), ("user", role)} <= self.pairs:
                messages += ("user", []), (role, [index])
            elif {(previous, "assistant"), ("assistant", role)} <= self.pairs:
                messages += ("assistant", []), (role, [index])
            else:
                place = f"after that of the {previous}" if previous else "at the start"
                raise ValueError(f"the model's chat template refuses a {role} message {place}")
        return messages

    def render(self, roles: Roles, end: str = END) -> Rendering:
        """Return what the template writes for passages of some roles; `end` may be `BEGUN`.

        Raises a ValueError if it accepts no messages in this order.
        """
        return _render(self, tuple(roles), end)


@functools.lru_cache(maxsize=256)
def _render(chat: ChatTexts, roles: tuple[str, ...], end: str) -> Rendering:
    # Some templates accept all roles, and yet not every order of them.
    for given_roles in (chat.roles, chat.roles._replace(tool="user", later_prompt="user")):
        rendered = chat.template.render([(chat.messages(roles, given_roles), end == BEGUN)])
        if rendered is None:
            raise ValueError(f"the model's chat template takes more than {LIMITS}")
        if rendered.renderings[0]:
            return rendered.renderings[0]
    raise ValueError("the model's chat template refuses messages in this order")


# ------------------------------------------------------------------------------- learning

LETTERS = dict(zip("suatA", ("system", "user", "assistant", "tool", "thinking"), strict=True))

LONG = (
    "uatttattutaatautuatuuaaauauuutt",
    "uauattuautatauttuaaAuutAttaAAuAaaAtaAtA",
    "uastusauu",
)
"""Orders of roles by their letters. The first contains every order of three of u, a and t."""


def _probes() -> Iterator[tuple[str, str]]:
    """Yield short conversations: their roles, and what ends them."""
    for count, end in product((1, 2, 3), (END, BEGUN)):
        for roles in product(LETTERS, repeat=count):
            if "u" in roles:  # templates may refuse a conversation without a user
                yield "".join(roles), end
    for letters, prompt in product((*LONG, LONG[0].replace("a", "A")), ("", "s")):
        yield prompt + letters, END


PROBES = [*_probes()]


@functools.lru_cache(maxsize=8)
def chat_texts(template: str, special: SpecialTokens = ()) -> ChatTexts | str:
    """Return what a template writes around messages, or why that cannot be read.

    It is rendered in a sandbox, within `LIMITS`.

    Examples
    --------
    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    >>> texts = chat_texts(turns + "{% if add_generation_prompt %}<assistant>{% endif %}")
    >>> texts.render(["user", "assistant", "tool"]).texts
    ['<user>', '</><assistant>', '</><tool>', '</>']
    """
    if not template:
        return "it has no chat template"
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        return f"its chat template is longer than {MAX_TEMPLATE_CHARACTERS:,} characters"
    program = Template(template, special)
    # 1. Render the probes, and one with a tool: a template that exceeds the limits only there is
    #    refused now.
    rendered = program.render([(_messages(letters), end == BEGUN) for letters, end in PROBES])
    listed = _conversation(_messages("u"), MARGINS), _listed([Tool("find", ("place",))]), False
    if rendered is None or program.texts([listed]) is None:
        return f"its chat template takes more than {LIMITS}"
    if not any(rendered.texts):
        return (
            f"its chat template cannot be rendered: {rendered.reason or 'it writes nothing'}"
        )
    # 2. Probes with thinking (A) matter only if the template treats thinking differently.
    thinks = any(map(_thinks, PROBES, rendered.texts))
    renderings = dict[tuple[str, str], Rendering | None]()
    for probe, rendering in zip(PROBES, rendered.renderings, strict=True):
        if thinks or "A" not in probe[0]:
            renderings[probe] = rendering
    # 3. Which roles it knows, and what it writes between them.
    first_prompt = _given_role(program, "system", "su", "sua") or "user"
    later_prompt = _given_role(program, first_prompt, "uausu")
    roles = GivenRoles(
        _given_role(program, "tool", "uat", "uatau"), later_prompt, first_prompt
    )
    notes = tuple(_notes(roles, renderings.values(), rendered.date_read))
    chat = ChatTexts(program, roles, _gaps(renderings, roles), thinks, notes)
    if chat.pairs >= {(START, "user"), ("user", "assistant"), ("assistant", "user")}:
        return chat
    if rendered.reason:
        return f"its chat template cannot be rendered: {rendered.reason}"
    return "its chat template changes the words of messages, or leaves some out"


def _messages(letters: str) -> list[Message]:
    return [(LETTERS[letter], [number]) for number, letter in enumerate(letters)]


def _thinks(probe: tuple[str, str], text: str | None) -> bool:
    """Whether thinking of this conversation is missing from a text, or differs."""
    if text is None:
        return False
    for number, letter in enumerate(probe[0]):
        if letter == "A" and _words("thinking", number, NO_MARGINS) not in text:
            return True
    return False


def _given_role(program: Template, role: str, *conversations: str) -> str:
    """Return under which role messages of a role are given: ``user`` if the template refuses it.

    It is "" if the template leaves such messages out.
    """
    rendered = program.render([(_messages(letters), False) for letters in conversations])
    sizes = (
        [len(row.passages) if row else 0 for row in rendered.renderings] if rendered else [0]
    )
    if not all(sizes) or role == "user":
        return "user"
    return role if sizes == [*map(len, conversations)] else ""


def _gaps(
    renderings: Mapping[tuple[str, str], Rendering | None], roles: GivenRoles
) -> frozenset[tuple[str, str, str]]:
    """Return what stands between the messages of probes under these roles, by the two roles."""
    gaps = set[tuple[str, str, str]]()
    for (letters, end), rendering in renderings.items():
        names = [LETTERS[letter] for letter in letters]
        read = {}
        for number, name in enumerate(names):
            role = roles.role(names, number)
            if role == name:
                read[number] = role
            elif role:  # read as something else
                break
        else:
            if rendering and [passage.number for passage in rendering.passages] == [*read]:
                sequence = [START, *read.values(), end]
                gaps.update(zip(sequence, sequence[1:], rendering.texts, strict=False))
    return frozenset(gaps)


def _notes(
    roles: GivenRoles, renderings: Iterable[Rendering | None], date_read: bool
) -> Iterator[str]:
    """Yield what a template leaves out of a dialog, or reads as something else."""
    changes = {"user": "read as the user's", "": "left out"}
    if roles.first_prompt in changes:
        yield f"system prompts are {changes[roles.first_prompt]}"
    elif roles.later_prompt in changes:
        yield f"later system prompts are {changes[roles.later_prompt]}"
    if roles.tool in changes:
        yield f"results of tools are {changes[roles.tool]}"
    thinking = set[str | None]()
    for rendering in filter(None, renderings):
        for passage in rendering.passages:
            if passage.role == "thinking":
                thinking.add(passage.separator)
    if None in thinking:
        yield "thinking in earlier answers is left out"
    if date_read:
        yield f"the date of today is written ({date.today()})"


# ------------------------------------------------------------------------------- tools


def tool_prompts(chat: ChatTexts, lists: Sequence[ToolList]) -> list[str | None]:
    """Return the system prompt in which a template writes each list of tools, None if it does not.

    Where a dialog's own system prompt follows, as the list says, the model's own is left out.
    """
    if "tools" not in chat.template.program or chat.roles.first_prompt != "system":
        return [None] * len(lists)
    messages = _conversation(_messages("uau"), MARGINS)
    prompt = {"role": "system", "content": ""}
    conversations = []
    for tools, prompted in lists:
        leading = [prompt] if prompted else []
        conversations.append(([*leading, *messages], _listed(tools), False))
    # The tools are what is between the start and the end of a system prompt that is read before
    # the same messages. All other gaps must be as without tools, and each tool must be named.
    start, end, *gaps = chat.render([LETTERS[letter] for letter in "suau"]).texts
    rendered = chat.template.texts(conversations)
    prompts: list[str | None] = []
    for number, (tools, _) in enumerate(lists):
        rendering = _cut(rendered[0][number], _messages("uau")) if rendered else None
        first_gap, *later_gaps = rendering.texts if rendering else [""]
        tools_text = first_gap[len(start) : len(first_gap) - len(end)]
        reads = first_gap == start + tools_text + end and later_gaps == gaps
        named = all(tool.method in tools_text for tool in tools)
        prompts.append(tools_text if reads and named else None)
    return prompts


def _listed(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return tools as JSON schemas of functions, as templates expect them."""
    schemas = []
    for tool in tools:
        slots = {slot: {"type": "string"} for slot in tool.slots}
        parameters = {"type": "object", "properties": slots}
        function = {"name": tool.method, "parameters": parameters}
        schemas.append({"type": "function", "function": function})
    return schemas


# ------------------------------------------------------------------------------- rendering


def _words(role: str, number: int, margins: tuple[str, str]) -> str:
    """Return the mark of a passage, with thinking before it if its role says so."""
    words = _WORDS.format(number).join(margins)
    if role != "thinking":
        return words
    return f"{THINKING[0]}\n{_THOUGHT.format(number)}\n{THINKING[1]}\n\n{words}"


def _conversation(
    messages: Sequence[Message], margins: tuple[str, str]
) -> list[dict[str, str]]:
    """Return messages for a template, with marks in place of words."""
    conversation = []
    for role, passages in messages:
        words = [_words(role, passage, margins) for passage in passages]
        name = "assistant" if role == "thinking" else role
        conversation.append({"role": name, "content": JOIN.join(words)})
    return conversation


def _cut(text: str | None, messages: Sequence[Message]) -> Rendering | None:
    """Cut a rendered text at its marks; None if there is none, or the order is another."""
    roles = {passage: role for role, passages in messages for passage in passages}
    gap, *parts = _MARK.split(text or "")
    passages = list[ReadPassage]()
    texts = []
    thought: tuple[int, str] | None = None  # whose thinking was read, and what was before it
    for mark, next_gap in zip(parts[::2], parts[1::2], strict=True):
        number = int(mark[1:-1])
        if mark[0] == _THOUGHT[0]:
            if thought:
                return None
            thought = (number, gap)
            gap = next_gap
            continue
        if (thought and thought[0] != number) or number not in roles:
            return None
        # Words after thinking begin with two newlines.
        lead = "\n\n" * (roles[number] == "thinking") + MARGINS[0]
        start = next((edge for edge in EDGES if gap.endswith(edge.start(lead))), None)
        end = next((edge for edge in EDGES if next_gap.startswith(edge.end(MARGINS[1]))), None)
        if start is None or end is None:
            return None
        gap = gap.removesuffix(start.start(lead))
        separator = gap if thought else None
        if passages and number <= passages[-1].number:
            return None
        passages.append(ReadPassage(number, roles[number], start, end, separator))
        texts.append(thought[1] if thought else gap)
        thought = None
        gap = next_gap.removeprefix(end.end(MARGINS[1]))
    return None if thought else Rendering(passages, [*texts, gap])


class Rendered(NamedTuple):
    """What a template makes of several conversations."""

    renderings: list[Rendering | None]
    """None for each that it refuses, or whose words it changes or puts in another order."""
    texts: list[str | None]
    """The texts themselves, with marks alone."""
    reason: str
    """Why it refused the last that it refused."""
    date_read: bool
    """Whether it asked for the date."""


class Template:
    """A process that renders a template, within `LIMITS` for each request.

    It is started by the first request, and again by the next after one that it did not survive.
    """

    def __init__(self, program: str, special: SpecialTokens) -> None:
        self.program = program
        self._special = dict(special)
        self._lock = Lock()  # sessions of the app share a model
        self._process: subprocess.Popen[str] | None = None

    def render(self, conversations: Sequence[tuple[list[Message], bool]]) -> Rendered | None:
        """Render conversations, each with whether an answer is begun; None beyond `LIMITS`."""
        requests = []
        for margins, (messages, begun) in product((MARGINS, NO_MARGINS), conversations):
            conversation = _conversation(messages, margins)
            requests.append((conversation, None, begun))
        answer = self.texts(requests)
        if answer is None:
            return None
        texts, reason, date_read = answer
        plain_texts = texts[len(conversations) :]
        renderings = []
        for (messages, _), text, plain_text in zip(
            conversations, texts, plain_texts, strict=False
        ):
            rendering = _cut(text, messages)
            words = {}
            for role, passages in messages:
                for passage in passages:
                    words[passage] = _words(role, passage, NO_MARGINS)
            agrees = rendering and rendering.whole_text(words) == plain_text
            renderings.append(rendering if agrees else None)
        return Rendered(renderings, plain_texts, reason, date_read)

    def texts(self, requests: Sequence[Any]) -> tuple[list[str | None], str, bool] | None:
        """Return what `fdkvc.models.numpy.render_template` writes; None beyond `LIMITS`."""
        with self._lock:
            process = self._process
            if process is None or process.poll() is not None:
                process = self._process = self._start()
            assert process.stdin
            assert process.stdout
            # The process limits its own CPU time, so that a template that fits does so on a busy
            # machine, too. The timer is for one that waits, or where CPU time cannot be limited.
            timer = Timer(MAX_TEMPLATE_WAIT, process.kill)
            timer.start()
            try:
                print(json.dumps(requests), file=process.stdin, flush=True)
                texts, reason, date_read = json.loads(process.stdout.readline())
            # The process has ended or was killed, so that there is no whole line of JSON.
            except (OSError, ValueError):
                process.kill()
                process.wait()
                return None
            finally:
                timer.cancel()
        return texts, reason, date_read

    def _start(self) -> subprocess.Popen[str]:
        file = str(Path(__file__).with_name("render_template.py"))
        limits = MAX_TEMPLATE_SECONDS, MAX_TEMPLATE_BYTES, MAX_TEMPLATE_TEXT
        process = subprocess.Popen(
            [sys.executable, file, *map(str, limits)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        weakref.finalize(self, _end, process)
        assert process.stdin
        with suppress(OSError):  # it ended at once, as the first answer will show
            print(json.dumps([self.program, self._special]), file=process.stdin)
        return process


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
