"""Why an entry was kept or evicted, for any policy, from the record of a run.

A policy's score is a sum of named terms, so the same sentences fit every policy: the rule, the
rank, the margin, and the term that decided.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools, Floats, Ints
from fdkvc.core.cache import EMPTY, Cache, Pages, select
from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.words import (
    all_of,
    contrast,
    digits_for,
    gap,
    listed,
    number,
    ordinal,
    sentence,
)
from fdkvc.engine.trace import EntryTrace, Rule, Status, Trace, TurnResult
from fdkvc.policies.base import Policy, Step, total

# ------------------------------------------------------------------------------- one decision


@dataclass(frozen=True, eq=False, kw_only=True)
class TurnView(EntryTrace):
    """The decisions of one turn in one row: its n entries, oldest first, without empty slots.

    The arrays of `EntryTrace` have shape (n,); what is recorded of the row is one number.
    """

    trace: Trace
    """The run."""
    dialogs: DialogBatch
    """Its dialogs."""
    row: int
    """The dialog or head."""
    turn: int
    """From 0 over the dialog."""
    slot: Ints
    """Slots of the entries in the turn's record (n,)."""

    @property
    def result(self) -> TurnResult:
        """Everything the turn computed, in every row."""
        return self.trace.result(self.turn)

    @property
    def policy(self) -> Policy:
        """The policy that decided."""
        return self.trace.policy

    @cached_property
    def new(self) -> Bools:
        """Whether each entry arrived in this turn (n,)."""
        # The turn's own tokens come after all slots of the cache; see `EntryTrace`.
        return np.asarray(self.slot >= self.trace.kept_tokens.shape[2])

    @cached_property
    def kept(self) -> Bools:
        """Whether each entry was kept (n,)."""
        return np.asarray(self.rule == Rule.none)

    @cached_property
    def stood(self) -> Bools:
        """Whether the budget ranked each entry (n,): the threshold did not evict it."""
        return np.asarray(self.rule != Rule.threshold)

    @property
    def has_tokens(self) -> bool:
        """Whether the turn has tokens; without them nothing is decided."""
        return bool(self.dialogs.observe(self.turn).active[self.row])

    @property
    def places(self) -> int:
        """How many entries the row can keep."""
        places = self.result.places
        return places if isinstance(places, int) else int(places[self.row, 0])

    @property
    def cutoff(self) -> float | None:
        """The score of the last kept entry.

        None where the budget evicted nothing, or where every kept entry was protected.
        """
        cutoff = float(self.result.cutoff[self.row, 0])
        return None if math.isnan(cutoff) else cutoff

    @property
    def best_evicted(self) -> float | None:
        """The highest score that the budget evicted; None where it evicted nothing."""
        evicted = self.rule == Rule.budget
        return float(self.score[evicted].max()) if evicted.any() else None

    @property
    def digits(self) -> int:
        """The fewest decimals, from 3, at which the scores beside the cutoff differ."""
        return digits_for(self.cutoff, self.best_evicted)

    @cached_property
    def marginal(self) -> int | None:
        """Index of the last kept entry: of those kept that score the cutoff, the newest."""
        last = self.kept & ~self.protected & (self.score == self.cutoff)
        return int(np.flatnonzero(last)[-1]) if last.any() else None

    @property
    def threshold(self) -> tuple[Floats, float] | None:
        """The scores compared with a threshold (n,), NaN for new entries, and the threshold."""
        for step in self.policy.steps:
            # By the contract of `Step`: the score that is compared, then the threshold.
            if step.kind == "evict" and len(step.reads) == 2:
                scores, threshold = step.reads
                return self.recorded[scores], float(self.recorded[threshold])
        return None

    def terms_of(self, entry: int) -> Mapping[str, float]:
        """Return the terms of one entry's score when its fate was decided."""
        terms = self.result.terms
        # The threshold decides before the new tokens come, by the terms of that moment.
        if not self.stood[entry]:
            terms = self.policy.terms(
                self.result.update.cache, self.dialogs.observe(self.turn)
            )
        return {name: float(term[self.row, self.slot[entry]]) for name, term in terms.items()}

    def deciding_terms(self, entry: int) -> tuple[str, ...]:
        """Return the terms that alone decided whether the budget keeps an entry.

        Setting such a term to that of the last kept entry reverses the decision. There may be
        none, or several.
        """
        if self.marginal is None or not self.stood[entry] or self.protected[entry]:
            return ()
        terms = {name: term[self.row] for name, term in self.result.terms.items()}
        slot, last = self.slot[[entry, self.marginal]]
        # Entries of a page have equal terms, so those of the whole page are set.
        pages = self.result.pages
        page = None if pages is None else pages.page[self.row]
        changed_slots = slot if page is None else page == page[slot]

        def kept_with(name: str) -> bool:
            equal = terms[name].copy()
            equal[changed_slots] = equal[last]
            score = total({**terms, name: equal})
            return bool(self._selected(score, self.result.protected[self.row])[slot])

        stays = self.kept[entry]
        return tuple(name for name in terms if kept_with(name) != stays)

    @property
    def kept_by_score(self) -> Bools:
        """Whether each entry would be kept if none were protected (n,)."""
        score = self.result.score[self.row]
        return self._selected(score, np.zeros_like(score, np.bool_))[self.slot]

    def _selected(self, score: Floats, protected: Bools) -> Bools:
        """Return which slots of the row would be kept by other scores or protection (C + n,)."""
        row = slice(self.row, self.row + 1)  # a batch of one
        pages = self.result.pages
        stays, _ = select(
            score[None],
            Cache(self.result.entries.token[row]),
            protected[None],
            self.places,
            self.policy.ties,
            pages and Pages(pages.page[row], pages.size),
        )
        return np.asarray(stays[0])

    @cached_property
    def topics(self) -> NDArray[Any]:
        """Topics of each entry (n,), empty if unknown."""
        return self.dialogs.topics_of(self.row, self.token)

    @cached_property
    def current(self) -> str:
        """The current topic; empty if unknown."""
        topic = int(self.dialogs.current[self.row, self.turn])
        return self.dialogs.topic_names[topic] if topic >= 0 else ""

    @cached_property
    def topic_move(self) -> str:
        """How the topic follows earlier ones: begins, stays, returns, or turns (to a new one)."""
        if not self.current:
            return ""
        topics = self.dialogs.current[self.row, : self.turn + 1]
        *earlier_topics, topic = topics[topics >= 0].tolist()
        if not earlier_topics:
            return "begins"
        if earlier_topics[-1] == topic:
            return "stays"
        return "returns" if topic in earlier_topics else "turns"

    def quantity(self, name: str) -> Any:
        """Return a recorded quantity: (n,) for entries, one number for the row, None if unknown."""
        of_entries = {
            **self.recorded,
            **self.terms,
            **self.channels,
            "score": self.score,
            "attention_before": self.attention_before,
            "attention_after": self.attention_after,
        }
        if name in of_entries:
            value = of_entries[name]
            return value if value.ndim else float(value)
        state = self.result.end_state.cache.state
        return float(state[name][self.row]) if name in state else None

    def before(self, name: str) -> Any:
        """Return a channel of each entry (n,), or a row state, after the previous turn.

        NaN for new entries.
        """
        old = self.result.old_entries
        if name in old.state:
            return float(old.state[name][self.row])
        column = np.full(len(self.token), np.nan, np.float32)
        column[~self.new] = old[name][self.row, self.slot[~self.new]]
        return column

    def change(self, step: Step) -> tuple[Floats, Floats, Bools]:
        """Return what a step changes, before and after (n,), and where both are known."""
        source = step.reads[0]
        target = step.writes[0]
        read_values = self.before(source) if source == target else self.quantity(source)
        written_values = self.quantity(target)
        return (
            read_values,
            written_values,
            np.isfinite(read_values) & np.isfinite(written_values),
        )

    def groups(self, chosen: Bools) -> dict[str, Bools]:
        """Return the chosen entries by topic, sorted."""
        return {
            name: chosen & (self.topics == name) for name in np.unique(self.topics[chosen])
        }

    def tally(self, chosen: Bools) -> str:
        """Count the chosen entries by topic in parentheses; empty if no topic is known."""
        groups = self.groups(chosen)
        if not any(groups):
            return ""
        counts = [f"{members.sum():,} {topic or 'other'}" for topic, members in groups.items()]
        return f" ({', '.join(counts)})"


