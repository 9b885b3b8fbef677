"""The card in numbers: what is lost today, which way to set at which size, how sure that is.

A way is a policy at the smallest size that keeps enough of what calls need. `sentences` says all of
this in words.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import CALL, age_of
from fdkvc.conversations.replay import transcripts_of
from fdkvc.core.parameters import Field
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import MIN_CLUSTERS, cluster_mean, cluster_share
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.core.words import lost_likelihood, percent
from fdkvc.engine.sinks import SINKS, sinks_of
from fdkvc.policies import CANDIDATES, Policy, read_policy, usable, with_pinned_prompts
from fdkvc.policies.ways import CLEARED, MESSAGES, USER_FIRST, unpinned
from fdkvc.verdict.model_shape import ModelShape
from fdkvc.verdict.search import (
    REFUSED,
    clusters_of,
    halves_of,
    kept_shares,
    needed_values,
    sees_vectors,
    size_without_calls,
    smallest_enough,
)
from fdkvc.verdict.today import REREAD, TodayLoss, ValueCount

TARGETS = (0.9, 0.95, 0.99)
"""Shares of the values that calls need, to keep."""

TARGET = Field(
    "Target",
    "The share of the values that calls need which a way must keep.",
    name="target",
    default="95",
    choices={f"{100 * target:.0f}": percent(target) for target in TARGETS},
)

PAYS, PAYS_TOKENS = 0.15, 256
"""The least share of a cache that is worth evicting for, and the fewest tokens. Choices: sizes are
tried in steps of 5 % of the text and counted by one tokenizer, so that less may be nothing."""

ENGINES = (MESSAGES, USER_FIRST, "shift", CLEARED)
"""What engines and frameworks do by themselves, the simplest first."""

SIMPLEST = (*ENGINES[:3], "sink", CLEARED)
"""Which of ways with the same size comes first."""

MOSTLY_UNCLEARED = 0.5
"""The share of conversations in which clearing may not be enough, for it to be recommended."""

MEASURED_VALUES, MEASURED_DIALOGS = 20, 5
"""From how many values, in how many conversations, a model's reading counts as a measurement."""


def ways_for(recordings: Sequence[Recording]) -> tuple[Policy, ...]:
    """Return the ways to compare: those of `CANDIDATES`, and with a system prompt one more.

    It is the one that SmolLM2 loses least under, with the prompt pinned.
    """
    policies = [*map(read_policy, CANDIDATES)]
    turns = chain.from_iterable(text.turns for text in transcripts_of(recordings))
    if any(turn.kind == "system" for turn in turns):
        policies += with_pinned_prompts([read_policy("sinks(weighted-recency)")])[1:]
    return tuple(dict.fromkeys(policies))


# ------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Way:
    """A way to fit conversations: a policy at the smallest size that keeps enough."""

    policy: str
    size: int | None
    """In tokens; None if no size tried keeps enough."""
    recall: float
    """The share of values that it keeps then; the largest of any size if none is enough."""
    slots: float
    """Tokens stored then."""
    tried: int
    """The size of these numbers: `size`, or else that at which it keeps most."""
    forgets: str = ""
    """The kind and age of most of the values that it lacks."""
    values: ValueCount | None = None
    """What it lacks then; None without calls."""
    reread: float = math.nan
    """Tokens that are read again in a dialog, on average."""
    refused: float = 0.0
    """The share of turns after which services would refuse what stays."""
    uncleared: float = 0.0
    """The share of conversations in which clearing results is not enough, so messages leave."""
    guessed: bool = False
    """Whether it scores by vectors that only a model has, and letters stood in for them."""
    reading: "Reading | None" = None
    sized_by_model: bool = False
    """Whether a model found the size, by values that stay right, and not words."""

    @property
    def in_engines(self) -> bool:
        """Whether engines or frameworks have it, so that nothing of this project is needed."""
        return self.policy in ENGINES

    @property
    def keeps_start(self) -> bool:
        """Whether a model has the first tokens that it needs: they stay, or all is read again."""
        return _keeps_start(self.policy, self.tried)

    @property
    def by_text(self) -> bool:
        """Whether it reaches the target, as far as text tells, or a model."""
        return self.size is not None and not self.guessed


