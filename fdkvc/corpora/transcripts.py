"""Transcripts of real dialogs, and the values that a turn needs from earlier ones."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, NamedTuple

from fdkvc.attention import word_id
from fdkvc.limits import (
    MAX_DEMANDS,
    MAX_DIALOG_CHARACTERS,
    MAX_MENTIONS,
    MAX_NAME_CHARACTERS,
    MAX_TOKENS,
    MAX_TOPICS,
    MAX_TURN_TOKENS,
    MAX_TURNS,
)
from fdkvc.synthetic.scenarios import custom_scenario

DemandKind = Literal["call", "state"]

_WORD = re.compile(r"\w+|[^\w\s]")
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_UNSAFE = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_WITHIN_NUMBER = frozenset(".,:/-")


class TooLargeError(ValueError):
    """A dialog exceeds a limit; the message is a sentence that says which."""


class Mention(NamedTuple):
    """A span of the text of a turn.

    Attributes
    ----------
    start, end : int
        Characters of the turn's text, the end excluded.
    """

    turn: int
    start: int
    end: int


@dataclass(frozen=True)
class Demand:
    """A value that a turn needs, and where it was mentioned.

    Attributes
    ----------
    kind : {"call", "state"}
        An argument of a service call, or a value of the dialogue state.
    turn : int
        The turn that needs it. It is checked against the cache as the previous turn left it.
    source : str
        The called method, or the service of the state.
    mentions : tuple of Mention
        In earlier turns, oldest first; at least one.
    carried : bool
        Whether it is a state's value mentioned only in turns about other services.
    """

    kind: DemandKind
    turn: int
    source: str
    slot: str
    value: str
    mentions: tuple[Mention, ...]
    carried: bool = False

    @property
    def age(self) -> int:
        """Turns since the value was last mentioned, at least 1."""
        return self.turn - self.mentions[-1].turn


class Argument(NamedTuple):
    """An argument of a service call.

    Attributes
    ----------
    slot, value : str
    mention : Mention, optional
        The last one before the call, if any counts as evidence.
    """

    slot: str
    value: str
    mention: Mention | None


@dataclass(frozen=True)
class Call:
    """A service call, made before the words of its turn.

    Attributes
    ----------
    turn : int
    method : str
    arguments : tuple of Argument
        Sorted by slot.
    """

    turn: int
    method: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Turn:
    """One turn of one speaker."""

    speaker: str
    text: str
    topic: str | None = None


@dataclass(frozen=True)
class Transcript:
    """One dialog.

    Attributes
    ----------
    demands : tuple of Demand
        In the order of their turns.
    missing : int
        Number of arguments and distinct state values never mentioned before they are needed: no
        cache can hold evidence of them.
    calls : tuple of Call
        In the order of their turns.
    calls_in_text : bool
        Whether turns begin with the text of their calls.
    malformed_calls : int
        Number of calls whose arguments are not a JSON object, so that only their text is kept.

    Raises
    ------
    TooLargeError
        If the dialog exceeds a limit, with a sentence that begins with its name.
    ValueError
        If it has no words.
    """

    name: str
    turns: tuple[Turn, ...]
    demands: tuple[Demand, ...] = ()
    missing: int = 0
    calls: tuple[Call, ...] = ()
    calls_in_text: bool = False
    malformed_calls: int = 0

    def __post_init__(self) -> None:
        check_turns(self.name, len(self.turns))
        characters = sum(len(turn.text) for turn in self.turns)
        if characters > MAX_DIALOG_CHARACTERS:
            raise TooLargeError(
                f"{self.name}: it has {characters:,} characters, but at most "
                f"{MAX_DIALOG_CHARACTERS:,} are allowed"
            )
        check_size(self.name, [len(word_spans(turn.text)) for turn in self.turns])
        for what, count, most in (
            ("topics", len(self.topics), MAX_TOPICS),
            ("demands", len(self.demands), MAX_DEMANDS),
        ):
            if count > most:
                raise TooLargeError(
                    f"{self.name}: it has {count} {what}, but at most {most} are allowed"
                )

    @property
    def source_note(self) -> str:
        """Suffix for `Recording.source` that says whether calls are in the text."""
        return ", with the text of calls" if self.calls_in_text else ""

    @cached_property
    def spoken_by(self) -> tuple[Literal["user", "system"], ...]:
        """The role of each turn's speaker; where nobody is named "user", the first speaker is."""
        speakers = [turn.speaker.casefold() for turn in self.turns]
        user = "user" if "user" in speakers else speakers[0]
        return tuple("user" if speaker == user else "system" for speaker in speakers)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics in order of appearance."""
        return tuple(dict.fromkeys(turn.topic for turn in self.turns if turn.topic is not None))

    @property
    def services(self) -> str:
        """The dialog's cluster: its sorted topics, or its own name where it has none.

        Examples
        --------
        >>> dialog = Transcript("own", (Turn("User", "hello"), Turn("System", "hi")))
        >>> dialog.services, dialog.with_schedule("BA").services
        ('own', 'A + B')
        """
        return " + ".join(sorted(self.topics)) or self.name

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

    def with_topics(self, topics: Sequence[str | None]) -> Transcript:
        """Return the same dialog with another topic for each turn."""
        if len(topics) != len(self.turns):
            raise ValueError(f"there are {len(topics)} topics for {len(self.turns)} turns")
        turns = (replace(turn, topic=topic) for turn, topic in zip(self.turns, topics, strict=True))
        return replace(self, turns=tuple(turns))

    def with_schedule(self, schedule: str) -> Transcript:
        """Return the same dialog with topics by letter, one for each turn.

        Raises
        ------
        ValueError
            If the schedule is not letters A to Z, one for each turn.

        Examples
        --------
        >>> dialog = Transcript("own", (Turn("User", "hello"), Turn("System", "hi")))
        >>> [turn.topic for turn in dialog.with_schedule("ab").turns]
        ['A', 'B']
        """
        letters = custom_scenario(schedule).schedule
        if len(letters) != len(self.turns):
            raise ValueError(
                f"the schedule has {len(letters)} letters, but the dialog has "
                f"{len(self.turns)} turns: give one letter for each"
            )
        return self.with_topics(list(letters))


def check_turns(name: str, turns: int) -> None:
    """Raise a TooLargeError if a dialog has too many turns."""
    if turns > MAX_TURNS:
        raise TooLargeError(f"{name}: it has {turns:,} turns, but at most {MAX_TURNS} are allowed")


def check_size(name: str, tokens: Sequence[int]) -> None:
    """Raise a TooLargeError if a dialog has too many tokens; a ValueError if it has none.

    Parameters
    ----------
    tokens : sequence of int
        Of each turn.
    """
    check_turns(name, len(tokens))
    for turn, count in enumerate(tokens):
        if count > MAX_TURN_TOKENS:
            raise TooLargeError(
                f"{name}, turn {turn}: it has {count} tokens, "
                f"but at most {MAX_TURN_TOKENS} are allowed"
            )
    if sum(tokens) > MAX_TOKENS:
        raise TooLargeError(
            f"{name}: it has {sum(tokens)} tokens, but at most {MAX_TOKENS} are allowed"
        )
    if not sum(tokens):
        raise ValueError(f"{name}: it has no words")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word and punctuation mark.

    Examples
    --------
    >>> word_spans("It's 5.")
    [(0, 2), (2, 3), (3, 4), (5, 6), (6, 7)]
    """
    return [found.span() for found in _WORD.finditer(text)]