@lru_cache(maxsize=64)
def turn_view(trace: Trace, dialogs: DialogBatch, row: int, turn: int) -> TurnView:
    """Return the decision of a turn in a row.

    Raises a ValueError if the trace was recorded without entries or not from the first turn, or has
    no such row or turn.
    """
    # It raises an error unless the entries were recorded, from the first turn on.
    trace.result(0)
    if not 0 <= row < dialogs.rows:
        raise ValueError(f"row is {row}, but must be from 0 to {dialogs.rows - 1}")
    last = min(trace.turns, int(dialogs.turn_counts[row])) - 1
    if not 0 <= turn <= last:
        raise ValueError(
            f"turn is {turn}, but the record of this dialog has turns 0 to {last}"
        )
    entries = trace.entries_in(turn)
    slot = np.flatnonzero(entries.token[row] != EMPTY)

    def of_row(column: Any) -> Any:
        if isinstance(column, Mapping):
            return {name: of_row(part) for name, part in column.items()}
        return column[row, slot] if column.ndim == 2 else column[row]

    columns = {name: of_row(column) for name, column in vars(entries).items()}
    return TurnView(**columns, trace=trace, dialogs=dialogs, row=row, turn=turn, slot=slot)


# ------------------------------------------------------------------------------- one entry


@dataclass(frozen=True)
class Explanation:
    """What happened to one entry in one turn, and why."""

    view: TurnView = field(compare=False, repr=False)
    """The whole turn."""
    token: int
    """The entry's token."""
    topic: str
    """Its topics, joined by ``+``; empty if unknown."""
    born: int
    """The turn in which it arrived, from 0."""
    eviction: tuple[int, Rule] | None
    """The turn and rule that last evicted it, up to this turn; None if it never left or is back."""
    status: Status = Status.empty
    """What happened to it in this turn; empty where it is not in the cache."""
    rule: Rule = Rule.none
    """The rule that evicted it in this turn."""
    protected: bool = False
    """Whether it was kept regardless of its score."""
    rank: int | None = None
    """Rank by score among all entries that the budget ranked, 1 for the highest, ties to the
    older."""
    place: int = 0
    """Its rank by score among the unprotected; 0 if it is protected."""
    score: float | None = None
    """The score that decided."""
    cutoff: float | None = None
    """The lowest unprotected score that stayed; for an entry evicted by a threshold, the threshold.
    None if the budget evicted nothing, if every kept entry was protected, or if the policy's steps
    do not declare the threshold."""
    terms: Mapping[str, float] = field(default_factory=dict)
    """The parts of its score."""
    marginal: int | None = None
    """Token of the last kept entry, whose score is the cutoff."""
    marginal_terms: Mapping[str, float] = field(default_factory=dict)
    """The parts of the score of `marginal`."""
    deciding_terms: tuple[str, ...] = ()
    """The terms that decided alone: if one of them were that of the last kept entry, the decision
    would be reversed."""

    @property
    def margin(self) -> float | None:
        """Score minus cutoff: negative or zero for an evicted entry."""
        if self.score is None or self.cutoff is None:
            return None
        return self.score - self.cutoff

    @property
    def difference(self) -> Mapping[str, float]:
        """Each term minus that of the last kept entry; they add up to the margin."""
        return {name: self.terms[name] - term for name, term in self.marginal_terms.items()}


