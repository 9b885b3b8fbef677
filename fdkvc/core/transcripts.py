"""Transcripts of real dialogs, and the values that a turn needs from earlier ones."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from sys import maxsize
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from fdkvc.core.attention import SPEAKER_LABELS, word_id
from fdkvc.core.json_input import parse_within
from fdkvc.core.limits import (
    MAX_DEMANDS,
    MAX_DIALOG_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_TOKENS,
    MAX_TOPICS,
    MAX_TURN_TOKENS,
    MAX_TURNS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.scripts import word_count, word_spans

DemandKind = Literal["call", "state"]
SpanKind = Literal["system", "user", "assistant", "call", "result"]

CALLS_NOTE = ", with the text of calls"
"""In `Recording.source`, where calls are part of the text."""

SPAN_KINDS: Mapping[SpanKind, str] = {
    "system": SPEAKER_LABELS["prompt"],
    "user": SPEAKER_LABELS["user"],
    "assistant": SPEAKER_LABELS["system"],
    "call": "tool call",
    "result": "tool result",
}
"""Kinds of span with their labels: who or what wrote the words."""

GIVEN_BY: Mapping[str, str] = {
    "system": "said in the system prompt",
    "user": "said by the user",
    "assistant": "said by the assistant",
    "call": "used in a call",
    "result": "returned by a tool",
}
"""Where a value comes from, by the kind of the span that mentions it."""

# Control characters except tab and line feed, and the line separators of Unicode.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
# Surrogates cannot be encoded; bidirectional controls would reorder the text on screen.
_UNSAFE = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")

USERS = frozenset(("user", "human", "customer", "client"))
ASSISTANTS = frozenset(
    (
        "assistant",
        "system",
        "agent",
        "ai",
        "bot",
        "model",
        "gpt",
        "chatgpt",
        "chatbot",
        "claude",
        "cursor",
    )
)


class SkippedError(ValueError):
    """A dialog is left out of its file; the message is a sentence that says why."""


class TooLargeError(SkippedError):
    """A dialog exceeds a limit; the message says which."""


class Mention(NamedTuple):
    """A span of the text of a turn."""

    turn: int
    """From 0 over the dialog."""
    start: int
    """Its first character in the turn's text."""
    end: int
    """The character after its last."""


@dataclass(frozen=True)
class Demand:
    """A value that a turn needs, and where it was mentioned."""

    kind: DemandKind
    """An argument of a service call, or a value of the dialogue state."""
    turn: int
    """The turn that needs it. It is checked against the cache as the previous turn left it."""
    source: str
    """The called method, or the service of the state."""
    slot: str
    """The name of the argument, or of the state's value."""
    value: str
    """The needed value as text."""
    mentions: tuple[Mention, ...]
    """In earlier turns, oldest first; at least one."""
    carried: bool = False
    """Whether it is a state's value mentioned only in turns about other services."""
    call_number: int = 0
    """Place of its call among `Transcript.calls`; 0 for a state."""

    @property
    def needed_by(self) -> tuple[int, str, int]:
        """Turn, source and call number: the same for values that are needed together."""
        return self.turn, self.source, self.call_number

    @property
    def age(self) -> int:
        """Turns since the value was last mentioned, at least 1."""
        return self.turn - self.mentions[-1].turn


class Argument(NamedTuple):
    """An argument of a service call."""

    slot: str
    """Its name."""
    value: str
    """Its value as text."""
    mention: Mention | None
    """The last mention before the call, if any counts as evidence."""


@dataclass(frozen=True)
class Call:
    """A service call, made before the words of its turn."""

    turn: int
    """From 0 over the dialog."""
    method: str
    """The called method."""
    arguments: tuple[Argument, ...]
    """Sorted by slot."""


class Tool(NamedTuple):
    """A method that may be called, and the slots of its arguments."""

    method: str
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Turn:
    """One turn of one speaker."""

    speaker: str
    """The name or role that the file gives."""
    text: str
    """Its words, those of calls first if these are part of the text."""
    topic: str | None = None
    """Its topic or service, if known."""
    kind: Literal["system", "result"] | None = None
    """Set if the words are a system prompt or the result of a tool."""
    call_characters: int = 0
    """Number of characters at the start of the text that are calls."""
    tool: str = ""
    """For a result, the tool that was called, if the file links the two by an id."""


