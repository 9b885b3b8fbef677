"""What a session forgot at a compaction, what that cost, and what other ways would have held.

A value is an argument of a call after the compaction that stood in the text before it. It is held
if all words of one of its mentions are among what the model had right after: in the summary or in
what stayed, or in what another way keeps of the same text at the same size. Work is done again
where a call has the name and the arguments of one before the compaction.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from fdkvc.conversations.formats.chat import is_demanded, values_in
from fdkvc.conversations.mentions import MentionFinder, wordings_of
from fdkvc.conversations.session_text import Text, span_kind
from fdkvc.conversations.sessions import Compaction, MadeCall, Session
from fdkvc.core.limits import (
    MAX_DEMANDS,
    MAX_SESSION_TOKENS,
    MAX_SESSION_VALUES,
    MAX_VALUE_CHARACTERS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.transcripts import Mention, SpanKind, TooLargeError
from fdkvc.engine.evidence import reread_once
from fdkvc.policies import Policy, read_policy
from fdkvc.policies.reread import Reread

WAYS = ("reread(messages(fifo))", "reread(clear-results)", "shift", "sink", "regions")
"""The ways that are compared with a recorded compaction by default."""

RECORDED = {"summary": "summary (recorded)", "cleared": "cleared results (recorded)"}
"""What a compaction of the session is called among the ways, by its kind."""

SUMMARY = "summary"
"""Who gave a value that stands in an earlier summary; else it is a kind of span."""


@dataclass(frozen=True)
class Need:
    """A value that calls after a compaction needed, and that stood in the text before it."""

    value: str
    """As the call has it."""
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
    """The last message after the compaction, and before the call, that gave it again; −1: none."""
    mentions: tuple[Mention, ...]
    """In the context before the compaction."""

    @property
    def weight(self) -> tuple[bool, int, int]:
        """What makes a loss worse: it is no short number, more calls need it, it is older."""
        return not self.value.isdigit() or len(self.value) > 3, self.calls, self.needed - self.given


@dataclass(frozen=True)
class Repeat:
    """A call after a compaction that was made before it with the same arguments."""

    message: int
    """The message with the call."""
    method: str
    """The called tool."""
    earlier: int
    """The message with the last such call before the compaction."""
    result: int
    """The message with the result of that, −1 if there is none."""
    tokens: int
    """Of the result that came again."""


@dataclass(frozen=True, eq=False)
class Way:
    """What a way keeps of the text before a compaction."""

    label: str
    """In the user's words."""
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


@dataclass(frozen=True, eq=False)
class Forgot:
    """What a compaction forgot."""

    session: Session
    """Its session."""
    number: int
    """Its place among the session's compactions, from 0."""
    size: int
    """Tokens to which the other ways fit the text."""
    needs: tuple[Need, ...]
    """In the order of the calls that needed them first."""
    repeats: tuple[Repeat, ...]
    """In the order of the calls."""
    ways: tuple[Way, ...]
    """What the session did first, if it did anything."""
    notes: tuple[str, ...] = ()
    """Sentences on what is not compared."""

    @property
    def before(self) -> int:
        """Tokens of the text before."""
        return self.session.tokens_of(self.compaction.context)

    @property
    def compaction(self) -> Compaction:
        """The compaction."""
        return self.session.compactions[self.number]

    def lost(self, way: int = 0) -> list[Need]:
        """Return the values that a way does not hold, the worst loss first."""
        gone = [
            need for need, held in zip(self.needs, self.ways[way].held, strict=True) if not held
        ]
        return sorted(gone, key=lambda need: need.weight, reverse=True)

    def holders(self, need: Need) -> list[str]:
        """Return the labels of the ways that hold a value."""
        place = self.needs.index(need)
        return [way.label for way in self.ways if way.held[place]]


