"""What a session forgot at a compaction, what that cost, and what other ways would have held.

1. A *need* is a thing in a later call that only memory can supply (`needs`), and that stood in the
   text before the compaction. It belongs to the last compaction at which the model still had it.
2. It is *held* if it stands as a whole (`thing_index`) in what the model had right after: in the
   summary, what stayed and what the agent put back; for another way, in what that keeps.
3. It *came back* if the user, a tool or a file gave it again before the call.
4. Work was *done again* where results after the compaction repeat lines of results from before it
   that a way does not hold (`rereading`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from fdkvc.conversations.needs import setting_slots, things_of
from fdkvc.conversations.price import Rewrite, returned_tokens
from fdkvc.conversations.rereading import LineIndex, Reread, Returned, is_edit
from fdkvc.conversations.rules import Rule, rules_at
from fdkvc.conversations.session_text import ContextText, PlaceSet, span_kind
from fdkvc.conversations.sessions import Compaction, MadeCall, Session
from fdkvc.conversations.thing_index import Place, ThingIndex
from fdkvc.core.attention import Bools
from fdkvc.core.limits import MAX_SESSION_VALUES
from fdkvc.core.parameters import check_values
from fdkvc.core.transcripts import SpanKind, TooLargeError
from fdkvc.core.words import decimal
from fdkvc.engine.evidence import reread_once
from fdkvc.policies import Policy, read_policy, usable
from fdkvc.policies.ways import way_words

WAYS = (
    "reread(messages(fifo))",
    "reread(clear-results)",
    "shift",
    "sink",
    "sinks(weighted-recency)",
)
"""The ways that are compared with a recorded compaction by default."""

RECORDED = {"summary": "summary (recorded)", "cleared": "cleared results (recorded)"}
"""The label among the ways of what the session did, by the kind of its compaction."""

NO_SUMMARY = "what stayed (recorded)"
"""That label where the file has no summary."""

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


@dataclass(frozen=True)
class ModelLoss:
    """What a model lost under a way."""

    right: int
    """Values that it gets right, of those that it gets right with the full cache."""
    values: int
    """Values that it gets right with the full cache."""
    kl: float
    """The KL from the full cache's predictions, in nats a token."""

    @property
    def cell(self) -> str:
        """The cell of a table."""
        right = f"{self.right} of {self.values}, " if self.values else ""
        return f"{right}{decimal(self.kl, 2)}"


@dataclass(frozen=True, eq=False)
class Fitted:
    """What a way keeps of the text before a compaction."""

    label: str
    """The way in the user's words."""
    policy: str
    """The policy's name, "" for what the session did."""
    tokens: int
    """How many tokens stay, with those of a summary."""
    holds: tuple[bool, ...]
    """Whether it holds each of `Forgot.needs`."""
    redone: Reread
    """What came back of what it does not hold."""
    read_again: int
    """Tokens that the model has to read anew, from the first change of the text on."""
    rewrite: Rewrite | None
    """What it changed in a prefix cache; None if it keeps the keys and values of what stays."""
    reading: ModelLoss | None = None
    """What a model lost right after the compaction, if one read on."""


@dataclass(frozen=True, eq=False)
class Forgot:
    """What a compaction forgot."""

    session: Session
    number: int
    """The index of the compaction in the session."""
    size: int
    """Tokens to which the other ways fit the text."""
    needs: tuple[Need, ...]
    """The things that later calls needed, in the order of the first such calls."""
    returned: tuple[Returned, ...]
    """Lines of results from before that came back, held or not."""
    calls: tuple[int, int]
    """Later calls, until the next compaction, with a need; and all of them."""
    calls_to_edit: int | None
    """Calls before the first edit after it; None if there is none until the next compaction."""
    answers: tuple[int, ...]
    """The messages with the model's answers until the next compaction."""
    rules: tuple[Rule, ...] = ()
    """What the user had said as a rule."""
    ways: tuple[Fitted, ...] = ()
    """The ways; what the session did, if the file has it, is the first."""
    notes: tuple[str, ...] = ()
    """Sentences on what is not compared."""

    @property
    def before(self) -> int:
        """Tokens of the text before the compaction."""
        return self.session.tokens_of(self.compaction.context)

    @property
    def compaction(self) -> Compaction:
        """The compaction."""
        return self.session.compactions[self.number]

    @property
    def recorded(self) -> Fitted | None:
        """What the session did; None if that is not known."""
        return next((fitted for fitted in self.ways if not fitted.policy), None)

    def lost(self) -> list[Need]:
        """Return the values that the first way does not hold, the worst loss first."""
        if not self.ways:
            return []
        holds = self.ways[0].holds
        lost = [need for need, is_held in zip(self.needs, holds, strict=True) if not is_held]
        return sorted(lost, key=lambda need: need.weight, reverse=True)

    def holders(self, need: Need) -> list[str]:
        """Return the labels of the ways that hold a value."""
        place = self.needs.index(need)
        return [fitted.label for fitted in self.ways if fitted.holds[place]]


