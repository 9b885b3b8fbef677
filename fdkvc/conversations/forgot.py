"""What a session forgot at a compaction, what that cost, and what other ways would have held.

A value is an argument of a call after the compaction that stood in the text before it. It is held
if all words of one of its mentions are among what the model had right after: in the summary or in
what stayed, or in what another way keeps of the same text at the same size. Work is done again
where a call has the name and the arguments of one before the compaction.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fdkvc.conversations.formats.chat import is_demanded, values_in
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.conversations.mentions import MentionFinder, wordings_of
from fdkvc.conversations.sessions import Compaction, MadeCall, Message, Session
from fdkvc.core.attention import SPEAKERS, Bools, Floats, Ints, word_id
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.limits import (
    MAX_DEMANDS,
    MAX_SESSION_TOKENS,
    MAX_SESSION_VALUES,
    MAX_TOKENS,
    MAX_VALUE_CHARACTERS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.scripts import word_spans
from fdkvc.core.token_traits import token_traits, word_surprisal
from fdkvc.core.transcripts import Mention, SpanKind, TooLargeError, Transcript
from fdkvc.core.words import count
from fdkvc.engine.fit import fit, remembers
from fdkvc.policies import Policy, read_policy

if TYPE_CHECKING:
    import pandas as pd

WAYS = ("fifo", "shift", "sink")
"""The ways that are compared with a recorded compaction by default."""

RECORDED = {"summary": "summary (recorded)", "cleared": "cleared results (recorded)"}
"""What a compaction of the session is called among the ways, by its kind."""

SUMMARY = "summary"
"""Who gave a value that stands in an earlier summary; else it is a kind of span."""

WORST = 5

LOSSES = (
    *("value", "given by", "tool", "given", "messages before", "needed", "call", "slot", "calls"),
    *("given again", "held by"),
)
WAYS_COLUMNS = (
    *("way", "policy", "tokens", "values", "held", "calls again", "tokens again"),
    "read again",
)


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


def span_kind(message: Message, character: int = -1) -> SpanKind:
    """Return who or what wrote a character of a message, by default one after its calls."""
    if 0 <= character < message.turn.call_characters:
        return "call"
    if message.turn.kind is not None:
        return message.turn.kind
    return "user" if message.turn.speaker == "user" else "assistant"


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
        read_again = read_after_change(kept)
        label = policy.title
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


@dataclass(frozen=True, eq=False)
class Text:
    """The messages of a context as tokens: words and punctuation marks."""

    turns: tuple[Message, ...]
    bounds: tuple[int, ...]
    """The first token of each message, and the number of tokens."""

    @classmethod
    def of(cls, messages: Sequence[Message]) -> Text:
        """Return the text of messages."""
        counts = [message.tokens for message in messages]
        return cls(tuple(messages), (0, *np.cumsum(counts, dtype=np.intp).tolist()))

    def __len__(self) -> int:
        """Return the number of tokens."""
        return self.bounds[-1]

    def of_turn(self, turn: int) -> slice:
        """Return the tokens of a message."""
        return slice(self.bounds[turn], self.bounds[turn + 1])

    def tokens_of(self, mention: Mention) -> slice:
        """Return the tokens that a mention's characters belong to."""
        starts, ends = self._spans(mention.turn)
        first = self.bounds[mention.turn]
        low = int(np.searchsorted(ends, mention.start, "right"))
        return slice(first + low, first + int(np.searchsorted(starts, mention.end)))

    def kept(self, policy: Policy, size: int) -> Bools:
        """Return which tokens (N,) stay when a policy fits the text into a size at once.

        Raises a TooLargeError if the policy needs vectors or remembers earlier turns, and the text
        is too long for that.
        """
        by_vectors = not VECTORS.isdisjoint(policy.looks_at)
        if by_vectors or remembers(policy):
            needs = "vectors" if by_vectors else "what it stored of earlier turns"
            has = f"it decides by {needs}, and the text has"
            check_most(has, len(self), "tokens", MAX_TOKENS, TooLargeError)
        if by_vectors:
            turns = tuple(message.turn for message in self.turns)
            return fit(policy, lexical_recording(Transcript("the text", turns)).dialogs, size)
        columns = {name: getattr(self, f"_{name}")[None] for name in COLUMNS & {*policy.looks_at}}
        return fit(policy, replace(self._dialogs, **columns), size)

    @cached_property
    def _dialogs(self) -> DialogBatch:
        """The text without vectors."""
        tokens, turns = len(self), len(self.turns)
        while self.bounds[turns - 1] == tokens:  # what ends without a token has no last turn
            turns -= 1
        nothing = np.zeros((1, tokens, 0), np.float32)
        return DialogBatch(
            embeddings=nothing,
            keys=nothing,
            values=nothing,
            bounds=np.array([self.bounds[: turns + 1]], np.intp),
            turn_counts=np.array([turns]),
            topic_bits=np.zeros((1, tokens), np.uint32),
            current=np.full((1, turns), -1),
            topic_names=(),
            speakers=np.array([[*map(_speaker, self.turns[:turns])]]),
        )

    @cached_property
    def _spans_of(self) -> dict[int, NDArray[np.intp]]:
        return {}

    def _spans(self, turn: int) -> NDArray[np.intp]:
        """Return where the tokens of a message begin and end (2, n)."""
        if turn not in self._spans_of:
            spans = word_spans(self.turns[turn].turn.text)
            self._spans_of[turn] = np.array(spans, np.intp).reshape(-1, 2).T
        return self._spans_of[turn]

    @cached_property
    def _words(self) -> Ints:
        spoken = chain.from_iterable(self._words_of(turn) for turn in range(len(self.turns)))
        return np.fromiter(map(word_id, spoken), np.intp, len(self))

    @cached_property
    def _surprisal(self) -> Floats:
        spoken = chain.from_iterable(self._words_of(turn) for turn in range(len(self.turns)))
        return np.fromiter(map(word_surprisal, spoken), np.float32, len(self))

    @cached_property
    def _traits(self) -> Floats:
        traits = []
        for turn, message in enumerate(self.turns):
            spans = [(int(start), int(end)) for start, end in self._spans(turn).T]
            traits.append(token_traits(message.turn.text, spans, span_kind(message) == "user"))
        return np.concatenate(traits)

    def _words_of(self, turn: int) -> Iterator[str]:
        text = self.turns[turn].turn.text
        return (text[start:end] for start, end in self._spans(turn).T)


