"""What a pretrained chat model reads around the words of each message.

A chat template is a Jinja program that writes a whole conversation. Running it for each dialog
would be slow, and would give the program the dialog's text. So it is run once, in a process of its
own, on short conversations of every order of roles, whose messages have marks in place of words.
What it wrote between two marks, a gap, is looked up later by the roles of the messages on both
sides and, where these do not determine it, by what else is true of the place (`PLACES`). A dialog
of any length then reads as the template writes it::

    conversation, with marks    user: ▯0   assistant: ▯1
    rendered                    <s><user>▯0</><assistant>▯1</>
    cut at the marks            <s><user>     </><assistant>      </>
    gaps, by roles              ("", "user")  ("user", "assistant")  ("assistant", "")
    a dialog                    gap, words, gap, words, gap, words, … gap

`chat_texts` learns the gaps, and `ChatTexts.around` puts them between the messages of a dialog.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product
from pathlib import Path
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

# What templates look at, besides the roles on both sides. `place` is the index of the message after
# a gap.
PLACES: Mapping[str, Callable[[Roles, int], bool]] = {
    # the message is the last one
    "last": lambda roles, place: place == len(roles) - 1,
    # no message of the user follows: the model is still at its answer, whose thinking stays
    "answers": lambda roles, place: "user" not in roles[place:],
    # no other message of the assistant follows
    "final": lambda roles, place: not {"assistant", "thinking"} & {*roles[place + 1 :]},
    # the user has written before
    "asked": lambda roles, place: "user" in roles[:place],
    # but for results of tools, the message before is the assistant's: it made the calls
    "called": lambda roles, place: [*filter("tool".__ne__, roles[:place])][-1:] == ["assistant"],
    # a tool has returned a result before
    "returned": lambda roles, place: "tool" in roles[:place],
    # the conversation begins with a system prompt
    "prompted": lambda roles, place: roles[:1] == ["system"],
    # the message before the one before the gap is a tool's: templates may group several results
    "second": lambda roles, place: roles[: max(place - 1, 0)][-1:] == ["tool"],
}
"""What may be true of a gap, by the index of the message after it."""

THINKING = "<think>", "</think>"

JOIN = "\n\n"
"""Written between the texts of two passages that are given as one message."""

Key = tuple[str, ...]
"""A gap: the roles before and after it, then "yes" or "" for each of some `PLACES`."""

SpecialTokens = tuple[tuple[str, str], ...]
"""The names of special tokens, such as ``bos_token``, and their texts, for a template."""

ToolList = tuple[tuple[Tool, ...], bool]
"""The tools of a dialog, and whether its own system prompt follows."""

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
        return self.written(text.lstrip(self.spaces))

    def end(self, text: str) -> str:
        """Return the end of a text as the template writes it."""
        return self.written(text.rstrip(self.spaces))

    def written(self, text: str) -> str:
        """Return a part of a text as the template writes it, escaped or not."""
        return json.dumps(text, ensure_ascii=False)[1:-1] if self.escaped else text


EDGES = [Edge(spaces, escaped) for escaped, spaces in product((False, True), ("", None, "\n"))]
"""What templates do to an edge of a text, the simplest first."""


class Gap(NamedTuple):
    """What a template writes between two messages, before the first, or after the last."""

    text: str = ""
    """The text itself, whatever the messages say."""
    before: Edge = EDGES[0]
    """What it does to the end of the message before."""
    after: Edge = EDGES[0]
    """What it does to the start of the message after."""
    inner: str | None = None
    """What it writes between the thinking and the words of the message after; None if that has no
    thinking, or the thinking is left out."""


class Given(NamedTuple):
    """The roles under which messages are given to a template, which may not know all roles."""

    tool: str = "tool"
    """The role for a tool's result; "" if the template leaves results out."""
    later: str = "system"
    """The role for a system prompt after other messages."""
    first: str = "system"
    """The role for a system prompt before other messages."""

    def role(self, roles: Roles, index: int) -> str:
        """Return the role under which a message is given, "" if it is left out."""
        if roles[index] == "system":
            return self.later if {*roles[:index]} - {"system"} else self.first
        return self.tool if roles[index] == "tool" else roles[index]


