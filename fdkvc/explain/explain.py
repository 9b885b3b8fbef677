"""Why an entry stayed or went, for any policy, from the record of a run.

A policy's score is a sum of named terms, so the same words fit them all: by which rule, at which
place, by what margin, and which term decided. `explain` looks at one entry in one turn, `life` at
all its turns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools, Floats, Ints
from fdkvc.cache import EMPTY, Cache, Pages, select
from fdkvc.policies.base import Policy, total
from fdkvc.run.trace import Codes, EntryTrace, Rule, Status, Trace, TurnResult
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.words import all_of, contrast, count, gap, listed, number, ordinal, sentence

# ------------------------------------------------------------------------------- one decision


@dataclass(frozen=True, eq=False)
class TurnView:
    """What one turn decided in one row: its n entries, older first, without empty slots.

    Attributes
    ----------
    row, turn : int
        `turn` counts from 0 over the dialog.
    """

    trace: Trace
    dialogs: DialogBatch
    row: int
    turn: int

    @cached_property
    def result(self) -> TurnResult:
        """All that the turn computed."""
        return self.trace.result(self.turn)

    @cached_property
    def entries(self) -> EntryTrace:
        """The entries of the turn, in every row."""
        return self.trace.entries_in(self.turn)

    @cached_property
    def slot(self) -> Ints:
        """Where the entries stand in the turn's record (n,)."""
        return np.flatnonzero(self.result.token[self.row] != EMPTY)

    @property
    def policy(self) -> Policy:
        """The policy that decided."""
        return self.trace.policy

    def pick(self, column: NDArray) -> NDArray:  # type: ignore[type-arg]
        """Return a column (B, W) of the turn for these entries (n,)."""
        picked: NDArray = column[self.row][self.slot]  # type: ignore[type-arg]
        return picked

    @cached_property
    def token(self) -> Ints:
        """Index of each entry's token (n,)."""
        return self.pick(self.entries.token)

    @cached_property
    def status(self) -> Codes:
        """Value of `Status` for each entry (n,)."""
        return self.pick(self.entries.status)

    @cached_property
    def rule(self) -> Codes:
        """Value of `Rule` for each entry (n,)."""
        return self.pick(self.entries.rule)

    @cached_property
    def new(self) -> Bools:
        """Whether each entry came in this turn (n,)."""
        return np.asarray(self.slot >= self.trace.old_slots)

    @cached_property
    def protected(self) -> Bools:
        """Whether each entry had to stay whatever its score (n,)."""
        return self.pick(self.entries.protected)

    @cached_property
    def kept(self) -> Bools:
        """Whether each entry stayed (n,)."""
        return np.asarray(self.rule == Rule.none)

    @cached_property
    def stood(self) -> Bools:
        """Whether each entry stood for the budget's decision (n,): all but the threshold's."""
        return np.asarray(self.rule != Rule.threshold)

    @cached_property
    def score(self) -> Floats:
        """Score of each entry (n,), NaN for what the threshold evicted."""
        return self.pick(self.entries.score)

    @cached_property
    def has_tokens(self) -> bool:
        """Whether the turn brought tokens; one that did not decided nothing."""
        low, high = self.dialogs.bounds[self.row, self.turn : self.turn + 2]
        return bool(high > low)

    @property
    def places(self) -> int:
        """How many entries the row could keep."""
        places = self.result.places
        return places if isinstance(places, int) else int(places[self.row, 0])

    @property
    def cutoff(self) -> float | None:
        """The score of the last to stay.

        None where the budget evicted nothing, or where all that stayed were protected.
        """
        cutoff = float(self.result.cutoff[self.row, 0])
        return None if math.isnan(cutoff) else cutoff

    @cached_property
    def marginal(self) -> int | None:
        """Which entry was the last to stay: of those that score the cutoff, the newest kept."""
        last = self.kept & ~self.protected & (self.score == self.cutoff)
        return int(np.flatnonzero(last)[-1]) if last.any() else None

    @cached_property
    def threshold(self) -> tuple[Floats, float] | None:
        """The scores that a threshold judged (n,), NaN for new entries, and the threshold."""
        recorded = self.entries.recorded
        for step in self.policy.steps:
            if step.kind == "evict" and len(step.reads) == 2:
                judged, threshold = (recorded[name] for name in step.reads)
                return self.pick(judged), float(threshold[self.row])
        return None

    def judged(self, entry: int) -> tuple[float | None, float | None]:
        """Return the score of one entry as it decided, and what it was held against, if known."""
        if self.stood[entry]:
            return float(self.score[entry]), self.cutoff
        scores, threshold = self.threshold or (None, None)
        return None if scores is None else float(scores[entry]), threshold

    def channels(self, entry: int) -> Mapping[str, float]:
        """Return what the policy remembers of one entry, as it decided."""
        columns = self.entries.channels.items()
        return {name: float(self.pick(column)[entry]) for name, column in columns}

    def terms(self, entry: int) -> Mapping[str, float]:
        """Return the terms of one entry's score as they decided."""
        terms = self.result.terms if self.stood[entry] else self._terms_at_threshold
        return {name: float(term[self.row, self.slot[entry]]) for name, term in terms.items()}

    @cached_property
    def _terms_at_threshold(self) -> Mapping[str, Floats]:
        update = self.result.update
        return self.policy.terms(update.cache, self.dialogs.observe(self.turn))

    def deciding_terms(self, entry: int) -> tuple[str, ...]:
        """Return the terms of which each alone decided whether the budget keeps an entry.

        Such a term, made equal to that of the last to stay, turns the decision when the turn
        chooses again. There may be none, or several.
        """
        if self.marginal is None or not self.stood[entry] or self.protected[entry]:
            return ()
        row = slice(self.row, self.row + 1)
        cache, protected = Cache(self.result.entries.token[row]), self.result.protected[row]
        terms = {name: term[row] for name, term in self.result.terms.items()}
        own, last = self.slot[[entry, self.marginal]]
        pages = self.result.pages
        alike = own if pages is None else pages.page[self.row] == pages.page[self.row, own]
        page = None if pages is None else Pages(pages.page[row], pages.size)

        def kept_with(name: str) -> bool:
            equal = terms[name].copy()
            equal[0, alike] = equal[0, last]
            score = total({**terms, name: equal})
            kept, _ = select(score, cache, protected, self.places, self.policy.ties, page)
            return bool(kept[0, own])

        return tuple(name for name in terms if kept_with(name) != self.kept[entry])