def word_ids(text: str, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return the number of the first word in each span, 0 for none.

    A part of a word has the number of the whole; see `fdkvc.attention.word_id`.

    Examples
    --------
    >>> numbers = word_ids("To Rome.", [(0, 2), (2, 5), (5, 7), (8, 8)])
    >>> numbers[1] == numbers[2] != numbers[0], numbers[3]
    (True, 0)
    """
    numbers = [0] * len(text)
    for start, end in word_spans(text):
        numbers[start:end] = [word_id(text[start:end])] * (end - start)
    return [next(filter(None, numbers[start:end]), 0) for start, end in spans]


def clean(text: str) -> str:
    r"""Replace control, surrogate and bidirectional characters one for one.

    Examples
    --------
    >>> clean("a\x00b")
    'a b'
    """
    return _UNSAFE.sub("\ufffd", _CONTROL.sub(" ", text))


def clean_name(text: str) -> str:
    """Return a name on one line, within the limit of its length."""
    return clean(" ".join(text[: 2 * MAX_NAME_CHARACTERS].split()))[:MAX_NAME_CHARACTERS]


class MentionFinder:
    """Finds wordings in a dialog as whole words, ignoring case.

    A number is not found within another: ``2`` neither in ``12`` nor in ``2:30``.

    Parameters
    ----------
    texts : sequence of str
        The text of each turn.
    name : str
        Of the dialog, for messages.

    Examples
    --------
    >>> finder = MentionFinder(["Two rooms in San Jose", "12 rooms at 2:30, or 2?"])
    >>> finder.mentions(["san jose"], before=2)
    (Mention(turn=0, start=13, end=21),)
    >>> finder.mentions(["2"], before=2)
    (Mention(turn=1, start=21, end=22),)
    >>> MentionFinder(['{"hotel_name": 3}']).mentions(["hotel"], before=1)
    ()
    """

    def __init__(self, texts: Sequence[str], name: str = "dialog") -> None:
        self._name, self._requests = name, 0
        lowered = [_lower(text) for text in texts]
        self._text = "\n".join(lowered)
        self._starts = [0]
        for text in lowered[:-1]:
            self._starts.append(self._starts[-1] + len(text) + 1)
        self._found: dict[str, list[Mention]] = {}

    def mentions(self, wordings: Iterable[str], before: int) -> tuple[Mention, ...]:
        """Return the mentions of wordings in turns before one, oldest first.

        Of each wording, only the latest `MAX_MENTIONS` are returned.

        Raises
        ------
        TooLargeError
            If this is called more than `MAX_DEMANDS` times.
        """
        self._requests += 1
        if self._requests > MAX_DEMANDS:
            raise TooLargeError(f"{self._name}: it demands more than {MAX_DEMANDS:,} values")
        found: set[Mention] = set()
        for wording in wordings:
            mentions = self._mentions(" ".join(_lower(wording).split()))
            end = bisect_left(mentions, Mention(before, 0, 0))
            found.update(mentions[max(end - MAX_MENTIONS, 0) : end])
        return tuple(sorted(found))

    def _mentions(self, wording: str) -> list[Mention]:
        if wording not in self._found:
            self._found[wording] = list(self._search(wording)) if wording else []
        return self._found[wording]

    def _search(self, wording: str) -> Iterable[Mention]:
        text, size = self._text, len(wording)
        at = text.find(wording)
        while at >= 0:
            end = at + size
            if not (_continues_word(text, at, -1) or _continues_word(text, end - 1, 1)):
                turn = bisect_right(self._starts, at) - 1
                yield Mention(turn, at - self._starts[turn], end - self._starts[turn])
            at = text.find(wording, end)


def _lower(text: str) -> str:
    """Lower the case of every letter that stays one character, so that positions stay."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _continues_word(text: str, edge: int, step: int) -> bool:
    """Whether a word or number continues beyond an edge of a wording."""
    beside = text[edge + step] if 0 <= edge + step < len(text) else " "
    if not text[edge].isalnum():
        return False
    if beside.isalnum() or beside == "_":
        return True
    further = text[edge + 2 * step] if 0 <= edge + 2 * step < len(text) else " "
    return text[edge].isdigit() and beside in _WITHIN_NUMBER and further.isdigit()