class ReadPassage(NamedTuple):
    """A passage that is read: one that the template does not leave out."""

    passage: int
    """Its index among the passages."""
    role: str
    """The role of its message."""
    before: Gap
    """What is written before it."""
    after: Gap
    """What is written after it."""


@dataclass(frozen=True)
class ChatTexts:
    """What a template writes around the text of each message.

    Two neighbours of one role are given as one message where the template refuses them.
    """

    given: Given
    """The roles under which messages are given to it."""
    gaps: Mapping[Key, Gap]
    """What it writes between two messages."""
    places: Sequence[str]
    """The `PLACES` that the keys of the gaps have, in order."""
    dated: bool
    """Whether it writes the date."""

    @functools.cached_property
    def pairs(self) -> frozenset[Key]:
        """The pairs of roles that may follow each other."""
        return frozenset(key[:2] for key in self.gaps)

    @functools.cached_property
    def thinks(self) -> bool:
        """Whether it treats thinking in an assistant's text differently from words."""
        return any("thinking" in pair for pair in self.pairs)

    @property
    def notes(self) -> Iterator[str]:
        """What it leaves out of a dialog, or reads as something else."""
        others = {"user": "read as the user's", "": "left out"}
        tool, later, first = self.given
        if first in others:
            yield f"system prompts are {others[first]}"
        elif later in others:
            yield f"later system prompts are {others[later]}"
        if tool in others:
            yield f"results of tools are {others[tool]}"
        if any(key[1] == "thinking" and gap.inner is None for key, gap in self.gaps.items()):
            yield "thinking in earlier answers is left out"

    def role_of(self, role: str, text: str) -> str:
        """Return the role of a message with this text, which may be ``thinking``."""
        # The end alone: the prompt for an answer may already have written the start.
        thinking = role == "assistant" and self.thinks and THINKING[1] in text
        return "thinking" if thinking else role

    def messages(self, roles: Roles) -> list[tuple[str, list[int]]]:
        """Return the messages in which passages of some roles are given to the template.

        Each has its role, and the indices of its passages. Raises a ValueError where the template
        refuses a message.
        """
        messages: list[tuple[str, list[int]]] = []
        for index in range(len(roles)):
            role, before = self.given.role(roles, index), messages[-1][0] if messages else START
            if not role:  # left out
                continue
            if (before, role) in self.pairs:
                messages.append((role, [index]))
            # What the template refuses is joined to the message before, or follows an empty one.
            elif before == role:
                messages[-1][1].append(index)
            elif {(before, "user"), ("user", role)} <= self.pairs:
                messages += ("user", []), (role, [index])
            elif {(before, "assistant"), ("assistant", role)} <= self.pairs:
                messages += ("assistant", []), (role, [index])
            else:
                place = f"after that of the {before}" if before else "at the start"
                raise ValueError(f"the model's chat template refuses a {role} message {place}")
        return messages

    def around(self, roles: Roles, end: str = END) -> tuple[list[ReadPassage], list[list[str]]]:
        """Return the passages that are read, and the texts before, between and after them.

        There is one text more than passages; each is a list of parts. `end` may be `BEGUN`.
        """
        messages = self.messages(roles)
        given = [role for role, _ in messages]
        gaps = [self.gaps[self._key(given, number, end)] for number in range(len(given) + 1)]
        read, texts = list[ReadPassage](), [[gaps[0].text]]
        for (role, passages), before, after in zip(messages, gaps, gaps[1:], strict=False):
            joined = [before, *[Gap(JOIN)] * (len(passages) - 1), after]
            for number, gap, next_gap in zip(passages, joined, joined[1:], strict=False):
                read.append(ReadPassage(number, role, gap, next_gap))
                texts.append([next_gap.text])
            if not passages:  # an empty message: its gaps meet, and are one text of two parts
                texts[-1].append(after.text)
        return read, texts

    def _key(self, roles: Roles, place: int, end: str) -> Key:
        """Return the key of the gap before a message, or the known key most like it."""
        key = _key(roles, place, end, self.places)
        if key in self.gaps:
            return key
        # No probe had all of this true at once: take the gap that agrees in most `PLACES`.
        candidates = [other for other in self.gaps if other[:2] == key[:2]]
        return max(candidates, key=lambda other: sum(map(str.__eq__, key, other)))

    def content(self, text: str, reading: ReadPassage) -> tuple[str, Sequence[int]]:
        """Return the text of a passage as the template writes it, and where it came from.

        That is, for each character, the index of the one in `text` that it stands for.
        """
        inner, first, thought = reading.before.inner, 0, range(0)
        # 1. Where the thinking is, if it is written, and where the words after it begin.
        if reading.role == "thinking":
            mark = text.rindex(THINKING[1])
            first = mark + len(THINKING[1])
            if inner is not None:
                # Without a start mark, the text before the answer has already written it.
                opening = text.find(THINKING[0], 0, mark)
                start = opening + len(THINKING[0]) if opening >= 0 else 0
                start += len(text[start:mark]) - len(text[start:mark].lstrip("\n"))
                thought = range(start, max(start, len(text[:mark].rstrip("\n"))))
        # 2. What the template strips from the words.
        left, right = reading.before.after, reading.after.before
        end = len(text.rstrip(right.spaces))
        first = min(first + len(text[first:]) - len(text[first:].lstrip(left.spaces)), end)
        # 3. Thinking, what is between, and words. An escaped character is several.
        edge = Edge(escaped=left.escaped or right.escaped)
        if not (edge.escaped or thought or inner):
            return text[first:end], range(first, end)
        parts = [(text[place], place) for place in thought]
        parts += [(character, first) for character in inner or ""]
        parts += [(edge.written(text[place]), place) for place in range(first, end)]
        places: list[int] = []
        for part, place in parts:
            places += [place] * len(part)
        return "".join(part for part, _ in parts), places