def turn_view(trace: Trace, dialogs: DialogBatch, row: int, turn: int) -> TurnView:
    """Return what a turn decided in a row.

    Raises
    ------
    ValueError
        If the trace was recorded without entries, or has no such row or turn.
    """
    trace.result(trace.first_turn)
    if not 0 <= row < dialogs.rows:
        raise ValueError(f"row is {row}, but must be from 0 to {dialogs.rows - 1}")
    last = min(trace.first_turn + trace.turns, int(dialogs.turn_counts[row])) - 1
    if not trace.first_turn <= turn <= last:
        raise ValueError(
            f"turn is {turn}, but the record of this dialog has turns {trace.first_turn} to {last}"
        )
    return _turn_views(trace, dialogs)(row, turn)


# Of as many runs as are looked at side by side: no more of them are held here.
@lru_cache(maxsize=8)
def _turn_views(trace: Trace, dialogs: DialogBatch) -> Callable[[int, int], TurnView]:
    """Return a run's decisions by row and turn, each laid out once for all entries asked about."""
    return lru_cache(maxsize=64)(partial(TurnView, trace, dialogs))


# ------------------------------------------------------------------------------- one entry


@dataclass(frozen=True)
class Explanation:
    """What became of one entry in one turn, and why.

    Attributes
    ----------
    topic : str
        Its topics, joined by ``+``; empty where none is known.
    born, turn : int
        The turn that brought it and the turn that is explained, from 0.
    status : Status
        Empty where it is not in the cache in this turn.
    rule : Rule
        What evicted it in this turn.
    left : tuple of (turn, Rule), optional
        When and by what it was last evicted, in this turn or before; None if it came back since.
    decided : bool
        Whether the turn brought tokens; without them nothing is decided.
    protected : bool
        Whether it had to stay whatever its score.
    rank : int, optional
        Place by score among all that stood for the budget's decision, 1 for the highest, ties to
        the older.
    stood, stayed, stayed_protected : int
        How many stood for the budget's decision, how many stayed, and how many of these were
        protected.
    place, contenders : int
        Its place by score among the unprotected, and how many those are; 0 if it is protected.
    score : float, optional
        Its score as it decided.
    cutoff : float, optional
        The lowest kept unprotected score, or the threshold for what that evicted. None where the
        budget evicted nothing or where all that stayed were protected, and where the policy's
        steps do not say what the threshold was.
    best_evicted : float, optional
        The highest score that the budget evicted.
    terms : mapping of str to float
        What its score is the sum of.
    channels : mapping of str to float
        What the policy remembers of it, as it decided.
    marginal : int, optional
        Token of the last to stay, whose score is the cutoff.
    marginal_terms : mapping of str to float
        What that one's score is the sum of.
    deciding_terms : tuple of str
        The terms of which each alone, made equal to that of the last to stay, would have turned
        the decision.
    """

    policy: Policy
    token: int
    topic: str
    born: int
    turn: int
    budget: int
    status: Status = Status.empty
    rule: Rule = Rule.none
    left: tuple[int, Rule] | None = None
    decided: bool = True
    protected: bool = False
    rank: int | None = None
    stood: int = 0
    stayed: int = 0
    stayed_protected: int = 0
    place: int = 0
    contenders: int = 0
    score: float | None = None
    cutoff: float | None = None
    best_evicted: float | None = None
    terms: Mapping[str, float] = field(default_factory=dict)
    channels: Mapping[str, float] = field(default_factory=dict)
    marginal: int | None = None
    marginal_terms: Mapping[str, float] = field(default_factory=dict)
    deciding_terms: tuple[str, ...] = ()

    @property
    def age(self) -> int:
        """Turns since the one that brought it; negative before it."""
        return self.turn - self.born

    @property
    def margin(self) -> float | None:
        """Score less cutoff: negative or zero for what was evicted."""
        if self.score is None or self.cutoff is None:
            return None
        return self.score - self.cutoff

    @property
    def difference(self) -> Mapping[str, float]:
        """Each term less that of the last to stay; they add up to the margin."""
        marginal = self.marginal_terms
        return {name: self.terms[name] - marginal[name] for name in self.terms if marginal}