@dataclass(frozen=True)
class Reading:
    """What a model lost under a way, of values needed after it had evicted something."""

    right: int
    """Values that it gets right, of those that it gets right with the full cache."""
    values: int
    """Values that it gets right with the full cache."""
    kl: float
    """The KL from the full cache's predictions, in nats a token."""
    dialogs: int
    """From how many it evicted."""
    low: float = math.nan
    high: float = math.nan
    """The interval of the share of values that stay right, over clusters; NaN without one."""

    @property
    def cell(self) -> str:
        """The cell of a table: values, and by how much expected words become less likely."""
        right = f"{self.right} of {self.values}; " if self.values else ""
        return f"{right}{lost_likelihood(self.kl)}"

    @property
    def wrong(self) -> int:
        """How many values changed."""
        return self.values - self.right

    @property
    def measures(self) -> bool:
        """Whether these are enough to call it a measurement."""
        return self.values >= MEASURED_VALUES and self.dialogs >= MEASURED_DIALOGS

    def reaches(self, target: float) -> bool:
        """Whether this share of the values stayed right."""
        return self.right >= target * self.values


@dataclass(frozen=True)
class Promise:
    """What is expected on other conversations: ways are chosen on one half, tried on the other."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ModelRead:
    """What a model has read."""

    model: str
    names: tuple[str, ...]
    """Those of the dialogs."""
    tokens: int
    scores: Mapping[str, Reading]
    """By policy; without those that evicted nothing."""
    partly_read: int = 0
    """Of how many dialogs it has read the first turns only."""
    unread: int = 0
    """How many other dialogs can be checked, too: something is needed after the recommended way
    evicts, within the limit of the check."""
    sizes: Mapping[str, int | None] = field(default_factory=dict)
    """The size that it found for a policy, in tokens of the card; None if no size is enough."""

    @property
    def dialogs(self) -> int:
        """How many it has read."""
        return len(self.names)


@dataclass(frozen=True)
class Advice:
    """What to do: keep today's limit, set a way, or both in turn."""

    keeps_today: bool
    """Whether today's limit keeps what is asked for."""
    stored: float
    """Tokens without it: of a conversation, or of a limit that is kept."""
    saved: float
    """Tokens of these that the recommended way saves."""
    offered: tuple[Way, ...]
    """That way and a smaller one of this project's cache, of these what saves enough."""
    stores_less: bool
    """Whether that only stores less: today's limit is enough, or a larger one would be, which an
    engine can have, where the setting is this project's."""

    @property
    def setting(self) -> Way | None:
        """The way to set; None if there is none, or if it saves too little."""
        return self.offered[0] if self.offered else None