def _key(roles: Roles, number: int, end: str, places: Sequence[str]) -> Key:
    """Return the key of the gap before the message `number`, or after the last one."""
    before = roles[number - 1] if number else START
    after = roles[number] if number < len(roles) else end
    return before, after, *("yes" if PLACES[place](roles, number) else "" for place in places)


# ------------------------------------------------------------------------------- learning

LETTERS = dict(zip("suatA", ("system", "user", "assistant", "tool", "thinking"), strict=True))

# All orders of up to three messages; templates may refuse a conversation without a user.
_UP_TO_THREE = chain.from_iterable(product(LETTERS, repeat=count) for count in (1, 2, 3))
SHORT = ["".join(letters) for letters in _UP_TO_THREE if "u" in letters]
# A sequence that contains every order of three of the roles u, a and t, and others with thinking
# and later system prompts. Their beginnings are rendered, too, as what is written depends on what
# follows.
EVERY_THREE = "uatttattutaatautuatuuaaauauuutt"
LONG = [
    EVERY_THREE,
    EVERY_THREE.replace("a", "A"),
    "uauattuautatauttuaaAuutAttaAAuAaaAtaAtA",
    "uauaaAuAaauAuAAaua",
    "uastusauu",
]
PROBES = [*product(SHORT, (END, BEGUN))]
for _long, _start in product(LONG, ("", "s")):
    PROBES += [(_start + _long[:size], END) for size in range(len(_long), 3, -3)]
"""Orders of roles, by their letters, that are rendered with marks in place of words."""

SPACED = "\n \nÄb<", '>"Äb\n \n'
"""Text around each mark in a second rendering: spaces are stripped, or "Ä" and "<" escaped."""

# Marks are in a private-use area of Unicode, which no template writes or strips.
_WORDS, _THOUGHT = "\ue000{:03d}\ue001", "\ue002{:03d}\ue001"
_MARK = re.compile("([\ue000\ue002]\\d{3}\ue001)")