def explain(trace: Trace, dialogs: DialogBatch, row: int, turn: int, token: int) -> Explanation:
    """Say what became of an entry in a turn, and why.

    Parameters
    ----------
    trace : Trace
        Recorded with its entries.
    dialogs : DialogBatch
        What it ran on.
    row, turn, token : int
        `turn` counts from 0 over the dialog; `token` is a token of the row, in the cache or not.

    Raises
    ------
    ValueError
        If the trace was recorded without entries, or there is no such row, turn or token.

    Examples
    --------
    >>> from fdkvc.synthetic.draw import generate
    >>> from fdkvc.synthetic.scenarios import SCENARIOS
    >>> from fdkvc.policies import policy_named
    >>> from fdkvc.run.simulate import simulate
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("fifo"), dialogs, budget=56)
    >>> why = explain(trace, dialogs, row=0, turn=1, token=7)
    >>> why.status.name, why.rule.name, why.rank, why.score, why.cutoff, why.margin
    ('evicted', 'budget', 57, 7.0, 8.0, -1.0)
    >>> for words in sentences(why):
    ...     print(words)
    Token 7 (topic A, from turn 0) was evicted in turn 1 by the budget.
    Its score of 7 ranked 57th of 64, and 56 stay.
    The last to stay scored 8, so 1 was missing.
    >>> course = life(trace, dialogs, row=0, token=20)
    >>> course.turn.tolist(), course.rank.tolist(), course.left[0]
    ([0, 1, 2], [12.0, 44.0, 76.0], 2)
    """
    made = turn_view(trace, dialogs, row, turn)
    last = int(dialogs.bounds[row, dialogs.turn_counts[row]]) - 1
    if not 0 <= token <= last:
        raise ValueError(f"token is {token}, but this dialog has tokens 0 to {last}")
    return _explained(made, token)