def forgot(
    session: Session,
    ways: Sequence[Policy] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Iterator[Forgot]:
    """Yield what each compaction of a session forgot, and what other ways would have held.

    `on_progress` gets the compactions that are done and all of them. Raises a ValueError if the
    session has more than `MAX_SESSION_TOKENS`.
    """
    tokens = sum(message.tokens for message in session.messages)
    name = f"{session.name}: it has"
    check_most(name, tokens, "tokens", MAX_SESSION_TOKENS)
    policies = [*map(read_policy, WAYS)] if ways is None else ways

    @cache
    def finder(context: int) -> MentionFinder:
        messages = (session.messages[index] for index in session.contexts[context])
        # A value is looked for in each context from that on.
        most = MAX_DEMANDS * (1 + 3 * MAX_SESSION_VALUES // MAX_DEMANDS)
        return MentionFinder([row.turn.text for row in messages], session.name, most)

    for number in range(len(session.compactions)):
        on_progress(number, len(session.compactions))
        needs, notes = _needs(session, number, finder)
        repeats = tuple(_repeats(session, number))
        compared, not_compared, size = _compared(session, number, policies, needs, repeats)
        yield Forgot(session, number, size, needs, repeats, compared, (*notes, *not_compared))


# ------------------------------------------------------------------------- values that are needed


def _later_calls(session: Session, number: int) -> Iterator[tuple[int, int, MadeCall]]:
    """Yield each call after a compaction: its context, its message, and it."""
    for context in range(number + 1, len(session.contexts)):
        first = len(session.compactions[context - 1].stayed)
        for index in session.contexts[context][first:]:
            for call in session.messages[index].calls:
                yield context, index, call


def _needs(
    session: Session, number: int, finder: Callable[[int], MentionFinder]
) -> tuple[tuple[Need, ...], list[str]]:
    """Return the values that later calls need and that stood in the text, and what is left out."""
    needing: dict[str, list[tuple[int, int, str, str]]] = {}
    long, many = set[str](), set[str]()
    for context, index, call in _later_calls(session, number):
        for slot, value in values_in(call.arguments if isinstance(call.arguments, dict) else {}):
            if not is_demanded(value):
                continue
            if len(value) > MAX_VALUE_CHARACTERS:
                long.add(value)
            elif value in needing or len(needing) < MAX_SESSION_VALUES:
                needing.setdefault(value, []).append((context, index, call.method, slot))
            else:
                many.add(value)
    notes = []
    if long:
        notes.append(
            f"Arguments of more than {MAX_VALUE_CHARACTERS:,} characters are not looked for: "
            f"{len(long):,}."
        )
    if many:
        notes.append(
            f"Only the first {MAX_SESSION_VALUES:,} values are looked for; {len(many):,} are not."
        )
    needs = []
    before = session.compactions[number].context
    for value, uses in needing.items():
        wordings = wordings_of(value)
        mentions = finder(number).mentions(wordings, before=len(before))
        if not mentions:
            continue
        context, index, method, slot = uses[0]
        given = before[mentions[-1].turn]
        kind, tool = _giver(session, given, mentions[-1].start)
        again = _given_again(session, number, context, index, wordings, finder)
        calls = len({(needed, used) for _, needed, used, _ in uses})
        need = Need(value, method, slot, index, calls, given, kind, tool, again, mentions)
        needs.append(need)
    return tuple(needs), notes


def _giver(session: Session, message: int, character: int) -> tuple[SpanKind | str, str]:
    """Return what wrote a character of a message, and the tool if it is a result."""
    if any(message in compaction.summary for compaction in session.compactions):
        return SUMMARY, ""
    row = session.messages[message]
    return span_kind(row, character), row.tool


def _given_again(
    session: Session,
    number: int,
    context: int,
    message: int,
    wordings: Iterable[str],
    finder: Callable[[int], MentionFinder],
) -> int:
    """Return the last message after a compaction and before a call that has a value, else −1."""
    for later in range(context, number, -1):
        indices = session.contexts[later]
        end = indices.index(message) if later == context else len(indices)
        mentions = finder(later).mentions(wordings, before=end)
        stayed = len(session.compactions[later - 1].stayed)
        new = [mention.turn for mention in mentions if mention.turn >= stayed]
        if new:
            return indices[new[-1]]
    return -1


def _repeats(session: Session, number: int) -> Iterator[Repeat]:
    """Yield the calls until the next compaction that were made before this one."""
    after = session.contexts[number + 1][len(session.compactions[number].stayed) :]
    earlier: dict[str, tuple[int, int]] = {}
    for index in range(after[0] if after else 0):
        for call in session.messages[index].calls:
            earlier[_canonical(call)] = index, call.result
    for index in after:
        for call in session.messages[index].calls:
            if (found := earlier.get(_canonical(call))) is not None:
                tokens = session.messages[call.result].tokens if call.result >= 0 else 0
                yield Repeat(index, call.method, *found, tokens)


def _canonical(call: MadeCall) -> str:
    """Return a text that calls of the same name and arguments share."""
    return f"{call.method} {json.dumps(call.arguments, sort_keys=True)}"


# ------------------------------------------------------------------------------------------- ways


def _compared(
    session: Session,
    number: int,
    policies: Sequence[Policy],
    needs: Sequence[Need],
    repeats: Sequence[Repeat],
) -> tuple[tuple[Way, ...], list[str], int]:
    """Return what the session and each way keep, sentences on others, and the size of the ways."""
    compaction = session.compactions[number]
    text = Text.of([session.messages[index] for index in compaction.context])
    size = _size(session, compaction, text)
    ways, notes = [], list[str]()
    if compaction.kind in RECORDED:
        ways.append(_recorded(session, compaction, needs, repeats))
    place = {message: turn for turn, message in enumerate(compaction.context)}
    for policy in policies:
        if not size:
            notes.append("Nothing stayed and no size is recorded, so no other way is compared.")
            break
        if not text.turns:
            break
        try:
            kept = text.kept(policy, size)
        except TooLargeError as error:
            notes.append(f"{policy.title} is not compared: {error}.")
            continue
        held = tuple(
            any(kept[text.tokens_of(mention)].all() for mention in need.mentions) for need in needs
        )
        repeated = tuple(
            repeat.result not in place or not kept[text.of_turn(place[repeat.result])].all()
            for repeat in repeats
        )
        stays = np.flatnonzero(kept)
        read_again = reread_once(policy, np.arange(len(text)), stays, text.born, text.kinds)
        label = (policy.policy if isinstance(policy, Reread) else policy).title
        ways.append(Way(label, policy.name, int(kept.sum()), held, repeated, read_again))
    return tuple(ways), notes, size


def _size(session: Session, compaction: Compaction, text: Text) -> int:
    """Return the tokens right after a compaction; if nothing stayed, by the recorded share."""
    if size := compaction.size or session.tokens_of(compaction.stayed):
        return size
    before, after = compaction.recorded
    return round(len(text) * after / before) if before and after and after < before else 0


def _recorded(
    session: Session, compaction: Compaction, needs: Sequence[Need], repeats: Sequence[Repeat]
) -> Way:
    """Return what the model had right after a compaction of the session."""
    messages = [session.messages[index] for index in compaction.stayed]
    most = MAX_DEMANDS * (1 + MAX_SESSION_VALUES // MAX_DEMANDS)
    finder = MentionFinder([row.turn.text for row in messages] or [""], session.name, most)
    held = tuple(
        bool(finder.mentions(wordings_of(need.value), before=len(messages))) for need in needs
    )
    tokens = session.tokens_of(compaction.stayed)
    label = RECORDED[compaction.kind]
    return Way(label, "", tokens, held, (True,) * len(repeats), tokens)