Cut = tuple[list[int], list[str], dict[int, str]]
"""A rendered text, cut at its marks: the numbers of its messages, in order; the texts around them,
one more than messages; by message, the text between its thinking and its words."""


@functools.lru_cache(maxsize=8)
def chat_texts(template: str, special: SpecialTokens = ()) -> ChatTexts | str:
    """Return what a template writes around messages, or why that cannot be learned.

    It is rendered once, in a sandbox, within `LIMITS`.

    Examples
    --------
    >>> turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}"
    >>> texts = chat_texts(turns + "{% if add_generation_prompt %}<assistant>{% endif %}")
    >>> texts.around(["user", "assistant", "tool"])[1]
    [['<user>'], ['</><assistant>'], ['</><tool>'], ['</>']]
    """
    if not template:
        return "it has no chat template"
    if len(template) > MAX_TEMPLATE_CHARACTERS:
        return f"its chat template is longer than {MAX_TEMPLATE_CHARACTERS:,} characters"
    # 1. Render the probes twice: with marks alone, and with spaces and letters around them.
    conversations = [
        (_conversation(letters, around), None, end == BEGUN)
        for around, (letters, end) in product((("", ""), SPACED), PROBES)
    ]
    # One more, with a tool: a template that exceeds the limits only there is refused now.
    listed = _listed([Tool("find", ("place",))])
    rendered = _rendered(template, special, [*conversations, (_conversation("u"), listed, False)])
    if rendered is None:
        return f"its chat template takes more than {LIMITS}"
    (*texts, _), reason, dated = rendered
    if not any(texts):
        return f"its chat template cannot be rendered: {reason or 'it writes nothing'}"
    # 2. Cut the texts at the marks. Probes with thinking (A) matter only if the template treats
    #    thinking differently from words.
    plain = dict(zip(PROBES, texts[: len(PROBES)], strict=True))
    spaced = dict(zip(PROBES, texts[len(PROBES) :], strict=True))
    thinks = not _is_plain(plain)
    probes = [probe for probe in PROBES if thinks or "A" not in probe[0]]
    cuts = {probe: (_cut(plain[probe]), _cut(spaced[probe])) for probe in probes}
    # 3. Take the first way to give messages under which roles and places determine all gaps.
    for given in _ways_to_give():
        learned = _gaps(cuts, given)
        if learned:
            chat = ChatTexts(given, *learned, dated)
            if chat.pairs >= {(START, "user"), ("user", "assistant"), ("assistant", "user")}:
                return chat
    if reason:
        return f"its chat template cannot be rendered: {reason}"
    return "what its chat template writes depends on more than the roles of messages"


def _conversation(letters: str, around: tuple[str, str] = ("", "")) -> list[dict[str, str]]:
    """Return messages with marks in place of words."""
    messages = []
    for number, letter in enumerate(letters):
        role, words = LETTERS[letter], _WORDS.format(number).join(around)
        if role == "thinking":
            role, words = "assistant", f"{_thought(number)}{words}"
        messages.append({"role": role, "content": words})
    return messages


def _thought(number: int) -> str:
    return f"{THINKING[0]}\n{_THOUGHT.format(number)}\n{THINKING[1]}\n\n"


def _cut(text: str | None) -> Cut | None:
    """Cut a rendered text at its marks; None if the template refused it."""
    if text is None:
        return None
    order, gaps, inner = list[int](), [""], dict[int, str]()
    thought = None  # the message whose thinking was read, until its words
    for part in _MARK.split(text):
        if not _MARK.fullmatch(part):
            if thought is None:
                gaps[-1] += part
            else:
                inner[thought] = part
            continue
        number = int(part[1:4])
        if part[0] == _THOUGHT[0]:
            thought = number
        else:
            if thought not in (None, number):  # thinking before the words of another message
                return [], [], {}
            thought = None
            order.append(number)
            gaps.append("")
    return order, gaps, inner