def _explained(made: TurnView, token: int) -> Explanation:
    trace, dialogs, row = made.trace, made.dialogs, made.row
    about: dict[str, Any] = {
        "policy": trace.policy,
        "token": token,
        "topic": dialogs.topics_of(row, np.array([token]))[0],
        "born": int(dialogs.born[row, token]),
        "turn": made.turn,
        "budget": made.places,
        "left": _eviction(trace, row, made.turn, token),
        "decided": made.has_tokens,
    }
    found = np.flatnonzero(made.token == token)
    if not found.size:
        return Explanation(**about)

    entry = int(found[0])
    score, cutoff = made.judged(entry)
    gone = made.rule == Rule.budget
    contenders = np.flatnonzero(made.stood & ~made.protected)
    # Of equal scores the older has the better place, as in the decision.
    order = contenders[np.argsort(-made.score[contenders], kind="stable")]
    place = int(np.flatnonzero(order == entry)[0]) + 1 if entry in contenders else 0
    rank = int(made.pick(made.entries.rank)[entry])
    marginal = made.marginal if made.stood[entry] else None
    return Explanation(
        **about,
        status=Status(made.status[entry]),
        rule=Rule(made.rule[entry]),
        protected=bool(made.protected[entry]),
        rank=rank or None,
        stood=int(made.stood.sum()),
        stayed=int(made.kept.sum()),
        stayed_protected=int((made.kept & made.protected).sum()),
        place=place,
        contenders=len(contenders),
        score=score,
        cutoff=cutoff,
        best_evicted=float(made.score[gone].max()) if gone.any() else None,
        terms=made.terms(entry),
        channels=made.channels(entry),
        marginal=None if marginal is None else int(made.token[marginal]),
        marginal_terms={} if marginal is None else made.terms(marginal),
        deciding_terms=made.deciding_terms(entry),
    )


def _eviction(trace: Trace, row: int, turn: int, token: int) -> tuple[int, Rule] | None:
    """Return when and by what a token was evicted, up to a turn, unless it came back."""
    for past in range(turn, trace.first_turn - 1, -1):
        result = trace.result(past)
        for slot in np.flatnonzero(result.token[row] == token):
            rule = Rule(result.rule[row, slot])
            return (past, rule) if rule else None
    return None


# ------------------------------------------------------------------------------- in words


def sentences(why: Explanation) -> list[str]:
    """Say an explanation in plain words and numbers."""
    told = {
        Rule.none: _why_it_stayed,
        Rule.budget: _why_the_budget_evicted_it,
        Rule.threshold: _why_the_threshold_evicted_it,
    }
    tell = _why_it_is_absent if why.status == Status.empty else told[why.rule]
    return [sentence(words) for words in tell(why)]


def _subject(why: Explanation) -> str:
    origin = [f"topic {why.topic}"] * bool(why.topic) + [f"from turn {why.born}"]
    return f"token {why.token} ({', '.join(origin)})"


def _why_it_is_absent(why: Explanation) -> Iterator[str]:
    absent = f"{_subject(why)} is not in the cache in turn {why.turn}"
    if why.born > why.turn:
        yield f"{absent}: it comes only in turn {why.born}"
    elif why.left:
        yield f"{absent}: the {why.left[1].name} evicted it in turn {why.left[0]}"
    else:
        yield f"{absent}: it had left before this record begins"