def explain(
    trace: Trace,
    dialogs: DialogBatch,
    row: int,
    turn: int,
    token: int,
) -> Explanation:
    """Explain what happened to an entry in a turn.

    `turn` counts from 0 over the dialog; `token` is a token of the row, in the cache or not. Raises
    a ValueError if the trace was recorded without entries, or there is no such row, turn or token.

    Examples
    --------
    >>> from fdkvc import SCENARIOS, generate, policy_named, simulate
    >>> dialogs = generate(SCENARIOS["shift"])
    >>> trace = simulate(policy_named("fifo"), dialogs, budget=56)
    >>> why = explain(trace, dialogs, row=0, turn=1, token=7)
    >>> why.status.name, why.rule.name, why.rank, why.score, why.cutoff, why.margin
    ('evicted', 'budget', 57, 7.0, 8.0, -1.0)
    >>> for words in sentences(why):
    ...     print(words)
    Token 7 was evicted in turn 1 because the cache was full.
    Its score of 7 (position) ranked 57th of 64, and 56 were kept.
    The last kept entry scored 8, 1 more.
    """
    view = turn_view(trace, dialogs, row, turn)
    last = int(dialogs.bounds[row, dialogs.turn_counts[row]]) - 1
    if not 0 <= token <= last:
        raise ValueError(f"token is {token}, but this dialog has tokens 0 to {last}")
    why = Explanation(
        view=view,
        token=token,
        topic=dialogs.topics_of(row, np.array([token]))[0],
        born=int(dialogs.born[row, token]),
        eviction=_eviction(trace, dialogs, row, turn, token),
    )
    if token not in view.token:
        return why

    (entry,) = np.flatnonzero(view.token == token).tolist()
    ranked = view.score, view.cutoff
    scores, cutoff = ranked if view.stood[entry] else view.threshold or (None, None)
    # Entries that compete for the slots which protection leaves.
    contends = view.stood & ~view.protected
    marginal = view.marginal if view.stood[entry] else None
    return replace(
        why,
        status=Status(view.status[entry]),
        rule=Rule(view.rule[entry]),
        protected=bool(view.protected[entry]),
        rank=int(view.rank[entry]) or None,
        place=int((contends & (view.rank <= view.rank[entry])).sum())
        if contends[entry]
        else 0,
        score=None if scores is None else float(scores[entry]),
        cutoff=cutoff,
        terms=view.terms_of(entry),
        marginal=None if marginal is None else int(view.token[marginal]),
        marginal_terms={} if marginal is None else view.terms_of(marginal),
        deciding_terms=view.deciding_terms(entry),
    )


