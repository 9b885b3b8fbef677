"""What a session forgot at a compaction, what that cost, and what other ways would have held.

1. A *need* is a thing in a later call that only memory can supply (`needs`), and that stood in the
   text before the compaction. It belongs to the last compaction at which the model still had it.
2. It is *held* if it stands as a whole (`thing_index`) in what the model had right after: in the
   summary, what stayed and what the agent put back; for another way, in what that keeps.
3. It *came back* if the user, a tool or a file gave it again before the call.
4. Work was *done again* where results after the compaction repeat lines of results from before it
   that a way does not hold (`rereading`).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress, takewhile
from operator import not_

import numpy as np

from fdkvc.conversations.forgot_history import Failure, History, LaterCall, Need
from fdkvc.conversations.needs import things_in_text
from fdkvc.conversations.price import Rewrite, returned_tokens
from fdkvc.conversations.rereading import Reread, Returned
from fdkvc.conversations.rules import Rule, rules_at
from fdkvc.conversations.session_text import ContextText, PlaceSet, span_kind
from fdkvc.conversations.sessions import Compaction, Session
from fdkvc.core.attention import Bools
from fdkvc.core.limits import MAX_COMPARED_COMPACTIONS
from fdkvc.core.parameters import check_values
from fdkvc.core.transcripts import Mention, TooLargeError
from fdkvc.engine.evidence import reread_once
from fdkvc.policies import Policy, read_policy, usable
from fdkvc.policies.ways import CLEARED, MESSAGES, way_words

WAYS = (
    MESSAGES,
    CLEARED,
    "shift",
    "sink",
    "sinks(weighted-recency)",
)
"""The ways that are compared with a recorded compaction by default."""

LISTED = "list alone"
"""The label of a list that an agent can be told to write: what the user said as a rule, and then
what the user's words and the agent's calls had, the newest first, each word for word."""

RECORDED = {"summary": "summary (recorded)", "cleared": "cleared results (recorded)"}
"""The label among the ways of what the session did, by the kind of its compaction."""

NO_SUMMARY = "what stayed (recorded)"
"""That label where the file has no summary."""


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
    gaps: tuple[float, ...]
    """Seconds between the requests: see `Rewrite.gaps`."""
    failures: tuple[Failure, ...]
    """Later calls, until the next compaction, with a path or id that does not exist."""
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
        rows = (fitted for fitted in self.ways if not fitted.policy and fitted.label != LISTED)
        return next(rows, None)

    def lost(self) -> list[Need]:
        """Return the values that the first way does not hold, the worst loss first."""
        if not self.ways:
            return []
        holds = self.ways[0].holds
        lost = compress(self.needs, map(not_, holds))
        return sorted(lost, key=lambda need: need.weight, reverse=True)

    def holders(self, need: Need) -> list[str]:
        """Return the labels of the ways that hold a value."""
        place = self.needs.index(need)
        return [fitted.label for fitted in self.ways if fitted.holds[place]]


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
    size: int = 0,
) -> Iterator[Forgot]:
    """Yield what each compaction of a session forgot, and what other ways would have held.

    The other ways fit the text to a `size`, by default to what stayed, at the last
    `MAX_COMPARED_COMPACTIONS`.
    `on_progress` gets how many compactions are done, and how many there are. Raises a ValueError
    if the session has more than `MAX_SESSION_TOKENS`, or for `check_ways`.
    """
    session.checked(session.messages)
    policies = [*map(read_policy, WAYS)] if ways is None else ways
    check_ways(policies)
    total = len(session.compactions)
    if not total:
        return
    on_progress(0, total)
    history = History(session)
    for number in range(total):
        on_progress(number, total)
        result = Forgot(
            session,
            number,
            size or _size(session, number),
            tuple(history.needs[number]),
            tuple(history.returned[number]),
            history.call_counts(number),
            history.calls_to_edit(number),
            history.answers(number),
            history.gaps(number),
            tuple(history.failures[number + 1]),
            rules_at(session, number),
        )
        earlier_calls = chain.from_iterable(history.calls[: number + 1])
        is_compared = number >= total - MAX_COMPARED_COMPACTIONS
        compared, notes = _compared(result, policies if is_compared else (), earlier_calls)
        if policies and not is_compared:
            last_ones = f"the last {MAX_COMPARED_COMPACTIONS} compactions"
            notes.append(f"Other ways are compared at {last_ones} only.")
        yield replace(result, ways=tuple(compared), notes=(*history.notes, *notes))


# ------------------------------------------------------------------------------------------- ways


def _compared(
    result: Forgot, policies: Sequence[Policy], earlier_calls: Iterable[LaterCall]
) -> tuple[list[Fitted], list[str]]:
    """Return what the session and each way keep, and sentences on ways that are not compared."""
    compaction = result.compaction
    ways = []
    notes = []
    if compaction.kind in RECORDED and compaction.stayed:
        ways.append(_recorded(result))
    if not result.size:
        notes.append("Nothing stayed and no size is recorded, so no other way is compared.")
        return ways, notes
    if not policies or not result.before:
        return ways, notes
    comparison = _Comparison(result)
    for policy in policies:
        label = way_words(policy.name)
        try:
            stays = comparison.text.kept(policy, result.size)
        except TooLargeError as error:
            notes.append(f"“{label}” is not compared: {error}.")
            continue
        tokens = int(np.count_nonzero(stays))
        # A way that keeps some messages whole may have no room for them.
        if tokens > result.size:
            notes.append(f"“{label}” is not compared: it keeps {tokens:,} of {result.size:,}.")
            continue
        ways.append(comparison.fitted(label, policy, stays))
    ways.append(comparison.fitted(LISTED, None, comparison.listed(earlier_calls)))
    return ways, notes


class _Comparison:
    """What is looked for in what ways keep of the text before a compaction."""

    def __init__(self, result: Forgot) -> None:
        context = result.compaction.context
        messages = result.session.messages
        self.result = result
        self.text = ContextText.of([messages[index] for index in context])
        self._line_places = {line.key: line.places for line in result.returned}
        self._needs = PlaceSet(self.text, context, [need.places for need in result.needs])
        self._lines = PlaceSet(self.text, context, [*self._line_places.values()])

    def fitted(self, label: str, policy: Policy | None, stays: Bools) -> Fitted:
        """Return what is known of a way, a list if it has no policy; these tokens (N,) stay."""
        result = self.result
        text = self.text
        held_lines = dict(zip(self._line_places, self._lines.held(stays), strict=True))
        lost_lines = [line for line in result.returned if not held_lines[line.key]]
        tokens = np.flatnonzero(stays)
        holds = tuple(self._needs.held(stays))
        redone = Reread.of(lost_lines)
        size = len(tokens)
        if policy is None:  # a list is written by the model, and nothing else stays
            rewrite = _rewrite(result, size, size, size, lost_lines)
            return Fitted(label, "", size, holds, redone, size, rewrite)
        changed = reread_once(policy, np.arange(len(text)), tokens, text.born, text.kinds)
        reads_again = policy.reads_again
        kept_rewrite = _rewrite(result, size, changed, 0, lost_lines) if reads_again else None
        return Fitted(label, policy.name, size, holds, redone, changed, kept_rewrite)

    def listed(self, earlier_calls: Iterable[LaterCall]) -> Bools:
        """Return which tokens (N,) are in a list of rules, and of things in calls."""
        result = self.result
        size = 0
        turns = {message: turn for turn, message in enumerate(result.compaction.context)}
        things: list[tuple[int, str]] = []
        for row in earlier_calls:
            if row.message in turns:
                things += ((row.message, thing.value) for thing in row.things)
        messages = result.session.messages
        for message in turns:
            if (
                span_kind(messages[message]) == "user"
                and message not in result.session.summaries
            ):
                text = messages[message].turn.text
                things += ((message, thing) for thing in things_in_text(text))
        words = [(rule.message, rule.text) for rule in reversed(result.rules)]
        words += sorted(things, key=lambda row: row[0], reverse=True)
        wordings = set()
        stays = np.zeros(len(self.text), np.bool_)
        for message, wording in words:
            if wording in wordings:
                continue
            # Rules have single spaces between their words, and messages any.
            spaced = r"\s+".join(map(re.escape, wording.split()))
            match = re.search(spaced, messages[message].turn.text)
            if match is None:
                continue
            tokens = self.text.tokens_of(Mention(turns[message], *match.span()))
            size += len(tokens)
            if size > result.size:
                break
            wordings.add(wording)
            stays[tokens] = True
        return stays


def _rewrite(
    result: Forgot, tokens: int, changed: int, summary: int, lost_lines: Sequence[Returned]
) -> Rewrite:
    """Return what a way changed in a prefix cache."""
    rows = [(line.message, line.tokens) for line in lost_lines]
    answers = result.answers
    returned = returned_tokens(rows, answers)
    changed = min(changed, tokens)
    return Rewrite(
        result.before, tokens, changed, summary, len(answers), returned, result.gaps
    )


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
    session = result.session
    stayed = compaction.stayed
    tokens = session.tokens_of(stayed)
    # What is the same up to the first change stays in a prefix cache.
    pairs = zip(stayed, compaction.context, strict=False)
    unchanged = [message for message, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    changed = tokens - session.tokens_of(tuple(unchanged))
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