@dataclass(frozen=True)
class Transcript:
    """One dialog.

    Raises a SkippedError, which begins with its name, if it has no words or exceeds a limit.
    """

    name: str
    """Different from that of any other dialog of its file."""
    turns: tuple[Turn, ...]
    """In order; at least one."""
    demands: tuple[Demand, ...] = ()
    """In the order of their turns."""
    missing: int = 0
    """Number of arguments and distinct state values never mentioned before they are needed: no
    cache can hold evidence of them."""
    calls: tuple[Call, ...] = ()
    """In the order of their turns."""
    calls_in_text: bool = False
    """Whether turns begin with the text of their calls."""
    malformed_calls: int = 0
    """Number of calls whose arguments are not a JSON object, so that only their text is kept."""
    cluster: str = ""
    """The task or service that it shares with other dialogs; by default, its topics."""
    unread: tuple[tuple[str, int], ...] = ()
    """(description, number): parts of its messages that are not read, such as images."""
    tools: tuple[Tool, ...] = ()
    """The tools that its file lists."""
    tools_in_text: bool = False
    """Whether the first turn lists the tools; see `fdkvc.conversations.tools.begin_with_tools`."""
    numbered: bool = False
    """Whether its file has another dialog of the same name, so that a number was added."""
    reading: str = ""
    """Of the first dialog of a file of no known format: a sentence on how the file is read."""

    def __post_init__(self) -> None:
        check_texts(self.name, self.texts, self.unread)
        _ = self.word_counts  # while they are known
        it_has = f"{self.name}: it has"
        check_most(it_has, len(self.topics), "topics", MAX_TOPICS, TooLargeError)
        check_most(it_has, len(self.demands), "demands", MAX_DEMANDS, TooLargeError)

    @property
    def source_note(self) -> str:
        """Suffix for `Recording.source` that says whether calls and tools are in the text."""
        calls = CALLS_NOTE if self.calls_in_text else ""
        return calls + (", beginning with its tools" if self.tools_in_text else "")

    @cached_property
    def spoken_by(self) -> tuple[Literal["user", "system"], ...]:
        """The role of each turn's speaker, by the speaker's name.

        If no speaker has a user's name, all who do not have an assistant's name are users. If none
        has an assistant's name either, the first speaker is the user.
        """
        speakers = [role_of(turn.speaker) for turn in self.turns]
        users = USERS & {*speakers}
        if not users:
            # In order of appearance, without system prompts and results.
            talkers = [turn.speaker for turn in self.turns if turn.kind is None]
            roles = dict.fromkeys(map(role_of, talkers))
            candidates = [role for role in roles if role not in ASSISTANTS]
            users = frozenset(candidates if len(candidates) < len(roles) else candidates[:1])
        return tuple("user" if speaker in users else "system" for speaker in speakers)

    @property
    def roles(self) -> tuple[str, ...]:
        """Who or what wrote each turn, as a label of `SPAN_KINDS`; a named person keeps the name.

        Examples
        --------
        >>> Transcript("example", (Turn("USER", "hi"), Turn("SYSTEM", "yes"))).roles
        ('user', 'assistant')
        """
        roles = []
        unknown = self.unknown_speakers
        for index, turn in enumerate(self.turns):
            has_name = turn.kind is None and " (" in turn.speaker
            if has_name or turn.speaker in unknown:
                roles.append(turn.speaker)
            else:
                roles.append(SPAN_KINDS[self.span_kind(index, turn.call_characters)])
        return tuple(roles)

    @property
    def unknown_speakers(self) -> tuple[str, ...]:
        """Names that are neither a user's nor an assistant's, such as a role with a typo.

        If all names are unknown, the first speaker is taken for the user, and of two the other for
        the assistant; of three or more, all after the first stay unknown.
        """
        speakers = [turn.speaker for turn in self.turns if turn.kind is None]
        names = dict(zip(map(role_of, speakers), speakers, strict=True))
        unknown = [name for key, name in names.items() if key not in USERS | ASSISTANTS]
        if not USERS.isdisjoint(names):
            return tuple(unknown)
        return tuple(unknown[1:]) if len(unknown) == len(names) > 2 else ()

    @property
    def guessed_user(self) -> str:
        """The name that is read as the user's where none is a user's or an assistant's, else ""."""
        speakers = [turn.speaker for turn in self.turns if turn.kind is None]
        is_known = not (USERS | ASSISTANTS).isdisjoint(map(role_of, speakers))
        return "" if is_known or not speakers else speakers[0]

    @cached_property
    def tool_names(self) -> tuple[tuple[str, ...], ...]:
        """The tools of each turn: those that it calls, or the one whose result it is, if known.

        A result without an id of its call belongs to the first call that has none yet, of the last
        message with calls.

        Examples
        --------
        >>> calls = tuple(Call(0, method, ()) for method in ("find", "book"))
        >>> turns = (Turn("assistant", ""), *[Turn("tool", "done", kind="result")] * 2)
        >>> Transcript("example", turns, calls=calls).tool_names
        (('find', 'book'), ('find',), ('book',))
        """
        called: dict[int, list[str]] = {}
        for call in self.calls:
            called.setdefault(call.turn, []).append(call.method)
        names: list[tuple[str, ...]] = []
        waiting: list[str] = []  # methods whose results have not come yet
        for number, turn in enumerate(self.turns):
            if turn.kind == "result":
                tool = turn.tool or next(iter(waiting), "")
                names.append((tool,) if tool else ())
                if tool in waiting:
                    waiting.remove(tool)
                continue
            # The text of calls, if it is there, is complete; `calls` lack malformed ones.
            lines = turn.text[: turn.call_characters].splitlines()
            methods = [*map(_method, lines)] or called.get(number, [])
            names.append(tuple(methods))
            waiting = methods or waiting
        return tuple(names)

    def span_kind(self, turn: int, character: int) -> SpanKind:
        """Return the kind of the span that a character of a turn belongs to.

        Examples
        --------
        >>> turns = (Turn("User", "hi"), Turn("tool", '{"a": 1}', kind="result"))
        >>> dialog = Transcript("example", turns)
        >>> dialog.span_kind(0, 0), dialog.span_kind(1, 3)
        ('user', 'result')
        """
        if character < self.turns[turn].call_characters:
            return "call"
        spoken: SpanKind = "user" if self.spoken_by[turn] == "user" else "assistant"
        return self.turns[turn].kind or spoken

    @cached_property
    def word_counts(self) -> tuple[int, ...]:
        """Words and punctuation marks of each turn."""
        return _word_counts(self.texts)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics in order of appearance."""
        return tuple(
            dict.fromkeys(turn.topic for turn in self.turns if turn.topic is not None)
        )

    @property
    def services(self) -> str:
        """The dialog's cluster: its own, or its sorted topics, or its name where it has none.

        Examples
        --------
        >>> dialog = Transcript("example", (Turn("User", "hello"), Turn("System", "hi")))
        >>> dialog.services, dialog.with_topics(["B", "A"]).services
        ('example', 'A + B')
        """
        return self.cluster or " + ".join(sorted(self.topics)) or self.name

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of each turn."""
        return tuple(turn.text for turn in self.turns)

    def wording(self, argument: Argument) -> str:
        """Return the last mention of an argument, or its value if it has none."""
        if argument.mention is None:
            return argument.value
        turn, start, end = argument.mention
        return self.turns[turn].text[start:end]

    def with_name(self, name: str) -> Transcript:
        """Return the same dialog with a name of `different_names`."""
        return self if name == self.name else replace(self, name=name, numbered=True)

    def with_topics(self, topics: Sequence[str | None]) -> Transcript:
        """Return the same dialog with another topic for each turn."""
        turns = []
        for turn, topic in zip(self.turns, topics, strict=True):
            turns.append(replace(turn, topic=topic))
        return replace(self, turns=tuple(turns))


