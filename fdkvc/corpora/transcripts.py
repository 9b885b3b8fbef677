"""Transcripts: what people said, turn by turn, and what a turn needs of what was said before."""

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
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_UNSAFE = re.compile("[\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
_WITHIN_NUMBER = frozenset(".,:/-")


class TooLargeError(ValueError):
    """A sentence that says how a dialog is larger than the bounds of this module."""


class Mention(NamedTuple):
    """Where something stands in the text of a turn.

    Attributes
    ----------
    start, end : int
        Characters of the turn's text, the end not included.
    """

    turn: int
    start: int
    end: int


@dataclass(frozen=True)
class Demand:
    """A value that a turn needs, and where it was said.

    Attributes
    ----------
    kind : {"call", "state"}
        An argument of a service call, or a value of the dialogue state.
    turn : int
        The turn that needs it: what the turn before left in the cache must hold it.
    source : str
        The method that is called, or the service whose state it is.
    mentions : tuple of Mention
        In turns before `turn`, the oldest first; at least one.
    carried : bool
        Whether it is a state's value that was said of other services alone.
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
        """How many turns ago the value was last mentioned, at least 1."""
        return self.turn - self.mentions[-1].turn


class Argument(NamedTuple):
    """An argument of a service call.

    Attributes
    ----------
    slot, value : str
    mention : Mention, optional
        Where it was said last before the call; None where it was not said, or where a mention
        would be no evidence.
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
        In the order of their slots.
    """

    turn: int
    method: str
    arguments: tuple[Argument, ...]


@dataclass(frozen=True)
class Turn:
    """What one speaker said at once."""

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
        Arguments of calls, and values of the state, each once, that are said nowhere before, of
        which no cache can hold evidence.
    calls : tuple of Call
        In the order of their turns.
    calls_in_text : bool
        Whether the text of each call stands before the words of its turn.
    malformed_calls : int
        Calls whose arguments are no object in JSON: of them there is nothing but the text.

    Raises
    ------
    TooLargeError
        In a sentence that begins with the dialog's name, if it is larger than the bounds of this
        module.
    ValueError
        If nothing at all is said in it.
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
                f"{MAX_DIALOG_CHARACTERS:,} may be"
            )
        check_size(self.name, [len(words(turn.text)) for turn in self.turns])
        for what, count, most in (
            ("topics", len(self.topics), MAX_TOPICS),
            ("demands", len(self.demands), MAX_DEMANDS),
        ):
            if count > most:
                raise TooLargeError(
                    f"{self.name}: it has {count} {what}, but at most {most} may be"
                )

    @property
    def source_note(self) -> str:
        """What a recording's source says of how the dialog was read, beside the rest."""
        return ", with the text of calls" if self.calls_in_text else ""

    @cached_property
    def spoken_by(self) -> tuple[Literal["user", "system"], ...]:
        """Whose words each turn is: the user's, who without such a name is who speaks first."""
        speakers = [turn.speaker.casefold() for turn in self.turns]
        user = "user" if "user" in speakers else speakers[0]
        return tuple("user" if speaker == user else "system" for speaker in speakers)

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics in the order of their appearance."""
        return tuple(dict.fromkeys(turn.topic for turn in self.turns if turn.topic is not None))

    @property
    def services(self) -> str:
        """The set of its topics in one text, its own name where it has none.

        Dialogs of the same services resemble each other, so they count as one kind.

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
        """Return an argument in the words that the dialog used last, or else its value."""
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
        """Return the same dialog with topics as a person marks them, a letter a turn.

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
    """Raise a TooLargeError unless a dialog with so many turns is within the bounds."""
    if turns > MAX_TURNS:
        raise TooLargeError(f"{name}: it has {turns:,} turns, but at most {MAX_TURNS} may be")


def check_size(name: str, tokens: Sequence[int]) -> None:
    """Raise a TooLargeError unless a dialog with so many tokens a turn is within the bounds.

    A dialog without tokens is a ValueError.
    """
    check_turns(name, len(tokens))
    for turn, count in enumerate(tokens):
        if count > MAX_TURN_TOKENS:
            raise TooLargeError(
                f"{name}, turn {turn}: it has {count} tokens, but at most {MAX_TURN_TOKENS} may be"
            )
    if sum(tokens) > MAX_TOKENS:
        raise TooLargeError(f"{name}: it has {sum(tokens)} tokens, but at most {MAX_TOKENS} may be")
    if not sum(tokens):
        raise ValueError(f"{name}: nothing is said in it")


def words(text: str) -> list[tuple[int, int]]:
    """Cut a text into words and punctuation marks; return where each starts and ends.

    Examples
    --------
    >>> words("It's 5.")
    [(0, 2), (2, 3), (3, 4), (5, 6), (6, 7)]
    """
    return [found.span() for found in _WORD.finditer(text)]


def word_ids(text: str, spans: Iterable[tuple[int, int]]) -> list[int]:
    """Return the number of the word that stands in each span, 0 for none.

    A piece of a word is of the whole of it; see `fdkvc.attention.word_id`.

    Examples
    --------
    >>> numbers = word_ids("To Rome.", [(0, 2), (2, 5), (5, 7), (8, 8)])
    >>> numbers[1] == numbers[2] != numbers[0], numbers[3]
    (True, 0)
    """
    numbers = [0] * len(text)
    for start, end in words(text):
        numbers[start:end] = [word_id(text[start:end])] * (end - start)
    return [next(filter(None, numbers[start:end]), 0) for start, end in spans]


def clean(text: str) -> str:
    r"""Replace, one for one, characters that are no text or that turn text around.

    Examples
    --------
    >>> clean("a\x00b")
    'a b'
    """
    return _UNSAFE.sub("\ufffd", _UNSEEN.sub(" ", text))


def clean_name(text: str) -> str:
    """Return a name on one line, and not longer than names may be."""
    return clean(" ".join(text[: 2 * MAX_NAME_CHARACTERS].split()))[:MAX_NAME_CHARACTERS]


class MentionFinder:
    """Finds wordings in a dialog, whatever their case, as words of their own.

    A number is not found within another: ``2`` neither in ``12`` nor in ``2:30``.

    Parameters
    ----------
    texts : sequence of str
        The text of each turn.
    name : str
        What the dialog is called where it asks for too much.

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
        self._name, self._asked = name, 0
        lowered = [_lower(text) for text in texts]
        self._text = "\n".join(lowered)
        self._starts = [0]
        for text in lowered[:-1]:
            self._starts.append(self._starts[-1] + len(text) + 1)
        self._known: dict[str, list[Mention]] = {}

    def mentions(self, wordings: Iterable[str], before: int) -> tuple[Mention, ...]:
        """Return where the wordings stand in turns before one, the oldest first.

        Of each wording, the newest `MAX_MENTIONS`.

        Raises
        ------
        TooLargeError
            If the dialog has asked more than `MAX_DEMANDS` times.
        """
        self._asked += 1
        if self._asked > MAX_DEMANDS:
            raise TooLargeError(f"{self._name}: it demands more than {MAX_DEMANDS:,} values")
        found: set[Mention] = set()
        for wording in wordings:
            mentions = self._mentions(" ".join(_lower(wording).split()))
            end = bisect_left(mentions, Mention(before, 0, 0))
            found.update(mentions[max(end - MAX_MENTIONS, 0) : end])
        return tuple(sorted(found))

    def _mentions(self, wording: str) -> list[Mention]:
        if wording not in self._known:
            self._known[wording] = list(self._search(wording)) if wording else []
        return self._known[wording]

    def _search(self, wording: str) -> Iterable[Mention]:
        text, size = self._text, len(wording)
        at = text.find(wording)
        while at >= 0:
            end = at + size
            if not (_joined(text, at, -1) or _joined(text, end - 1, 1)):
                turn = bisect_right(self._starts, at) - 1
                yield Mention(turn, at - self._starts[turn], end - self._starts[turn])
            at = text.find(wording, end)


def _lower(text: str) -> str:
    """Lower every letter whose small one is one character too, so that places stay."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _joined(text: str, edge: int, step: int) -> bool:
    """Whether the character at an edge of a wording belongs together with what stands beside it."""
    beside = text[edge + step] if 0 <= edge + step < len(text) else " "
    if not text[edge].isalnum():
        return False
    if beside.isalnum() or beside == "_":
        return True
    further = text[edge + 2 * step] if 0 <= edge + 2 * step < len(text) else " "
    return text[edge].isdigit() and beside in _WITHIN_NUMBER and further.isdigit()