@dataclass(frozen=True)
class Card:
    """The answer to what is lost today, which way to set, and how sure that is."""

    ways: tuple[Way, ...]
    """Those that keep enough first, the smallest size first."""
    best: Way | None
    """The recommended one; None if none is."""
    by_words: Way | None
    """The one recommended before a model read it."""
    tokens: float
    """Of a dialog, on average."""
    target: float
    dialogs: int
    """Those with calls, or all if none has."""
    clusters: int
    """Of those with calls."""
    shape: ModelShape
    unit: str
    """Whose tokens these are."""
    own_tokens: bool = False
    """Whether they are those of the model of the shape, so that bytes are its."""
    promise: Promise | None = None
    read: ModelRead | None = None
    today: TodayLoss | None = None
    dominating: int = 0
    """How many conversations, all of one cluster, have nearly all of the values; 0 for none."""

    @cached_property
    def advice(self) -> Advice:
        """What to do."""
        best = self.best
        loss = self.today
        stored = self.tokens
        keeps_today = loss is not None and loss.is_enough(self.target)
        keeps_today = keeps_today or self.reading_within_today is not None
        if loss is not None and keeps_today:
            stored = min(stored, loss.today.tokens)
        named = filter(None, (best, self.smaller))
        offered = [row for row in named if pays(stored - row.slots, stored)]
        saving = offered[0] if offered else best
        saved = 0.0 if saving is None else max(stored - saving.slots, 0.0)
        larger_is_enough = loss is not None and loss.larger_is_enough
        is_ours = bool(offered) and not offered[0].in_engines
        stores_less = keeps_today or (larger_is_enough and is_ours)
        return Advice(keeps_today, stored, saved, tuple(offered), stores_less)

    @property
    def reading_within_today(self) -> Reading | None:
        """What a model lost without calls by the way of today, at a size within today's limit."""
        best = self.best
        if self.today is None or best is None or self.clusters:
            return None
        limit = self.today.today
        within = best.policy == limit.policy and best.tried <= limit.tokens
        return best.reading if within else None

    @property
    def main_way(self) -> Way | None:
        """The way of the setting, or without one the recommended way."""
        return self.advice.setting or self.best

    @cached_property
    def smaller(self) -> Way | None:
        """The smallest way that this project's cache has, where the recommended one is larger."""
        best = self.best
        if best is None or not best.in_engines:
            return None
        for candidate in self._beside(best):
            if not candidate.in_engines and candidate.slots < best.slots:
                return candidate
        return None

    def _beside(self, best: Way) -> Iterator[Way]:
        """Yield the ways that may be named beside the recommended one.

        They were sized as it was, and read if it was, with enough right.
        """
        for candidate in self.ways:
            safe = candidate.by_text and candidate.keeps_start
            reading = candidate.reading
            is_read = best.reading is None if reading is None else reading.reaches(self.target)
            if safe and is_read and candidate.sized_by_model == best.sized_by_model:
                yield candidate

    @cached_property
    def ties(self) -> tuple[Way, ...]:
        """The ways that need as many tokens as the main one, and lose hardly more."""
        best = self.main_way
        if best is None or not best.by_text:
            return ()
        ties = []
        for candidate in self._beside(best):
            same_size = candidate.size == best.size and candidate.policy != best.policy
            lacks = candidate.uncleared > 0 or candidate.refused > best.refused
            loses_more = any(
                _loses_more(candidate, row) for row in (best, *self._beside(best))
            )
            if same_size and not lacks and not loses_more:
                ties.append(candidate)
        return tuple(ties)


@lru_cache(1024)  # a page asks it of a dozen ways, some twenty times each
def _keeps_start(policy: str, size: int) -> bool:
    return sinks_of(read_policy(policy), size) == SINKS


def pays(saved: float, tokens: float) -> bool:
    """Whether it is worth evicting to save so many of these tokens."""
    return saved >= max(PAYS * tokens, PAYS_TOKENS)


def _loses_more(candidate: Way, best: Way) -> bool:
    """Whether a model lost clearly more under one of two ways."""
    if candidate.reading is None or best.reading is None:
        return False
    wrong = best.reading.wrong + _few(best.reading.values)
    return candidate.reading.kl > best.reading.kl + CLEARLY or candidate.reading.wrong > wrong


def _few(values: int) -> int:
    """Return by how many of these values two ways may differ and still be taken for equal."""
    return max(1, round(FEW * values))


def find_card(
    policies: Sequence[Policy],
    tables: tuple[pd.DataFrame, pd.DataFrame],
    lengths: Sequence[int],
    shape: ModelShape,
    target: float,
    unit: str,
    read: ModelRead | None = None,
    today: TodayLoss | None = None,
    least_lengths: Sequence[int] = (),
    *,
    own_tokens: bool = False,
) -> Card:
    """Return the card of a replay, whose tables are those of `replay_arguments`.

    `lengths` are the tokens of the dialogs, counted as `unit` says, `least_lengths` those that no
    clearing of results removes. With `own_tokens`, they are those of the model of this shape.
    """
    tokens = float(np.mean(lengths))
    by_name = {row.name: row for row in usable(policies)}
    values = needed_values(tables[1])
    values = values[values.policy.isin([*by_name])]
    candidates = []
    worded = []
    for name, policy in by_name.items():
        shares = kept_shares(values[values.policy == name])
        if not (shares or values.empty):
            continue
        reading = None if read is None else read.scores.get(name)
        size = size_without_calls(tokens) if values.empty else smallest_enough(shares, target)
        candidate = _sized_way(policy, size, shares, tokens, tables, least_lengths)
        candidate = replace(candidate, guessed=sees_vectors(policy), reading=reading)
        worded.append(candidate)
        if read is not None and name in read.sizes and not values.empty:
            size = read.sizes[name]
            candidate = _sized_way(policy, size, shares, tokens, tables, least_lengths)
            # What was read is of the size that words gave, where the model finds none.
            read_there = None if size is None else reading
            candidate = replace(candidate, reading=read_there, sized_by_model=True)
        candidates.append(candidate)
    candidates.sort(key=_order)
    worded.sort(key=_order)
    if values.empty:
        # A model compares them; the best is first if it did.
        candidates = [row for row in candidates if row.keeps_start]
        candidates.sort(key=lambda row: math.inf if row.reading is None else row.reading.kl)
    by_words = None if values.empty else chosen_way(worded, tokens)
    best = by_words if read is None else judged_way(candidates, by_words, read, tokens)
    dialogs = values.drop_duplicates("dialog")
    # What is chosen on one half: any way that words may choose, or the one that the model chose.
    chosen = [best] if best != by_words else candidates
    promise = None
    if best is not None and not best.sized_by_model:
        by_text = [candidate for candidate in chosen if candidate and not candidate.guessed]
        promise = promised(by_text, values, target, tokens)
    return Card(
        tuple(candidates),
        best,
        by_words,
        tokens,
        target,
        len(dialogs) or len(lengths),
        int(dialogs.services.nunique()),
        shape,
        unit,
        own_tokens,
        promise,
        read,
        today,
        dominating_dialogs(values),
    )