def _method(line: str) -> str:
    """Return the method that a line of JSON calls, "" if it is not a call."""
    call = parse_within(line)
    name = call.get("name") if isinstance(call, dict) else None
    return name if isinstance(name, str) else ""


def role_of(speaker: str) -> str:
    """Return a speaker's role in lower case: what is before a name in brackets.

    Examples
    --------
    >>> role_of("User (Ann)")
    'user'
    """
    return speaker.casefold().partition(" (")[0]


def _check_most(owner: str, count: int, noun: str, limit: int) -> None:
    """Raise a TooLargeError that says what reads more, if there are more than `limit`."""
    try:
        check_most(owner, count, noun, limit)
    except ValueError as error:
        longer = "python -m fdkvc forgot reads more, of the agents' logs that its --help names"
        raise TooLargeError(f"{error}; {longer}") from None


def check_turns(name: str, turns: int) -> None:
    """Raise a TooLargeError if a dialog has too many turns."""
    _check_most(f"{name}: it has", turns, "turns", MAX_TURNS)


def check_texts(name: str, texts: Sequence[str], unread: Sequence[tuple[str, int]]) -> None:
    """Raise a TooLargeError if the texts of a dialog's turns are too long, as `check_size`."""
    characters = sum(map(len, texts))
    _check_most(f"{name}: it has", characters, "characters", MAX_DIALOG_CHARACTERS)
    check_size(name, _word_counts(tuple(texts)), unread)