def _is_plain(texts: Mapping[tuple[str, str], str | None]) -> bool:
    """Whether a template writes an assistant's thinking unchanged, as a part of its words."""

    def expected(letters: str, end: str) -> str | None:
        """Return the text without thinking, with thinking put before the words."""
        text = texts[letters.replace("A", "a"), end]
        for number, letter in enumerate(letters):
            if letter == "A" and text is not None:
                words = _WORDS.format(number)
                text = text.replace(words, _thought(number) + words)
        return text

    return all(text == expected(*probe) for probe, text in texts.items() if probe[0] in SHORT)


def _ways_to_give() -> Iterator[Given]:
    """Yield the roles under which messages may be given, first those that lose least."""
    for first, tool in product(("system", "user"), ("tool", "", "user")):
        for later in ("system", "", "user") if first == "system" else ("user",):
            yield Given(tool, later, first)


def _gaps(
    cuts: Mapping[tuple[str, str], tuple[Cut | None, Cut | None]], given: Given
) -> tuple[dict[Key, Gap], Sequence[str]] | None:
    """Return the gaps between messages under these roles, and the places that determine them.

    None if the template refuses or misplaces messages that it accepts elsewhere, changes more than
    the edges of texts, or if what it writes depends on more than roles and `PLACES`.
    """
    # 1. Take the gaps of the probes in which every message already has the role it is given.
    rows: list[tuple[list[str], int, str, Gap]] = []
    refused: list[set[Key]] = []
    for (letters, end), (cut, spaced) in cuts.items():
        roles = [LETTERS[letter] for letter in letters]
        as_given = [given.role(roles, number) for number in range(len(roles))]
        if any(role and role != named for role, named in zip(as_given, roles, strict=True)):
            continue
        read = [number for number, role in enumerate(as_given) if role]
        roles = [roles[number] for number in read]
        if cut is None or spaced is None or cut[0] != read:
            refused.append({_key(roles, number, end, ()) for number in range(len(roles) + 1)})
            continue
        for number in range(len(roles) + 1):
            thinking = roles[number : number + 1] == ["thinking"]
            message = read[number] if thinking else -1
            inner = cut[2].get(message), spaced[2].get(message)
            texts = cut[1][number], spaced[1][number]
            gap = _gap(texts, inner, number > 0, number < len(roles), thinking)
            if gap is None:
                return None
            rows.append((roles, number, end, gap))
    # 2. A refused probe must contain a pair of neighbours that no accepted probe has: in a dialog,
    #    pairs are all that is checked (`ChatTexts.messages`). And the roles that are given must be
    #    accepted.
    pairs = {_key(roles, number, end, ()) for roles, number, end, _ in rows}
    if any(others <= pairs for others in refused):
        return None
    followers = {after for before, after in pairs if before not in (START, "system")}
    if given.tool == "tool" and "tool" not in followers:
        return None
    if given.later == "system" and "system" not in followers:
        return None
    if given.first == "system" and (START, "system") not in pairs:
        return None
    # 3. Find the fewest places that, with the roles, determine every gap: under them, no key has
    #    two different gaps.
    keys = [_key(roles, number, end, [*PLACES]) for roles, number, end, _ in rows]
    sizes = range(len(PLACES) + 1)
    for places in chain.from_iterable(combinations(PLACES, size) for size in sizes):
        columns = [0, 1, *(2 + [*PLACES].index(place) for place in places)]
        gaps: dict[Key, Gap] = {}
        if all(
            gaps.setdefault(tuple(key[column] for column in columns), gap) == gap
            for key, (*_, gap) in zip(keys, rows, strict=True)
        ):
            return gaps, places
    return None