def _eviction(
    trace: Trace,
    dialogs: DialogBatch,
    row: int,
    turn: int,
    token: int,
) -> tuple[int, Rule] | None:
    """Return the turn and rule that evicted a token, up to a turn; None if it is cached."""
    is_cached = (trace.kept_tokens[row, : turn + 1] == token).any(axis=1)
    turns_with_it = np.flatnonzero(is_cached)
    # The turn after the last one that ended with the token in the cache.
    absent = (
        int(turns_with_it[-1]) + 1 if len(turns_with_it) else int(dialogs.born[row, token])
    )
    if absent > turn:
        return None
    result = trace.result(absent)
    slots = np.flatnonzero(result.token[row] == token)
    return (absent, Rule(result.rule[row, slots[0]])) if slots.size else None


# ------------------------------------------------------------------------------- in words


def sentences(why: Explanation) -> list[str]:
    """Return an explanation as sentences."""
    by_rule = {
        Rule.none: _why_it_was_kept,
        Rule.budget: _why_the_budget_evicted_it,
        Rule.threshold: _why_the_threshold_evicted_it,
    }
    explanation = _why_it_is_absent if why.status == Status.empty else by_rule[why.rule]
    return [*map(sentence, explanation(why))]


def _why_it_is_absent(why: Explanation) -> Iterator[str]:
    absent = f"token {why.token} is not in the cache in turn {why.view.turn}"
    if why.born > why.view.turn:
        yield f"{absent}: it arrives in turn {why.born}"
    elif why.eviction:
        yield f"{absent}: the {why.eviction[1].name} evicted it in turn {why.eviction[0]}"


def _why_it_was_kept(why: Explanation) -> Iterator[str]:
    view = why.view
    arrived = "arrived and " if why.status == Status.new else ""
    stayed = f"token {why.token} {arrived}was kept in turn {view.turn}"
    if not view.has_tokens:
        yield f"{stayed}: the turn has no tokens, so nothing was decided"
        return
    if view.best_evicted is None:
        occupancy = f"{view.kept.sum():,} of {view.places:,} slots used"
        yield f"{stayed}: the budget evicted nothing, with {occupancy}"
        return
    if why.protected:
        yield f"{stayed}: it is protected regardless of its score"
        yield f"its score of {_score(why)} ranked {ordinal(why.rank or 0)} of {view.stood.sum():,}"
        return
    yield stayed
    yield _standing(why)
    if why.token == why.marginal:
        yield "it was the last kept"
    elif not why.margin:
        yield "the last kept entry scored the same"
    else:
        yield _against(why, "the last kept entry", why.cutoff)
        yield from _terms_against_the_last(why, "for", "higher", "lower")
    yield _against(why, "the best evicted entry", view.best_evicted)