@lru_cache(maxsize=1)  # a dialog is checked as it is read, and each time that it is completed
def _word_counts(texts: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(map(word_count, texts))


def check_size(
    name: str, tokens: Sequence[int], unread: Sequence[tuple[str, int]] = ()
) -> None:
    """Raise a TooLargeError if a dialog's turns have too many tokens; a SkippedError if none.

    `unread` are parts that are not read, which the error names: they may hold the words.
    """
    check_turns(name, len(tokens))
    for turn, count in enumerate(tokens):
        _check_most(f"{name}, turn {turn}: it has", count, "tokens", MAX_TURN_TOKENS)
    _check_most(f"{name}: it has", sum(tokens), "tokens", MAX_TOKENS)
    if not sum(tokens):
        kinds = ", ".join(f"{kind} ({times:,}×)" for kind, times in unread[:3])
        instead = "a message needs 'role' and 'content', a text or parts with 'text'"
        why = f"its words are not read: {kinds}; {instead}" if kinds else "it has no words"
        raise SkippedError(f"{name}: {why}")


def word_ids(text: str, spans: ArrayLike) -> list[int]:
    """Return the number of the first word in each span, 0 for none.

    A part of a word has the number of the whole; see `fdkvc.core.attention.word_id`.

    Examples
    --------
    >>> numbers = word_ids("To Rome.", [(0, 2), (2, 5), (5, 7), (8, 8)])
    >>> numbers[1] == numbers[2] != numbers[0], numbers[3]
    (True, 0)
    """
    words = word_spans(text)
    numbers = [word_id(text[start:end]) for start, end in words]
    numbers.append(0)
    return [numbers[index] for index in words_at(words, spans)]  # index −1 reads the final 0


def words_at(words: Sequence[tuple[int, int]], spans: ArrayLike) -> list[int]:
    """Return the index of the first of these words that each span overlaps, −1 for none."""
    bounds = np.array([*words, (maxsize, maxsize)], np.intp)  # the last overlaps nothing
    start, end = np.asarray(spans, np.intp).reshape(-1, 2).T
    # The first word that ends after the span's start: it overlaps if it begins before the end.
    index = np.searchsorted(bounds[:, 1], start, side="right")
    overlaps = np.maximum(bounds[index, 0], start) < end
    indices: list[int] = np.where(overlaps, index, -1).tolist()
    return indices


def clean(text: str) -> str:
    r"""Replace control, surrogate and bidirectional characters one for one.

    Examples
    --------
    >>> clean("a\x00b")
    'a b'
    """
    return _UNSAFE.sub("\ufffd", _CONTROL.sub(" ", text))


def clean_name(text: str) -> str:
    """Return a name on one line, cut to `MAX_NAME_CHARACTERS`."""
    # Cut first, as a name may be a whole file; twice as long, as spaces between words may go.
    return clean(" ".join(text[: 2 * MAX_NAME_CHARACTERS].split()))[:MAX_NAME_CHARACTERS]


def different_names(names: Iterable[str]) -> list[str]:
    """Return the names, each different: a repeated name gets a number.

    Examples
    --------
    >>> different_names(["a", "a (2)", "a", "b"])
    ['a', 'a (2)', 'a (3)', 'b']
    """
    different: dict[str, None] = {}
    times = Counter[str]()
    for original in names:
        name = original
        while name in different:
            times[original] += 1
            # 7: the length of " (2000)", since a file has at most `MAX_DIALOGS`.
            name = f"{original[: MAX_NAME_CHARACTERS - 7]} ({times[original] + 1})"
        different[name] = None
    return [*different]
