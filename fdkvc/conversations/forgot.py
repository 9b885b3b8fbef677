"""What a session forgot at a compaction, what that cost, and what other ways would have held.

A value is *needed* if it is an argument of a call after the compaction and was in the text before
it. It is *held* if one of its mentions is, with all its words, in what the model had right after:
in the summary or what stayed, or in what another way keeps of the same text at the same size. Work
is *done again* where a call has the name and the arguments of one before the compaction.

`forgot` finds both for each compaction of a session (`_needs`, `_repeats`), then says which of them
each way holds (`_compared`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

import numpy as np

from fdkvc.conversations.formats.chat import is_demanded, values_in
from fdkvc.conversations.mentions import MentionFinder, wordings_of
from fdkvc.conversations.session_text import ContextText, span_kind
from fdkvc.conversations.sessions import Compaction, MadeCall, Session
from fdkvc.core.limits import MAX_DEMANDS, MAX_SESSION_VALUES, MAX_VALUE_CHARACTERS
from fdkvc.core.transcripts import Mention, SpanKind, TooLargeError
from fdkvc.core.words import decimal
from fdkvc.engine.evidence import reread_once
from fdkvc.policies import Policy, read_policy
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

SUMMARY = "summary"
"""The giver of a value that is in an earlier summary; otherwise it is a kind of span."""


@dataclass(frozen=True)
class Need:
    """A value that calls after a compaction needed, and that was in the text before it."""

    value: str
    """The value as the call has it."""
    method: str
    """The tool of the first call that needed it."""
    slot: str
    """The name of its argument."""
    needed: int
    """The message with that call."""
    calls: int
    """How many calls needed it."""
    given: int
    """The last message before the compaction that has it."""
    given_by: SpanKind | str
    """What wrote it there: a kind of span, or `SUMMARY`."""
    tool: str
    """The tool whose result gave it, "" if none did."""
    again: int
    """The last message after the compaction, and before the call, that gave it again; −1 if none
    did."""
    mentions: tuple[Mention, ...]
    """Its mentions in the context before the compaction."""

    @property
    def weight(self) -> tuple[bool, int, int]:
        """How bad its loss is: worse if more calls need it, and if it is older.

        Short numbers come last: they are often elsewhere with another meaning.
        """
        short_number = self.value.isdigit() and len(self.value) <= 3
        return not short_number, self.calls, self.needed - self.given


@dataclass(frozen=True)
class Repeat:
    """A call after a compaction that was made before it with the same arguments."""

    message: int
    """The message with the call."""
    method: str
    """The called tool."""
    result: int
    """The message with the result of the last such call before it, −1 if there is none."""
    tokens: int
    """Tokens of the result that came again."""


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
    held: tuple[bool, ...]
    """Whether each of `Forgot.needs` is held."""
    repeated: tuple[bool, ...]
    """Whether each of `Forgot.repeats` would be made again, because its first result left."""
    read_again: int
    """Tokens that the model has to read again."""
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
    """The values that later calls needed, in the order of the first such calls."""
    repeats: tuple[Repeat, ...]
    """The calls that were made again, in order."""
    ways: tuple[Fitted, ...] = ()
    """The ways; what the session did, if it did anything, is the first."""
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

    def lost(self) -> list[Need]:
        """Return the values that the first way does not hold, the worst loss first."""
        held = self.ways[0].held if self.ways else (True,) * len(self.needs)
        lost = [need for need, stays in zip(self.needs, held, strict=True) if not stays]
        return sorted(lost, key=lambda need: need.weight, reverse=True)

    def again(self, way: Fitted) -> tuple[int, int]:
        """Return the number of calls that a way makes again, and the tokens of their results."""
        tokens = [row.tokens for row, made in zip(self.repeats, way.repeated, strict=True) if made]
        return len(tokens), sum(tokens)

    def holders(self, need: Need) -> list[str]:
        """Return the labels of the ways that hold a value."""
        place = self.needs.index(need)
        return [way.label for way in self.ways if way.held[place]]


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
        """Return the totals of sessions; None if they have no compaction."""
        results = [result for session in sessions for result in forgot(session, ())]
        needed = sum(len(result.needs) for result in results)
        lost = sum(len(result.lost()) for result in results)
        return cls(len(results), needed, lost) if results else None


def forgot(
    session: Session,
    ways: Sequence[Policy] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    numbers: Sequence[int] | None = None,
) -> Iterator[Forgot]:
    """Yield what each compaction of a session forgot, and what other ways would have held.

    By default of all compactions, otherwise of those with these `numbers`. `on_progress` gets how
    many compactions are done, and how many there are. Raises a ValueError if the session has more
    than `MAX_SESSION_TOKENS`.
    """
    session.checked(session.messages)
    policies = [*map(read_policy, WAYS)] if ways is None else ways

    @cache
    def finder(context: int) -> MentionFinder:
        return _finder(session, session.contexts[context])

    for number in range(len(session.compactions)) if numbers is None else numbers:
        on_progress(number, len(session.compactions))
        needs, notes = _needs(session, number, finder)
        repeats = tuple(_repeats(session, number))
        result = Forgot(session, number, _size(session, number), needs, repeats)
        compared, not_compared = _compared(result, policies)
        yield replace(result, ways=tuple(compared), notes=(*notes, *not_compared))


# ------------------------------------------------------------------------- values that are needed


def _later_calls(session: Session, number: int) -> Iterator[tuple[int, int, MadeCall]]:
    """Yield each call after a compaction, with its context and message."""
    for context in range(number + 1, len(session.contexts)):
        # What stayed is not new: its calls were made before.
        first = len(session.compactions[context - 1].stayed)
        for index in session.contexts[context][first:]:
            for call in session.messages[index].calls:
                yield context, index, call


def _needs(
    session: Session, number: int, finder: Callable[[int], MentionFinder]
) -> tuple[tuple[Need, ...], list[str]]:
    """Return the values that later calls need and that were in the text, and notes on limits."""
    # 1. The uses of each value in later calls, within limits.
    uses_of: dict[str, list[tuple[int, int, str, str]]] = {}
    long, many = set[str](), set[str]()
    for context, index, call in _later_calls(session, number):
        for slot, value in values_in(call.arguments if isinstance(call.arguments, dict) else {}):
            if not is_demanded(value):
                continue
            if len(value) > MAX_VALUE_CHARACTERS:
                long.add(value)
            elif value in uses_of or len(uses_of) < MAX_SESSION_VALUES:
                uses_of.setdefault(value, []).append((context, index, call.method, slot))
            else:
                many.add(value)
    limits = (
        (f"Arguments of more than {MAX_VALUE_CHARACTERS:,} characters", long),
        (f"Values after the first {MAX_SESSION_VALUES:,}", many),
    )
    notes = [f"{what} are not looked for: {len(values):,}." for what, values in limits if values]
    # 2. Those that were in the text before: who gave each last, and whether it was given again.
    needs = []
    before = session.compactions[number].context
    for value, uses in uses_of.items():
        wordings = wordings_of(value)
        mentions = finder(number).mentions(wordings, before=len(before))
        if not mentions:
            continue
        context, index, method, slot = uses[0]
        given = before[mentions[-1].turn]
        row = session.messages[given]
        kind: SpanKind | str = span_kind(row, mentions[-1].start)
        if any(given in compaction.summary for compaction in session.compactions):
            kind = SUMMARY
        again = _given_again(session, number, context, index, wordings, finder)
        calls = len({(needed, used) for _, needed, used, _ in uses})
        needs.append(
            Need(value, method, slot, index, calls, given, kind, row.turn.tool, again, mentions)
        )
    return tuple(needs), notes


def _given_again(
    session: Session,
    number: int,
    context: int,
    message: int,
    wordings: Iterable[str],
    finder: Callable[[int], MentionFinder],
) -> int:
    """Return the last message after a compaction and before a call that has a value, or −1."""
    for later in range(context, number, -1):  # contexts, from that of the call back
        indices = session.contexts[later]
        end = indices.index(message) if later == context else len(indices)
        mentions = finder(later).mentions(wordings, before=end)
        # Messages that stayed did not give it again.
        stayed = len(session.compactions[later - 1].stayed)
        new = [mention.turn for mention in mentions if mention.turn >= stayed]
        if new:
            return indices[new[-1]]
    return -1


def _repeats(session: Session, number: int) -> Iterator[Repeat]:
    """Yield the calls until the next compaction that were made before this one."""
    after = session.contexts[number + 1][len(session.compactions[number].stayed) :]
    results: dict[str, int] = {}  # by call, the message with the last result
    for index in range(after[0] if after else 0):
        for call in session.messages[index].calls:
            results[_canonical(call)] = call.result
    for index in after:
        for call in session.messages[index].calls:
            earlier = results.get(_canonical(call))
            if earlier is not None:
                tokens = session.messages[call.result].tokens if call.result >= 0 else 0
                yield Repeat(index, call.method, earlier, tokens)


def _canonical(call: MadeCall) -> str:
    """Return a text that is the same for calls with the same name and arguments."""
    return f"{call.method} {json.dumps(call.arguments, sort_keys=True)}"


# ------------------------------------------------------------------------------------------- ways


def _compared(result: Forgot, policies: Sequence[Policy]) -> tuple[list[Fitted], list[str]]:
    """Return what the session and each way keep, and sentences on ways that are not compared."""
    compaction, ways, notes = result.compaction, list[Fitted](), list[str]()
    # 1. What the session did.
    if compaction.kind in RECORDED:
        ways.append(_recorded(result))
    # 2. What each policy keeps of the same text at the same size.
    text = ContextText.of([result.session.messages[index] for index in compaction.context])
    if not result.size:
        notes.append("Nothing stayed and no size is recorded, so no other way is compared.")
    place = {message: turn for turn, message in enumerate(compaction.context)}
    for policy in policies if result.size and text.turns else ():
        try:
            kept = text.kept(policy, result.size)
        except TooLargeError as error:
            notes.append(f"“{way_words(policy.name)}” is not compared: {error}.")
            continue
        held = tuple(
            any(kept[text.tokens_of(mention)].all() for mention in need.mentions)
            for need in result.needs
        )
        # A call is made again unless the whole message with its first result stays.
        whole = [kept[first:end].all() for first, end in pairwise(text.starts)]
        repeated = tuple(
            repeat.result not in place or not whole[place[repeat.result]]
            for repeat in result.repeats
        )
        stays = np.flatnonzero(kept)
        read_again = reread_once(policy, np.arange(len(text)), stays, text.born, text.kinds)
        label = way_words(policy.name)
        ways.append(Fitted(label, policy.name, len(stays), held, repeated, read_again))
    return ways, notes


def _size(session: Session, number: int) -> int:
    """Return the tokens right after a compaction; 0 if that is not known."""
    compaction = session.compactions[number]
    size = compaction.size or session.tokens_of(compaction.stayed)
    if size:
        return size
    # If no message stayed in the file, take the share that the agent recorded.
    before, after = compaction.recorded
    if not before or not after or after >= before:
        return 0
    return round(session.tokens_of(compaction.context) * after / before)


def _recorded(result: Forgot) -> Fitted:
    """Return what the model had right after a compaction of the session."""
    session, compaction = result.session, result.compaction
    finder = _finder(session, compaction.stayed)
    mentions = (
        finder.mentions(wordings_of(need.value), before=len(compaction.stayed))
        for need in result.needs
    )
    tokens = session.tokens_of(compaction.stayed)
    repeated = (True,) * len(result.repeats)  # these calls were made again
    held = tuple(map(bool, mentions))
    return Fitted(RECORDED[compaction.kind], "", tokens, held, repeated, tokens)


def _finder(session: Session, messages: Sequence[int]) -> MentionFinder:
    """Return a finder of values in messages."""
    texts = [session.messages[index].turn.text for index in messages] or [""]
    # A context is searched for each value: of its own compaction, of earlier ones, and as stayed.
    return MentionFinder(texts, session.name, MAX_DEMANDS + 3 * MAX_SESSION_VALUES)