def dominating_dialogs(values: pd.DataFrame) -> int:
    """Return how many dialogs have nearly all values, all of one cluster of many; 0 if none have.

    Then other clusters have too little weight for an interval.
    """
    clusters = clusters_of(values)
    if clusters.nunique() < MIN_CLUSTERS:
        return 0
    if not math.isnan(cluster_mean(values.kept, clusters.tolist()).error):
        return 0
    return int(values.dialog[clusters == clusters.mode()[0]].nunique())


def _sized_way(
    policy: Policy,
    size: int | None,
    shares: Mapping[int, float],
    tokens: float,
    tables: tuple[pd.DataFrame, pd.DataFrame],
    least_lengths: Sequence[int],
) -> Way:
    """Return a way at its size, or else at the size at which it keeps most.

    It says what it loses, reads again and leaves to others then.
    """
    tried = size or max(shares, key=shares.__getitem__, default=size_without_calls(tokens))
    needs, rows = (
        table[(table.policy == policy.name) & (table.budget == tried)]
        for table in reversed(tables)
    )
    reread = rows[rows.metric == REREAD].value.mean()
    refused = rows[rows.metric == REFUSED].value.mean()
    clears = policy.clears_results and len(least_lengths)
    return Way(
        policy.name,
        size,
        shares.get(tried, math.nan),
        min(float(policy.slots(tried, 1, 1)), tokens),
        tried,
        forgets=forgets_most(needs),
        values=ValueCount.of(needs) if len(needs) else None,
        reread=reread if policy.reads_again else math.nan,
        refused=0.0 if math.isnan(refused) else refused,
        uncleared=float(np.mean(np.array(least_lengths) > tried)) if clears else 0.0,
    )


def _order(candidate: Way) -> tuple[float, ...]:
    """Return what orders ways: the smallest first.

    Of a size, one that does all by itself and whose turns services never refuse, then the simplest,
    then one that reads nothing again.
    """
    name = unpinned(candidate.policy)
    simplicity = SIMPLEST.index(name) if name in SIMPLEST else len(SIMPLEST)
    rereads = read_policy(candidate.policy).reads_again
    lacks = candidate.refused > 0 or candidate.uncleared > 0
    size = math.inf if candidate.size is None else candidate.size
    return size, lacks, simplicity, rereads, -candidate.recall


def chosen_way(candidates: Sequence[Way], tokens: float) -> Way | None:
    """Return the first way that may be recommended by text, of those that keep the first tokens.

    What engines have comes before the others, if it saves enough of so many tokens.
    """
    sized = [candidate for candidate in candidates if candidate.by_text]
    safe = [candidate for candidate in sized if candidate.keeps_start] or sized
    for candidate in safe:
        clears_most = candidate.uncleared <= MOSTLY_UNCLEARED
        if candidate.in_engines and clears_most and pays(tokens - candidate.slots, tokens):
            return candidate
    return next(iter(safe), None)


CLEARLY = 0.1
"""Difference in KL, in nats a token, from which on a way loses clearly more than another. A choice:
the words that the full cache expects then have a tenth less probability (e^−0.1 = 0.90)."""

FEW = 0.05
"""The share of values by which two ways may differ and still be taken for equal. A choice: one of
twenty, and one value at least."""