OnRead = Callable[[int, int], object]
"""Gets the number of tokens that a model has read, and the number of all."""

ReadOn = Callable[[Forgot, OnRead], Forgot]
"""Lets a model read on after a compaction, and returns the result with what the model lost."""


@dataclass(frozen=True)
class Recorded:
    """What the compactions of some conversations forgot, all together."""

    compactions: int
    needed: int
    """Values that later calls needed, at each compaction."""
    lost: int

    @classmethod
    def of(cls, sessions: Iterable[Session]) -> Recorded | None:
        """Return the totals of sessions; None if no compaction has what the model had after it."""
        compactions = needed = lost = 0
        for session in sessions:
            for result in forgot(session, ()):
                if result.recorded is not None:
                    compactions += 1
                    needed += len(result.needs)
                    lost += len(result.lost())
        return cls(compactions, needed, lost) if compactions else None


def check_ways(policies: Sequence[Policy]) -> None:
    """Raise a ValueError if a way stands twice, or cannot be compared at a size."""
    check_values("policy", [policy.name for policy in policies])
    compared = usable(policies)
    for policy in policies:
        if policy not in compared:
            raise ValueError(
                f"policy {policy.name!r} cannot be compared: it keeps everything or sees what "
                "comes next"
            )


def forgot(
    session: Session,
    ways: Sequence[Policy] | None = None,
    on_progress: Callable[[int, int], None] = lambda number, total: None,
    numbers: Sequence[int] | None = None,
) -> Iterator[Forgot]:
    """Yield what each compaction of a session forgot, and what other ways would have held.

    By default of all compactions, otherwise of those with these `numbers`. `on_progress` gets how
    many compactions are done, and how many there are. Raises a ValueError if the session has more
    than `MAX_SESSION_TOKENS`, or for `check_ways`.
    """
    session.checked(session.messages)
    policies = [*map(read_policy, WAYS)] if ways is None else ways
    check_ways(policies)
    total = len(session.compactions)
    if not total:
        return
    on_progress(0, total)
    history = _History(session)
    for number in range(total) if numbers is None else numbers:
        on_progress(number, total)
        needs, returned = history.needs[number], history.returned[number]
        result = Forgot(
            session,
            number,
            _size(session, number),
            tuple(needs),
            tuple(returned),
            history.call_counts(number),
            history.calls_to_edit(number),
            history.answers(number),
            rules_at(session, number),
        )
        compared, notes = _compared(result, policies)
        yield replace(result, ways=tuple(compared), notes=(*history.notes, *notes))


# --------------------------------------------------------------------- what was needed, came back


class _Use(NamedTuple):
    """A thing in a call after a compaction."""

    slot: str
    context: int
    message: int
    number: int
    """The number of the call in its message."""
    method: str