VECTORS = frozenset(("keys", "values", "queries", "attention", "similarity", "chance", "future"))
"""What a policy looks at that needs vectors."""

COLUMNS = frozenset(("words", "surprisal", "traits"))
"""Columns of a batch that are computed only for policies that look at them."""


def _speaker(message: Message) -> int:
    speaker = {"system": "prompt", "user": "user"}.get(span_kind(message), "system")
    return SPEAKERS.index(speaker)


def read_after_change(kept: Bools) -> int:
    """Return how many tokens stay after the first that left: a model reads these again.

    Examples
    --------
    >>> read_after_change(np.array([True, False, True, True]))
    2
    """
    return 0 if kept.all() else int(kept[int(kept.argmin()) :].sum())


# ----------------------------------------------------------------------------------------- tables


def ways_table(results: Sequence[Forgot]) -> pd.DataFrame:
    """Return a row for each compaction and way.

    `calls again` are those after the compaction whose first result the way does not hold, with the
    tokens of the results that came again.
    """
    import pandas as pd

    rows = []
    for result in results:
        of = (result.session.name, result.number + 1)
        for way in result.ways:
            again = [row for row, made in zip(result.repeats, way.repeated, strict=True) if made]
            tokens = sum(row.tokens for row in again)
            held = len(way.held), sum(way.held)
            kept = way.label, way.policy, way.tokens, *held
            rows.append((*of, *kept, len(again), tokens, way.read_again))
    return pd.DataFrame(rows, columns=["session", "compaction", *WAYS_COLUMNS])


def losses_table(results: Sequence[Forgot], words: bool = True) -> pd.DataFrame:
    """Return a row for each value that what the session did, or the first way, does not hold.

    The worst come first. Without `words`, a value is its kind and length.
    """
    import pandas as pd

    rows = []
    for result in results:
        of = (result.session.name, result.number + 1)
        for need in result.lost() if result.ways else ():
            place = result.session.messages
            again = place[need.again].place if need.again >= 0 else ""
            rows.append(
                (
                    *of,
                    need.value if words else kind_of(need.value),
                    need.given_by,
                    need.tool,
                    place[need.given].place,
                    need.needed - need.given,
                    place[need.needed].place,
                    need.method,
                    need.slot,
                    need.calls,
                    again,
                    ", ".join(result.holders(need)),
                )
            )
    return pd.DataFrame(rows, columns=["session", "compaction", *LOSSES])


def kind_of(value: str) -> str:
    """Return what a value is, without its words.

    Examples
    --------
    >>> kind_of("src/app.py"), kind_of("QX-771"), kind_of("so be it")
    ('path of 10 characters', 'id of 6 characters', 'text of 8 characters')
    """
    kind = next(kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, value.strip()))
    return f"{kind} of {count(len(value), 'character')}"


KINDS = {
    "number": r"[-+]?[\d.,]+",
    "address": r"\w+://\S+|\S+@\S+\.\w+",
    "path": r"\S*[/\\]\S*|[\w-]+\.[a-z]\w{0,4}",
    "id": r"(?=\S*[\d_-])\S+",
    "word": r"\S+",
    "text": r"(?s).*",
}
"""What a value is, by the first pattern that matches all of it."""