def judged_way(
    candidates: Sequence[Way], by_words: Way | None, read: ModelRead, tokens: float
) -> Way | None:
    """Return the way that a model recommends: of those that it sized, as of those by words.

    If it sized none, the smallest and simplest of the ways read that loses hardly more than the one
    that loses least. That by words comes before all others then, and what is sized by letters after
    them. Of fewer than `DECIDING_VALUES` values, the way by words stays. A dialog from which a way
    evicts nothing loses nothing.
    """
    sized = {
        candidate.policy: candidate for candidate in candidates if candidate.sized_by_model
    }
    best = chosen_way([*sized.values()], tokens)
    # That all sized ways lose too much says nothing of a way by words that is not among them.
    if best is not None or (sized and (by_words is None or by_words.policy in sized)):
        return best
    ordered = sorted(
        candidates,
        key=lambda candidate: (candidate != by_words, candidate.guessed, _order(candidate)),
    )
    losses = list[tuple[Way, float, int]]()
    for candidate in ordered:
        if candidate.size is not None and candidate.reading is not None:
            kl = candidate.reading.kl * candidate.reading.dialogs / read.dialogs
            losses.append((candidate, kl, candidate.reading.wrong))
    values = max((reading.values for reading in read.scores.values()), default=0)
    if not losses or (by_words is not None and values < DECIDING_VALUES):
        return by_words
    smallest_kl = min(kl for _, kl, _ in losses)
    if by_words is None and smallest_kl > CLEARLY:
        return None
    fewest_wrong = min(wrong for _, _, wrong in losses)
    for candidate, kl, wrong in losses:
        if kl <= smallest_kl + CLEARLY and wrong <= fewest_wrong + _few(values):
            return candidate
    return by_words


DECIDING_VALUES = 10
"""How many values a model must have read for its reading to change the way by words. A choice:
with fewer, a single value would decide."""

AGE_WORDS = {"recent": "recent ", "middle": "", "old": "old "}
"""How people call ages."""


def forgets_most(arguments: pd.DataFrame) -> str:
    """Return the kind and age of most values that were lost, "" if none was.

    Examples
    --------
    >>> columns = {"held": [0.0, 1.0], "source": ["result", "user"], "age": [8, 1]}
    >>> forgets_most(pd.DataFrame(columns))
    'mostly old tool results'
    """
    lost = arguments[arguments.held < 1]
    if lost.empty:
        return ""
    source = lost.source.value_counts().index[0]
    kind = SPAN_KINDS[source]
    words = f"{kind}s" if source in ("call", "result") else f"words of the {kind}"
    age = lost.age.map(age_of).value_counts().index[0]
    return f"mostly {AGE_WORDS[age]}{words}"


def promised(
    chosen_ways: Sequence[Way],
    values: pd.DataFrame,
    target: float,
    tokens: float,
) -> Promise | None:
    """Return what ways hold that were chosen on the other half of the clusters.

    None if a half alone chooses none, or without an interval over clusters (see `cluster_share`).
    """
    halves = halves_of(values)
    values = values.assign(cluster=clusters_of(values))
    half = values.dialog.map(halves)
    kept_values = []
    clusters = []
    calls = 0
    for half_number in (0, 1):
        chosen = []
        for candidate in chosen_ways:
            name = candidate.policy
            rows = values[(values.policy == name) & (half != half_number)]
            shares = kept_shares(rows)
            size = smallest_enough(shares, target)
            if size is not None:
                slots = float(min(size, tokens))
                recall = shares[size]
                chosen.append(
                    replace(candidate, size=size, tried=size, slots=slots, recall=recall)
                )
        choice = chosen_way(sorted(chosen, key=_order), tokens)
        # The half that needs most would be told of, but would choose nothing.
        if choice is None:
            return None
        test_rows = values[(values.policy == choice.policy) & (values.budget == choice.size)]
        test_rows = test_rows[test_rows.dialog.map(halves) == half_number]
        kept_values += test_rows.kept.tolist()
        clusters += test_rows.cluster.tolist()
        calls += len(test_rows.drop_duplicates(CALL))
    if not kept_values:
        return None
    low, high = cluster_share(kept_values, clusters, calls)
    return None if math.isnan(low) else Promise(float(np.mean(kept_values)), low, high)