class _History:
    """What came after the compactions of a session, each message read once."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.notes: list[str] = []
        self.needs: list[list[Need]] = [[] for _ in session.compactions]
        self.returned: list[list[Returned]] = [[] for _ in session.compactions]
        self._stayed = [frozenset(row.stayed) for row in session.compactions]
        self._calls = [[*self._calls_of(number)] for number in range(len(session.contexts))]
        self._needing: list[set[tuple[int, int]]] = [set() for _ in session.contexts]
        self._spans = _context_spans(session)
        self._find_needs()
        self._find_returned()

    def _new_messages(self, context: int) -> Sequence[int]:
        """Return the messages of a context after those that stayed from the one before."""
        first = len(self.session.compactions[context - 1].stayed) if context else 0
        return self.session.contexts[context][first:]

    def _calls_of(self, context: int) -> Iterator[tuple[int, int, MadeCall]]:
        for index in self._new_messages(context):
            for number, call in enumerate(self.session.messages[index].calls):
                yield index, number, call

    def call_counts(self, number: int) -> tuple[int, int]:
        """Return the calls with a need until the next compaction, and all calls."""
        return len(self._needing[number + 1]), len(self._calls[number + 1])

    def calls_to_edit(self, number: int) -> int | None:
        """Return the number of calls before the first edit after a compaction."""
        methods = [call.method for _, _, call in self._calls[number + 1]]
        return next((place for place, method in enumerate(methods) if is_edit(method)), None)

    def answers(self, number: int) -> tuple[int, ...]:
        """Return the messages with the model's answers until the next compaction."""
        messages = self.session.messages
        new = self._new_messages(number + 1)
        return tuple(index for index in new if span_kind(messages[index]) == "assistant")

    def _contexts_of(self, places: Iterable[Place]) -> list[tuple[int, int]]:
        """Return the spans of contexts that have any of some places, in order."""
        spans = {span for place in places for span in self._spans[place.message]}
        joined: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1] + 1:
                first, last = joined[-1][0], max(joined.pop()[1], last)
            joined.append((first, last))
        return joined

    def _within(self, places: Iterable[Place], context: int) -> tuple[Place, ...]:
        """Return the places that were in a context."""
        spans = self._spans
        return tuple(
            place
            for place in places
            if any(first <= context <= last for first, last in spans[place.message])
        )

    def _uses(self) -> dict[tuple[str, str, bool], list[_Use]]:
        """Return the uses of each thing in the calls after the first compaction."""
        settings = setting_slots(call for rows in self._calls for _, _, call in rows)
        uses: dict[tuple[str, str, bool], list[_Use]] = {}
        beyond = set[str]()
        for context, rows in enumerate(self._calls):
            for message, number, call in rows if context else ():
                for thing in things_of(call, settings):
                    key = thing.value, thing.context_word, thing.is_name
                    if key in uses or len(uses) < MAX_SESSION_VALUES:
                        use = _Use(thing.slot, context, message, number, call.method)
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
        for (value, context_word, is_name), rows in uses.items():
            places = index.places(value, context_word)
            if is_name:  # what only the agent wrote is no name that it was told
                places = [place for place in places if not self._is_call(place)]
            spans = self._contexts_of(places)
            by_context: dict[int, list[_Use]] = {}
            for use in rows:
                context = _last_before(spans, use.context)
                if context >= 0:
                    by_context.setdefault(context, []).append(use)
                    self._needing[use.context].add((use.message, use.number))
            for context, context_uses in by_context.items():
                self.needs[context].append(self._need(value, context_uses, context, places))
        for needs in self.needs:
            needs.sort(key=lambda need: need.message)

    def _is_call(self, place: Place) -> bool:
        return span_kind(self.session.messages[place.message], place.start) == "call"

    def _need(
        self, value: str, uses: Sequence[_Use], context: int, places: Sequence[Place]
    ) -> Need:
        """Return what calls needed of a context that a compaction ended."""
        first, calls = uses[0], {(use.message, use.number) for use in uses}
        stood = self._within(places, context)
        source = stood[-1]
        row = self.session.messages[source.message]
        kind = SUMMARY if source.message in self.session.summaries else span_kind(row, source.start)
        stayed = self._stayed[context]
        return Need(
            value=value,
            method=first.method,
            slot=first.slot,
            message=first.message,
            calls=len(calls),
            source=source.message,
            source_kind=kind,
            tool=row.turn.tool,
            giver=self._giver(first, places),
            places=stood,
            stays=any(place.message in stayed for place in places),
        )

    def _giver(self, use: _Use, places: Sequence[Place]) -> int:
        """Return the last message before a call that gave it a thing again, −1 if none did."""
        new = self._new_messages(use.context)
        first, end = (bisect_left(places, (message,)) for message in (new[0], use.message))
        for place in reversed(places[first:end]):
            is_agent = span_kind(self.session.messages[place.message]) in AGENT
            if not is_agent and self._within([place], use.context):
                return place.message
        return -1

    def _find_returned(self) -> None:
        """Give the lines that came back to the last compaction before which they stood."""
        index = LineIndex(self.session)

        def is_result(place: Place) -> bool:
            return self.session.messages[place.message].turn.kind == "result"

        spans_of: dict[int, list[tuple[int, int]]] = {}
        standing: dict[tuple[int, int], tuple[tuple[Place, ...], bool]] = {}
        for context in range(1, len(self.session.contexts)):
            for message in self._new_messages(context):
                turn = self.session.messages[message].turn
                if turn.kind != "result" or is_edit(turn.tool):
                    continue
                for key, tokens in index.lines_of(message):
                    if key not in spans_of:
                        spans_of[key] = self._contexts_of(filter(is_result, index.places[key]))
                    earlier = _last_before(spans_of[key], context)
                    if earlier < 0:
                        continue
                    if (key, earlier) not in standing:
                        places, stayed = index.places[key], self._stayed[earlier]
                        stays = any(place.message in stayed for place in places)
                        standing[key, earlier] = self._within(places, earlier), stays
                    line = Returned(message, key, tokens, *standing[key, earlier])
                    self.returned[earlier].append(line)


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