def _gap(
    texts: tuple[str, str],
    inner: tuple[str | None, str | None],
    ends: bool,
    starts: bool,
    thinking: bool,
) -> Gap | None:
    """Return the gap that these texts are, in the plain rendering and in the one with `SPACED`.

    `ends` and `starts` say whether there are words before and after; `inner` is what both
    renderings have between the thinking of the message after and its words. None if the template
    changes more than the edges of texts.
    """
    # 1. Words with thinking begin with two newlines in the probes, and with spaces in the second.
    lines = "\n\n" if thinking else ""
    heads = (lines, lines + SPACED[0]) if starts else ("", "")
    for after in EDGES if starts else EDGES[:1]:
        # 2. Does this edge explain how the words after begin, in both renderings? With thinking,
        #    what is before them is `inner`.
        written, spaced = map(after.start, heads)
        plain, other = texts if inner[0] is None else (inner[0], inner[1] or "")
        if not (plain.endswith(written) and other.endswith(spaced)):
            continue
        plain, other = plain.removesuffix(written), other.removesuffix(spaced)
        between = None
        if inner[0] is not None:
            if plain != other:
                continue
            between, (plain, other) = plain, texts
        # 3. Does an edge explain how the words before end? Then what is left is the gap.
        for before in EDGES if ends else EDGES[:1]:
            if other == (before.end(SPACED[1]) if ends else "") + plain:
                return Gap(plain, before, after, between)
    return None


# ------------------------------------------------------------------------------- tools


def tool_prompts(
    template: str, special: SpecialTokens, lists: Sequence[ToolList]
) -> list[str | None]:
    """Return the system prompt in which a template writes each list of tools, None if it does not.

    Where a dialog's own system prompt follows, as the list says, the model's own is left out. All
    are rendered in one process, within `LIMITS`.
    """
    chat = chat_texts(template, special)
    if "tools" not in template or isinstance(chat, str) or chat.given.first != "system":
        return [None] * len(lists)
    messages = _conversation("uau")
    prompt = {"role": "system", "content": ""}
    conversations = [
        ([prompt, *messages] if prompted else messages, _listed(tools), False)
        for tools, prompted in lists
    ]
    # The tools are what is between the start and the end of a system prompt that is read before
    # the same messages. All other gaps must be as without tools, and each tool must be named.
    _, gaps = chat.around([LETTERS[letter] for letter in "suau"])
    start, end, *others = map("".join, gaps)
    rendered = _rendered(template, special, conversations)
    texts = [None] * len(lists) if rendered is None else rendered[0]
    prompts: list[str | None] = []
    for (tools, _), cut in zip(lists, map(_cut, texts), strict=True):
        before, *after = cut[1] if cut else [""]
        inside = before[len(start) : len(before) - len(end)]
        reads = before == start + inside + end and after == others
        named = all(tool.method in inside for tool in tools)
        prompts.append(inside if reads and named else None)
    return prompts


def _listed(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    """Return tools as JSON schemas of functions, as templates expect them."""
    listed = []
    for tool in tools:
        slots = {slot: {"type": "string"} for slot in tool.slots}
        parameters = {"type": "object", "properties": slots}
        function = {"name": tool.method, "parameters": parameters}
        listed.append({"type": "function", "function": function})
    return listed


# ------------------------------------------------------------------------------- rendering


def _rendered(
    template: str,
    special: SpecialTokens,
    conversations: Sequence[tuple[list[dict[str, str]], list[dict[str, Any]] | None, bool]],
) -> tuple[list[str | None], str, bool] | None:
    """Return what `fdkvc.models.numpy.render_template` writes; None if it exceeds its limits."""
    file = str(Path(__file__).with_name("render_template.py"))
    limits = MAX_TEMPLATE_SECONDS, MAX_TEMPLATE_BYTES, MAX_TEMPLATE_TEXT
    # The process limits its own CPU time, so that a template that fits does so on a busy machine,
    # too. The timeout is for one that waits, or where CPU time cannot be limited.
    try:
        process = subprocess.run(
            [sys.executable, file, *map(str, limits)],
            input=json.dumps([template, dict(special), conversations]),
            capture_output=True,
            text=True,
            timeout=MAX_TEMPLATE_WAIT,
        )
        texts, reason, dated = json.loads(process.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return texts, reason, dated