def _why_it_stayed(why: Explanation) -> Iterator[str]:
    came = "came and stayed" if why.status == Status.new else "stayed"
    stayed = f"{_subject(why)} {came} in turn {why.turn}"
    if not why.decided:
        yield f"{stayed}: the turn brought no tokens, so nothing was decided"
        return
    if why.best_evicted is None:
        taken = f"{why.stayed} of {count(why.budget, 'place')} taken"
        yield f"{stayed}: the budget evicted nothing, with {taken}"
        return
    if why.protected:
        yield f"{stayed}: it is protected, whatever its score"
        yield f"its score of {_score(why)} ranked {ordinal(why.rank or 0)} of {why.stood}"
        return
    yield stayed
    yield _standing(why)
    score, lowest = _score_and_cutoff(why)
    _, best = contrast(score, why.best_evicted)
    ahead = gap(score, why.best_evicted)
    evicted = (
        "the best that had to go scored the same, and a tie goes to the older"
        if score == why.best_evicted
        else f"the best that had to go scored {best}, {ahead} less"
    )
    if why.token == why.marginal:
        yield f"it was the last to stay: {evicted}"
    elif score == lowest:
        both = lowest == why.best_evicted
        yield f"the last to stay {'and' if both else 'scored the same;'} {evicted}"
    else:
        _, cutoff = contrast(score, lowest)
        yield f"the last to stay scored {cutoff}, which is {gap(score, lowest)} less"
        yield from _terms_against_the_last(why, "won it the place", "was ahead", "was behind")
        yield evicted


def _why_the_budget_evicted_it(why: Explanation) -> Iterator[str]:
    if why.status == Status.new_evicted:
        yield f"{_subject(why)} did not survive its own turn: the budget evicted it"
    else:
        yield f"{_subject(why)} was evicted in turn {why.turn} by the budget"
    if why.cutoff is None:
        taken = "a protected entry" if why.stayed == 1 else "protected entries"
        yield (
            f"{all_of(why.stayed, 'place')} went to {taken}, "
            f"so its score of {_score(why)} did not count"
        )
        return
    yield _standing(why)
    score, lowest = _score_and_cutoff(why)
    if score == lowest:
        yield "the last to stay scored the same, and a tie goes to the older"
        return
    _, cutoff = contrast(score, lowest)
    yield f"the last to stay scored {cutoff}, so {gap(score, lowest)} was missing"
    yield from _terms_against_the_last(why, "cost it the place", "was behind", "was even ahead")


def _why_the_threshold_evicted_it(why: Explanation) -> Iterator[str]:
    yield f"{_subject(why)} was evicted in turn {why.turn} by the threshold"
    if why.cutoff is None:
        return
    score, threshold = _score_and_cutoff(why)
    low, high = contrast(score, threshold)
    missing = gap(score, threshold)
    yield f"its score of {low} was below the threshold of {high}, so {missing} was missing"
    if len(why.terms) > 1:
        parts = [f"{_name(why, term)} gave {number(worth)}" for term, worth in why.terms.items()]
        yield listed(parts)


def _standing(why: Explanation) -> str:
    """Say at which place the score stood, and how many places there were."""
    score = f"its score of {_score(why)} ranked"
    if not why.stayed_protected:
        verb = "stays" if why.stayed == 1 else "stay"
        return f"{score} {ordinal(why.rank or 0)} of {why.stood}, and {why.stayed} {verb}"
    left = why.stayed - why.stayed_protected
    return (
        f"{score} {ordinal(why.place)} of the {why.contenders} unprotected entries, for which "
        f"{left} of {why.stayed} places {'was' if left == 1 else 'were'} left"
    )


def _score_and_cutoff(why: Explanation) -> tuple[float, float]:
    assert why.score is not None
    assert why.cutoff is not None
    return why.score, why.cutoff


def _score(why: Explanation) -> str:
    """Write the score, with enough decimals to tell it from the cutoff."""
    assert why.score is not None
    return number(why.score) if why.cutoff is None else contrast(why.score, why.cutoff)[0]