# ------------------------------------------------------------------------------------------- ways


def _compared(result: Forgot, policies: Sequence[Policy]) -> tuple[list[Fitted], list[str]]:
    """Return what the session and each way keep, and sentences on ways that are not compared."""
    compaction, ways, notes = result.compaction, list[Fitted](), list[str]()
    if compaction.kind in RECORDED and compaction.stayed:
        ways.append(_recorded(result))
    if not result.size:
        notes.append("Nothing stayed and no size is recorded, so no other way is compared.")
        return ways, notes
    text = ContextText.of([result.session.messages[index] for index in compaction.context])
    needs = PlaceSet(text, compaction.context, [need.places for need in result.needs])
    line_places = {line.key: line.places for line in result.returned}
    lines = PlaceSet(text, compaction.context, [*line_places.values()])
    for policy in policies if text.turns else ():
        label = way_words(policy.name)
        try:
            stays = text.kept(policy, result.size)
        except TooLargeError as error:
            notes.append(f"“{label}” is not compared: {error}.")
            continue
        tokens = int(np.count_nonzero(stays))
        if tokens > result.size:
            notes.append(f"“{label}” is not compared: it keeps {tokens:,} of {result.size:,}.")
            continue
        held_lines = dict(zip(line_places, lines.held(stays), strict=True))
        lost_lines = [line for line in result.returned if not held_lines[line.key]]
        ways.append(_fitted(result, policy, text, stays, needs.held(stays), lost_lines))
    return ways, notes


def _fitted(
    result: Forgot,
    policy: Policy,
    text: ContextText,
    stays: Bools,
    holds: Sequence[bool],
    lost_lines: Sequence[Returned],
) -> Fitted:
    """Return what a policy keeps of the text, of which these tokens (N,) stay."""
    kept_tokens = np.flatnonzero(stays)
    changed = reread_once(policy, np.arange(len(text)), kept_tokens, text.born, text.kinds)
    rewrite = (
        _rewrite(result, len(kept_tokens), changed, 0, lost_lines) if policy.reads_again else None
    )
    return Fitted(
        way_words(policy.name),
        policy.name,
        len(kept_tokens),
        tuple(holds),
        Reread.of(lost_lines),
        changed,
        rewrite,
    )


def _rewrite(
    result: Forgot, tokens: int, changed: int, summary: int, lost_lines: Sequence[Returned]
) -> Rewrite:
    """Return what a way changed in a prefix cache."""
    rows = [(line.message, line.tokens) for line in lost_lines]
    answers = result.answers
    returned = returned_tokens(rows, answers)
    return Rewrite(result.before, tokens, min(changed, tokens), summary, len(answers), returned)


def _size(session: Session, number: int) -> int:
    """Return the tokens right after a compaction; 0 if that is not known."""
    compaction = session.compactions[number]
    size = compaction.size or session.tokens_of(compaction.stayed)
    if size:
        return size
    # If no message stayed in the file, take the share that the agent recorded.
    earlier, later = compaction.recorded
    if not earlier or not later or later >= earlier:
        return 0
    return round(session.tokens_of(compaction.context) * later / earlier)


def _recorded(result: Forgot) -> Fitted:
    """Return what the model had right after a compaction of the session."""
    compaction = result.compaction
    has_summary = compaction.summary or compaction.kind != "summary"
    label = RECORDED[compaction.kind] if has_summary else NO_SUMMARY
    session, stayed = result.session, compaction.stayed
    tokens = session.tokens_of(stayed)
    # What is the same up to the first change stays in a prefix cache.
    unchanged = takewhile(
        lambda pair: pair[0] == pair[1], zip(stayed, compaction.context, strict=False)
    )
    changed = tokens - session.tokens_of(tuple(message for message, _ in unchanged))
    lost_lines = [line for line in result.returned if not line.stays]
    return Fitted(
        label,
        "",
        tokens,
        tuple(need.stays for need in result.needs),
        Reread.of(lost_lines),
        changed,
        _rewrite(result, tokens, changed, session.tokens_of(compaction.summary), lost_lines),
    )