def _why_the_budget_evicted_it(why: Explanation) -> Iterator[str]:
    is_new = why.status == Status.new_evicted
    turn = "the turn it arrived" if is_new else f"turn {why.view.turn}"
    yield f"token {why.token} was evicted in {turn} because the cache was full"
    if why.cutoff is None:
        stayed = int(why.view.kept.sum())
        protected = "a protected entry" if stayed == 1 else "protected entries"
        slots = all_of(stayed, "slot")
        yield f"{protected} took {slots}, so its score of {_score(why)} did not count"
        return
    yield _standing(why)
    yield _against(why, "the last kept entry", why.cutoff)
    if why.margin:
        yield from _terms_against_the_last(why, "against", "lower", "higher")


def _against(why: Explanation, entry: str, entry_score: float | None) -> str:
    """Compare the score with that of another entry."""
    assert why.score is not None
    assert entry_score is not None
    if why.score == entry_score:
        return f"{entry} scored the same; ties go to the older entry"
    digits = _digits(why)
    _, scored = contrast(why.score, entry_score, digits)
    side = "more" if entry_score > why.score else "less"
    return f"{entry} scored {scored}, {gap(why.score, entry_score, digits)} {side}"


def _why_the_threshold_evicted_it(why: Explanation) -> Iterator[str]:
    yield f"token {why.token} was evicted in turn {why.view.turn} by the threshold"
    if why.score is None or why.cutoff is None:
        return
    low, high = contrast(why.score, why.cutoff)
    yield f"its score of {low} was {gap(why.score, why.cutoff)} below the threshold of {high}"
    if len(why.terms) > 1:
        label = why.view.policy.quantity_name
        yield listed(
            [f"{label(name)} contributed {number(x)}" for name, x in why.terms.items()]
        )


def _standing(why: Explanation) -> str:
    """Say where the score ranked, and how many slots there were."""
    view = why.view
    names = [*map(view.policy.quantity_name, why.terms)]
    name = f" ({names[0]})" if len(names) == 1 else ""
    score = f"its score of {_score(why)}{name} ranked"
    slots = view.kept.sum()
    free = (view.kept & ~view.protected).sum()
    if free == slots:
        verb = "was" if slots == 1 else "were"
        place = f"{ordinal(why.rank or 0)} of {view.stood.sum():,}"
        return f"{score} {place}, and {slots:,} {verb} kept"
    contenders = (view.stood & ~view.protected).sum()
    verb = "was" if free == 1 else "were"
    place = f"{ordinal(why.place)} of {contenders:,} unprotected entries"
    return f"{score} {place}, and {free:,} {verb} kept"


def _score(why: Explanation) -> str:
    assert why.score is not None
    return number(why.score, _digits(why))


def _digits(why: Explanation) -> int:
    """Return the fewest decimals at which the scores compared in the sentences differ."""
    return digits_for(why.score, why.cutoff, None if why.rule else why.view.best_evicted)


def _terms_against_the_last(
    why: Explanation, side: str, agreed: str, opposed: str
) -> Iterator[str]:
    """Say which terms decided alone, and how the others compare; nothing if there is one term."""
    if len(why.terms) == 1:
        return
    # With this sign, a positive contribution is on the side of the decision.
    sign = math.copysign(1, why.margin or 0)
    label = why.view.policy.quantity_name
    # First the terms that decided, then those that contributed most to the margin.
    order = sorted(
        why.difference,
        key=lambda term: (term not in why.deciding_terms, -sign * why.difference[term]),
    )
    parts = []
    for term in order:
        contribution = sign * why.difference[term]
        if term in why.deciding_terms:
            verdict = f"decided {side} it"
        elif contribution:
            verdict = f"was {agreed if contribution > 0 else opposed}"
        else:
            verdict = "was equal"
        value, last = contrast(why.terms[term], why.marginal_terms[term])
        parts.append(f"{label(term)} {verdict} ({value} against {last})")
    lead = "" if why.deciding_terms else f"no term alone decided {side} it: "
    yield lead + ", ".join(parts)
    different = [term for term in order if why.difference[term]]
    if lead and sign < 0 and len(different) == 1:
        yield f"with equal {label(different[0])} it would have tied; ties go to the older entry"