def _name(why: Explanation, quantity: str) -> str:
    return why.policy.quantity_name(quantity)


def _terms_against_the_last(
    why: Explanation, decided: str, agreed: str, opposed: str
) -> Iterator[str]:
    """Say which terms decided, each alone, and where the others stood; nothing of an only one."""
    if len(why.terms) == 1:
        return
    way = math.copysign(1, why.margin or 0)
    # First what decided, then what moved the margin most its way.
    order = sorted(
        why.difference,
        key=lambda term: (term not in why.deciding_terms, -way * why.difference[term]),
    )
    parts, verdicts = [], set()
    for term in order:
        ahead = way * why.difference[term]
        verdict = agreed if ahead > 0 else opposed if ahead else "was level"
        if term in why.deciding_terms:
            verdict = decided
        too = " too" if verdict in verdicts and ahead else ""
        verdicts.add(verdict)
        own, last = contrast(why.terms[term], why.marginal_terms[term])
        parts.append(f"{_name(why, term)} {verdict}{too} ({own} against {last})")
    none = "" if why.deciding_terms else f"no term alone {decided}: "
    yield none + ", ".join(parts)
    apart = [term for term in order if why.difference[term]]
    if none and way < 0 and len(apart) == 1:
        yield f"with equal {_name(why, apart[0])} it would have tied, and a tie goes to the older"


# ------------------------------------------------------------------------------- a whole life


@dataclass(frozen=True, eq=False)
class Life:
    """One entry from its birth to its eviction, or to the record's end: n turns, in order.

    What does not apply is NaN.

    Attributes
    ----------
    left : tuple of (turn, Rule), optional
        When and by what it was evicted, if it was.
    turn : array (n,)
    status, rule : array (n,) of uint8
    protected : array (n,) of bool
    score, cutoff, rank : array (n,)
        As in `Explanation`.
    channels, terms : mapping of name to array (n,)
    """

    token: int
    topic: str
    born: int
    left: tuple[int, Rule] | None
    turn: Ints
    status: Codes
    rule: Codes
    protected: Bools
    score: Floats
    cutoff: Floats
    rank: Floats
    channels: Mapping[str, Floats]
    terms: Mapping[str, Floats]


def life(trace: Trace, dialogs: DialogBatch, row: int, token: int) -> Life:
    """Follow an entry through all turns in which it took part.

    Parameters and errors are those of `explain`.
    """
    first = explain(trace, dialogs, row, trace.first_turn, token)
    end = min(trace.first_turn + trace.turns, int(dialogs.turn_counts[row]))
    lived = [
        (made, int(np.flatnonzero(made.token == token)[0]))
        for turn in range(trace.first_turn, end)
        if token in trace.result(turn).token[row]
        for made in [_turn_views(trace, dialogs)(row, turn)]
    ]
    judged = [made.judged(entry) for made, entry in lived]
    channels = [made.channels(entry) for made, entry in lived]
    terms = [made.terms(entry) for made, entry in lived]

    def series(values: Iterable[float | None]) -> Floats:
        return np.array([np.nan if value is None else value for value in values], np.float32)

    return Life(
        token=token,
        topic=first.topic,
        born=first.born,
        left=_eviction(trace, row, lived[-1][0].turn, token) if lived else None,
        turn=np.array([made.turn for made, _ in lived], np.intp),
        status=np.array([made.status[entry] for made, entry in lived], np.uint8),
        rule=np.array([made.rule[entry] for made, entry in lived], np.uint8),
        protected=np.array([made.protected[entry] for made, entry in lived], np.bool_),
        score=series(score for score, _ in judged),
        cutoff=series(cutoff for _, cutoff in judged),
        rank=series(made.pick(made.entries.rank)[entry] or None for made, entry in lived),
        channels={name: series(each[name] for each in channels) for name in trace.policy.channels},
        terms={
            name: series(each[name] for each in terms)
            for name in trace.result(trace.first_turn).terms
        },
    )
