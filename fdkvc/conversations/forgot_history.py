"""What later calls needed of the text before each compaction, and what of it came back.

Each message is read once, for all compactions of a session: `forgot` compares what ways hold of it.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import NamedTuple

from fdkvc.conversations.needs import Thing, setting_slots, things_of
from fdkvc.conversations.rereading import LineIndex, Returned, is_edit, is_edit_tool
from fdkvc.conversations.session_text import span_kind
from fdkvc.conversations.sessions import MadeCall, Session
from fdkvc.conversations.thing_index import (
    Place,
    ThingIndex,
    file_name,
    is_path,
    names_same_file,
)
from fdkvc.core.limits import MAX_SESSION_VALUES
from fdkvc.core.transcripts import SpanKind

SUMMARY = "summary"
"""The source of a value that is in an earlier summary; otherwise it is a kind of span."""


@dataclass(frozen=True)
class Need:
    """A thing that calls after a compaction needed, and that was in the text before it."""

    value: str
    """The thing as the first call has it."""
    method: str
    """The tool of the first call that needed it."""
    slot: str
    """The name of its argument."""
    message: int
    """The message with that call."""
    calls: int
    """How many calls needed it."""
    source: int
    """The last message before the compaction that has it."""
    source_kind: SpanKind | str
    """What wrote it there: a kind of span, or `SUMMARY`."""
    tool: str
    """The tool whose result has it there, "" if none does."""
    giver: int
    """The last message after the compaction, and before the call, that gave it again; −1 if none
    did."""
    places: tuple[Place, ...]
    """Its mentions in the context before the compaction."""
    stays: bool
    """Whether it stands in what the model had right after the compaction."""

    @property
    def weight(self) -> tuple[int, int]:
        """How bad its loss is: worse if more calls need it, and if it is older."""
        return self.calls, self.age

    @property
    def age(self) -> int:
        """Messages from where it stood last before the compaction to the call."""
        return self.message - self.source


class LaterCall(NamedTuple):
    """A call of a session, with the things in it that may be needs."""

    message: int
    number: int
    """Its number in its message."""
    call: MadeCall
    things: tuple[Thing, ...]

    @property
    def paths(self) -> list[str]:
        """The paths among its things."""
        return [thing.value for thing in self.things if is_path(thing.value)]


class Failure(NamedTuple):
    """A call that failed as a thing in it does not exist, which stands nowhere before it."""

    message: int
    value: str
    has_namesake: bool
    """Whether the text before the compaction had a path that ends with the same name."""


_MISSING = re.compile(
    r"(?i)no such|not exist|n't exist|not found|cannot find|could not find|ENOENT|did not match|"
    r"unknown|invalid"
)
_MISSING_CHARACTERS = 2_000
"""Characters of a result in which it is looked for."""


class _Use(NamedTuple):
    """A thing in a call after a compaction."""

    thing: Thing
    context: int
    row: LaterCall


class History:
    """What came after the compactions of a session, each message read once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.needs: list[list[Need]] = [[] for _ in session.compactions]
        self.returned: list[list[Returned]] = [[] for _ in session.compactions]
        self._stayed = [frozenset(row.stayed) for row in session.compactions]
        self.failures: list[list[Failure]] = [[] for _ in session.contexts]
        """By context, the calls in it that failed."""
        calls = chain.from_iterable(message.calls for message in session.messages)
        self._settings = setting_slots(calls)
        self.calls = [[*self._calls_of(number)] for number in range(len(session.contexts))]
        """By context, the calls that are new in it."""
        self._needing: list[set[tuple[int, int]]] = [set() for _ in session.contexts]
        self._spans = _context_spans(session)
        self._in_context = [*map(frozenset, session.contexts)]
        self._find_needs()
        self._find_returned()

    def _new_messages(self, context: int) -> Sequence[int]:
        """Return the messages of a context after those that stayed from the one before."""
        first = len(self.session.compactions[context - 1].stayed) if context else 0
        return self.session.contexts[context][first:]

    def _calls_of(self, context: int) -> Iterator[LaterCall]:
        for index in self._new_messages(context):
            for number, call in enumerate(self.session.messages[index].calls):
                things = things_of(call, self._settings)
                others = [
                    row for row in things if row.value.rstrip("/") != self.session.folder
                ]
                yield LaterCall(index, number, call, tuple(others))

    def call_counts(self, number: int) -> tuple[int, int]:
        """Return the calls with a need until the next compaction, and all calls."""
        return len(self._needing[number + 1]), len(self.calls[number + 1])

    def calls_to_edit(self, number: int) -> int | None:
        """Return the number of calls before the first edit after a compaction."""
        calls = enumerate(self.calls[number + 1])
        return next((place for place, row in calls if is_edit(row.call)), None)

    def answers(self, number: int) -> tuple[int, ...]:
        """Return the messages with the model's answers until the next compaction."""
        return tuple(self._answers_among(self._new_messages(number + 1)))

    def _answers_among(self, messages: Iterable[int]) -> Iterator[int]:
        """Yield those of some messages that are the model's answers."""
        for index in messages:
            if span_kind(self.session.messages[index]) == "assistant":
                yield index

    def gaps(self, number: int) -> tuple[float, ...]:
        """Return the seconds between requests: the last before a compaction, its own, and later.

        They are 0 where the file has no times.
        """
        messages = self.session.messages
        compaction = self.session.compactions[number]
        earlier = [messages[index].time for index in self._answers_among(compaction.context)]
        last = max(earlier, default=0.0)
        summed = [messages[index].time for index in compaction.summary]
        later = [messages[index].time for index in self.answers(number)]
        gaps = []
        for previous, time in pairwise([last, max(summed, default=last), *later]):
            gaps.append(max(time - previous, 0.0) if time and previous else 0.0)
        return tuple(gaps)

    def _contexts_of(self, places: Iterable[Place]) -> list[tuple[int, int]]:
        """Return the spans of contexts that have any of some places, in order."""
        spans = {*chain.from_iterable(self._spans[place.message] for place in places)}
        joined: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1] + 1:
                first = joined[-1][0]
                last = max(joined.pop()[1], last)
            joined.append((first, last))
        return joined

    def _within(self, places: Iterable[Place], context: int) -> tuple[Place, ...]:
        """Return the places that were in a context."""
        messages = self._in_context[context]
        return tuple(place for place in places if place.message in messages)

    def _uses(self) -> dict[tuple[str, str, bool], list[_Use]]:
        """Return the uses of each thing in the calls after the first compaction."""
        uses: dict[tuple[str, str, bool], list[_Use]] = {}
        beyond = set()
        for context, rows in enumerate(self.calls[1:], start=1):
            for row in rows:
                for thing in row.things:
                    key = thing.value, thing.context_word, thing.is_name
                    if key in uses or len(uses) < MAX_SESSION_VALUES:
                        use = _Use(thing, context, row)
                        uses.setdefault(key, []).append(use)
                    else:
                        beyond.add(thing.value)
        if beyond:
            first = f"Values after the first {MAX_SESSION_VALUES:,}"
            self.notes.append(f"{first} are not looked for: {len(beyond):,}.")
        return uses

    def _find_needs(self) -> None:
        """Give the things that calls need to the last compaction before which they stood."""
        uses = self._uses()
        index = ThingIndex(self.session.messages, {value for value, _, _ in uses})
        # What a path names is one thing, however calls spell it.
        things: dict[tuple[object, ...], tuple[Sequence[Place], list[_Use]]] = {}
        for (value, context_word, is_name), uses_of_value in uses.items():
            whole = index.whole_path(value)
            places = index.places(whole, context_word)
            if is_name:  # what only the agent wrote is no name that it was told
                messages = self.session.messages
                places = [
                    row
                    for row in places
                    if span_kind(messages[row.message], row.start) != "call"
                ]
            # However many words may stand beside a number, one mention is one thing.
            things.setdefault((whole, *places[:1]), (places, []))[1].extend(uses_of_value)
        for places, unsorted_rows in things.values():
            # In order again: the uses of several spellings stand one after the other.
            rows = sorted(unsorted_rows, key=lambda use: use.row.message)
            spans = self._contexts_of(places)
            by_context: dict[int, list[_Use]] = {}
            for use in rows:
                context = _last_before(spans, use.context)
                new_places = self._new_places(use.row.message, use.context, places)
                if context >= 0 and not (use.thing.in_code and new_places):
                    by_context.setdefault(context, []).append(use)
                    self._needing[use.context].add((use.row.message, use.row.number))
            for context, context_uses in by_context.items():
                self.needs[context].append(self._need(context_uses, context, places))
        for needs in self.needs:
            needs.sort(key=lambda need: need.message)
        for context, calls in enumerate(self.calls[1:], start=1):
            self.failures[context] = [*self._failures(context, calls, index)]

    def _failures(
        self, context: int, rows: Iterable[LaterCall], index: ThingIndex
    ) -> Iterator[Failure]:
        """Yield the calls of a context that failed as a thing in them does not exist."""
        messages = self.session.messages
        for row in rows:
            answer = messages[row.call.result] if row.call.result >= 0 else None
            text = answer.turn.text[:_MISSING_CHARACTERS] if answer else ""
            if answer is None or not (answer.failed and _MISSING.search(text)):
                continue
            for thing in row.things:
                name = file_name(thing.value)
                places = index.places(thing.value, thing.context_word)
                is_known = places and places[0].message < row.message
                if name and name in text and not (is_known or thing.is_name):
                    namesakes = self._contexts_of(index.namesakes(thing.value))
                    yield Failure(
                        row.message, thing.value, _last_before(namesakes, context) >= 0
                    )
                    break

    def _new_places(
        self, message: int, context: int, places: Sequence[Place]
    ) -> Sequence[Place]:
        """Return the places of a thing in messages after a compaction, and before a call."""
        bounds = self._new_messages(context)[0], message
        first, end = (bisect_left(places, (bound,)) for bound in bounds)
        return places[first:end]

    def _need(self, uses: Sequence[_Use], context: int, places: Sequence[Place]) -> Need:
        """Return what calls needed of a context that a compaction ended."""
        first = uses[0].row
        calls = {(use.row.message, use.row.number) for use in uses}
        stood = self._within(places, context)
        source = stood[-1]
        row = self.session.messages[source.message]
        kind = (
            SUMMARY
            if source.message in self.session.summaries
            else span_kind(row, source.start)
        )
        stayed = self._stayed[context]
        return Need(
            value=uses[0].thing.value,
            method=first.call.method,
            slot=uses[0].thing.slot,
            message=first.message,
            calls=len(calls),
            source=source.message,
            source_kind=kind,
            tool=row.turn.tool,
            giver=self._giver(first.message, uses[0].context, places),
            places=stood,
            stays=any(place.message in stayed for place in places),
        )

    def _giver(self, message: int, context: int, places: Sequence[Place]) -> int:
        """Return the last message before a call that gave it a thing again, −1 if none did."""
        for place in reversed(self._new_places(message, context, places)):
            is_agent = span_kind(self.session.messages[place.message]) in AGENT
            if not is_agent and self._within([place], context):
                return place.message
        return -1

    def _find_returned(self) -> None:
        """Give the lines that came back to the last compaction before which they stood."""
        index = LineIndex(self.session)

        def is_result(place: Place) -> bool:
            return self.session.messages[place.message].turn.kind == "result"

        # Each looked up once: many lines come back again and again.
        spans_of: dict[int, list[tuple[int, int]]] = {}
        standing: dict[tuple[int, int], tuple[tuple[Place, ...], bool]] = {}
        for context in range(1, len(self.session.contexts)):
            edited = self._edited_results(context)
            for message in self._new_messages(context):
                turn = self.session.messages[message].turn
                if turn.kind != "result" or is_edit_tool(turn.tool):
                    continue
                for key, tokens in index.lines_of(message):
                    if key not in spans_of:
                        spans_of[key] = self._contexts_of(filter(is_result, index.places[key]))
                    earlier = _last_before(spans_of[key], context)
                    if earlier < 0:
                        continue
                    if (key, earlier) not in standing:
                        places = index.places[key]
                        stayed = self._stayed[earlier]
                        stays = any(place.message in stayed for place in places)
                        standing[key, earlier] = self._within(places, earlier), stays
                    line = Returned(
                        message, key, tokens, *standing[key, earlier], message in edited
                    )
                    self.returned[earlier].append(line)

    def _edited_results(self, context: int) -> frozenset[int]:
        """Return the results of a context whose call names a file that was edited in it before."""
        edited: dict[str, set[str]] = {}
        results = set()
        for row in self.calls[context]:
            named = {path: edited.setdefault(file_name(path), set()) for path in row.paths}
            for path, edited_paths in named.items():
                if any(names_same_file(path, edited_path) for edited_path in edited_paths):
                    results.add(row.call.result)
            if is_edit(row.call):
                for path, edited_paths in named.items():
                    edited_paths.add(path)
        return frozenset(results)


AGENT = ("assistant", "call")
"""Kinds of spans that the agent writes itself."""


def _context_spans(session: Session) -> list[list[tuple[int, int]]]:
    """Return the first and last context of each stretch of contexts with each message."""
    spans: list[list[tuple[int, int]]] = [[] for _ in session.messages]
    for number, context in enumerate(session.contexts):
        for index in context:
            stretches = spans[index]
            if stretches and stretches[-1][1] == number - 1:
                stretches[-1] = stretches[-1][0], number
            else:
                stretches.append((number, number))
    return spans


def _last_before(spans: Sequence[tuple[int, int]], context: int) -> int:
    """Return the last context before one in some spans, −1 if there is none."""
    place = bisect_left(spans, (context, 0)) - 1
    return min(spans[place][1], context - 1) if place >= 0 else -1
