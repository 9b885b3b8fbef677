"""The card: which way makes conversations fit, with how many tokens, and what that loses.

A way is a policy at the smallest size that holds enough of what calls need. Everything said of the
ways is a cell of `card_grid`, and the two sentences are those of `card_sentences`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.conversations.arguments import age_of
from fdkvc.conversations.forgot import ModelLoss, Recorded
from fdkvc.conversations.replay import transcripts_of
from fdkvc.core.parameters import Field
from fdkvc.core.recordings import Recording
from fdkvc.core.statistics import MIN_CLUSTERS, cluster_mean, share_interval
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.core.words import count, decimal, percent, ranged, written_bytes
from fdkvc.engine.evidence import OLD, RECENT
from fdkvc.engine.sinks import SINKS, sinks_of
from fdkvc.policies import CANDIDATES, Policy, read_policy, usable, with_pinned_prompts
from fdkvc.policies.ways import EVICT, unpinned, way_words
from fdkvc.runs.grid import Grid
from fdkvc.verdict.model_shape import ModelShape
from fdkvc.verdict.search import REFUSED, call_recalls, guessed, halves_of, mean_recalls, reaches

TARGETS = (0.9, 0.95, 0.99)
"""Call-argument recalls to reach."""

TARGET = Field(
    "Target",
    "The share of the values that calls need which a way must hold.",
    name="target",
    default="95",
    choices={f"{100 * target:.0f}": percent(target) for target in TARGETS},
)

PAYS, PAYS_TOKENS = 0.15, 256
"""The least share of a cache that is worth evicting for, and the fewest tokens. Choices: sizes are
tried in steps of 5 % of the text and counted by one tokenizer, so that less may be nothing."""

WITHOUT_CALLS = 0.25
"""The share of the text at which a model reads conversations whose words tell no size."""

TODAY = ("reread(messages(fifo))", "reread(clear-results)", "shift", "sink", "fifo")
"""What engines and frameworks do, as far as it is compared: what most do first."""

FITTED = "this project; "
"""How the source of a policy begins that names the data to which it was fitted."""

REREAD = "tokens_reread"
"""The metric of tokens that are read again, where a policy reads any."""


def _imperative(name: str) -> str:
    """Return a way as the beginning of a sentence that says what to do."""
    words = way_words(name)
    if words.startswith(EVICT):
        return f"Evict entries by {words.removeprefix(EVICT)}"
    verb = "Keep" if name == "sink" else "Use"
    return f"{verb} {words}" if name in ("sink", "shift") else f"{words[0].upper()}{words[1:]}"


def ways_for(recordings: Sequence[Recording], added: Sequence[str] = ()) -> tuple[Policy, ...]:
    """Return the ways to compare: those of `CANDIDATES`, and some `added`.

    Those without surprisal leave out what looks at it. Where there is a system prompt, the one that
    SmolLM2 loses least under also runs with the prompt pinned.
    """
    unread_surprisal = recordings[0].surprisal is None
    candidates = map(read_policy, (*CANDIDATES, *added))
    policies = [row for row in candidates if not (unread_surprisal and "surprisal" in row.looks_at)]
    texts = transcripts_of(recordings)
    if (
        any("system" in (turn.kind for turn in text.turns) for text in texts)
        and not unread_surprisal
    ):
        policies += with_pinned_prompts([read_policy("sinks(weighted-recency)")])[1:]
    return tuple(dict.fromkeys(policies))


# ------------------------------------------------------------------------------- rows


@dataclass(frozen=True)
class Way:
    """A way to fit conversations: a policy at the smallest size that holds enough."""

    policy: str
    size: int | None
    """In tokens; None if no size tried holds enough."""
    recall: float
    """The share of values that it holds then; the largest of any size if none is enough."""
    slots: float
    """Tokens stored then, with a second tier."""
    forgets: str
    """The kind and age of most of the values that it lacks."""
    reread: float = math.nan
    """Tokens that are read again in a dialog, on average."""
    refused: float = 0.0
    """The share of turns after which services would refuse what stays."""
    guessed: bool = False
    """Whether it scores by vectors that only a model has, and letters stood in for them."""
    reading: "Reading | None" = None


@dataclass(frozen=True)
class Reading(ModelLoss):
    """What a model lost under a way, of values needed after it had evicted something."""

    dialogs: int
    """From how many it evicted."""


@dataclass(frozen=True)
class Promise:
    """What is expected on other conversations: ways are chosen on one half, tried on the other."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class ModelRead:
    """What a model has read so far."""

    model: str
    names: tuple[str, ...]
    """Those of the dialogs."""
    tokens: int
    scores: Mapping[str, Reading]
    """By policy; without those that evicted nothing."""
    complete: bool = True
    """Whether it has read under every way that matters."""
    begun: int = 0
    """Of how many dialogs it has read the first turns only."""
    unread: int = 0
    """How many other dialogs can be checked, too: something is needed after the recommended way
    evicts, within the limit of the check."""

    @property
    def dialogs(self) -> int:
        """How many it has read."""
        return len(self.names)

    def joined(self, later: "ModelRead") -> "ModelRead":
        """Return what it has read with what it read later, of other dialogs."""
        scores = {**self.scores, **later.scores}
        for name in self.scores.keys() & later.scores.keys():
            readings = self.scores[name], later.scores[name]
            dialogs = sum(reading.dialogs for reading in readings)
            kl = sum(reading.kl * reading.dialogs for reading in readings) / dialogs
            right = sum(reading.right for reading in readings)
            values = sum(reading.values for reading in readings)
            scores[name] = Reading(right, values, kl, dialogs)
        names, tokens = (*self.names, *later.names), self.tokens + later.tokens
        partial_dialogs = self.begun + later.begun
        return replace(later, names=names, tokens=tokens, scores=scores, begun=partial_dialogs)


@dataclass(frozen=True)
class Card:
    """The answer to which way, and how much."""

    ways: tuple[Way, ...]
    """Those that hold enough first, the smallest size first."""
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
    promise: Promise | None = None
    read: ModelRead | None = None
    recorded: Recorded | None = None
    """What compactions in the conversations forgot."""

    @property
    def pays(self) -> bool:
        """Whether the recommended way saves enough."""
        saved = 0.0 if self.best is None else self.tokens - self.best.slots
        return saved >= max(PAYS * self.tokens, PAYS_TOKENS)

    @property
    def settings(self) -> dict[str, str]:
        """What sets the recommended way, by engine; none where it does not pay."""
        if self.best is None or not self.pays:
            return {}
        return settings_of(self.best, self.tokens, self.unit)

    @property
    def today(self) -> Way | None:
        """What people do, of the ways compared."""
        by_name = {unpinned(candidate.policy): candidate for candidate in reversed(self.ways)}
        return next((by_name[name] for name in TODAY if name in by_name), None)


def smallest_size(rows: pd.DataFrame, target: float) -> int | None:
    """Return the smallest size whose mean recall is enough, as are those of all larger ones."""
    smallest = None
    for size, mean in sorted(mean_recalls(rows).items(), reverse=True):
        if not reaches(mean, target):
            break
        smallest = size
    return smallest


def find_card(
    policies: Sequence[Policy],
    tables: tuple[pd.DataFrame, pd.DataFrame],
    lengths: Sequence[int],
    source: str,
    shape: ModelShape,
    target: float,
    unit: str,
    read: ModelRead | None = None,
    recorded: Recorded | None = None,
) -> Card:
    """Return the card of a replay, whose tables are those of `replay_arguments`.

    `lengths` are the tokens of the dialogs, counted as `unit` says, and `source` tells where their
    vectors come from.
    """
    table, arguments = tables
    mode = table.heads.iloc[0] if len(table) else ""
    table, arguments = table[table.heads == mode], arguments[arguments.heads == mode]
    recalls, tokens = call_recalls(table), float(np.mean(lengths))
    by_name = {row.name: row for row in usable(policies)}
    recalls = recalls[recalls.policy.isin([*by_name])]
    reread, refused = (
        table[table.metric == metric].groupby(["policy", "budget"]).value.mean()
        for metric in (REREAD, REFUSED)
    )
    candidates = list[Way]()
    for name, rows in recalls.groupby("policy", sort=False):
        policy = by_name[str(name)]
        size = smallest_size(rows, target)
        means = mean_recalls(rows)
        shown_size = max(means, key=means.__getitem__) if size is None else size
        stored = policy.slots(shown_size, 1, 1) + policy.tier_places(shown_size, int(tokens))
        cell = (arguments.policy == name) & (arguments.budget == shown_size)
        candidates.append(
            Way(
                policy.name,
                size,
                means[shown_size],
                min(float(stored), tokens),
                forgets_most(arguments[cell]),
                float(reread.get((name, shown_size), math.nan)) if policy.reads_again else math.nan,
                float(refused.get((name, shown_size), 0.0)),
                guessed(policy, source),
                None if read is None else read.scores.get(policy.name),
            )
        )
    candidates.sort(key=_smallest)
    if recalls.empty:
        candidates = ways_without_calls([*by_name.values()], tokens, source, read)
    by_words = None if recalls.empty else chosen_way(candidates)
    best = by_words if read is None or not read.complete else judged_way(candidates, by_words, read)
    dialogs = recalls.drop_duplicates("dialog")
    # What is chosen on one half: any way that words may choose, or the one that the model chose.
    chosen = [
        row for row in ([best] if best != by_words else candidates) if row and not row.guessed
    ]
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
        None if best is None else promised(chosen, recalls, arguments, target),
        read,
        recorded,
    )


def ways_without_calls(
    policies: Sequence[Policy], tokens: float, source: str, read: ModelRead | None
) -> list[Way]:
    """Return the ways at one share of the text, for a model to compare; best first if it did."""
    size, scores = max(1, round(WITHOUT_CALLS * tokens)), {} if read is None else read.scores
    candidates = list[Way]()
    for policy in policies:
        slots, by_letters = float(min(size, tokens)), guessed(policy, source)
        candidate = Way(policy.name, size, math.nan, slots, "", guessed=by_letters)
        if keeps_start(candidate):
            candidates.append(replace(candidate, reading=scores.get(policy.name)))
    return sorted(
        candidates,
        key=lambda candidate: math.inf if candidate.reading is None else candidate.reading.kl,
    )


def _smallest(candidate: Way) -> tuple[float, ...]:
    """Return what orders ways: the smallest first.

    Of a size, one whose turns services never refuse, and then one that reads nothing again.
    """
    rereads = read_policy(candidate.policy).reads_again
    is_refused = candidate.refused > 0
    return candidate.size is None, candidate.size or 0, is_refused, rereads, -candidate.recall


def chosen_way(candidates: Sequence[Way]) -> Way | None:
    """Return the first way that may be recommended by text, of those that keep the first tokens."""
    sized = [
        candidate
        for candidate in candidates
        if candidate.size is not None and not candidate.guessed
    ]
    return next(filter(keeps_start, sized), sized[0] if sized else None)


def keeps_start(candidate: Way) -> bool:
    """Whether a model has the first tokens that it needs: they stay, or the text is read again."""
    return sinks_of(read_policy(candidate.policy), candidate.size or 1) == SINKS


CLEARLY = 0.1
"""Difference in KL, in nats a token, from which on a way loses clearly more than another. A choice:
the words that the full cache expects then have a tenth less probability (e^−0.1 = 0.90)."""

FEW = 0.05
"""The share of values by which two ways may differ and still be taken for equal. A choice: one of
twenty, and one value at least."""


def judged_way(candidates: Sequence[Way], by_words: Way | None, read: ModelRead) -> Way | None:
    """Return the smallest of the ways read that loses hardly more than the one that loses least.

    That by words comes before all others, and what is sized by letters after them. A dialog from
    which a way evicts nothing loses nothing.
    """
    ordered = sorted(candidates, key=lambda candidate: (candidate != by_words, candidate.guessed))
    losses = list[tuple[Way, float, int]]()
    for candidate in ordered:
        if candidate.size is not None and candidate.reading is not None:
            kl = candidate.reading.kl * candidate.reading.dialogs / read.dialogs
            losses.append((candidate, kl, candidate.reading.values - candidate.reading.right))
    if not losses:
        return by_words
    smallest_kl = min(kl for _, kl, _ in losses)
    if by_words is None and smallest_kl > CLEARLY:
        return None
    fewest_wrong = min(wrong for _, _, wrong in losses)
    values = max(reading.values for reading in read.scores.values())
    few_values = max(1, round(FEW * values))
    for candidate, kl, wrong in losses:
        if kl <= smallest_kl + CLEARLY and wrong <= fewest_wrong + few_values:
            return candidate
    return by_words


AGE_SHORT = {"recent": f"≤ {RECENT} turns", "middle": f"≤ {OLD} turns", "old": f"> {OLD} turns"}


def forgets_most(arguments: pd.DataFrame) -> str:
    """Return the kind and age of most values that were lost, "" if none was.

    Examples
    --------
    >>> columns = {"held": [0.0, 1.0], "source": ["result", "user"], "age": [8, 1]}
    >>> forgets_most(pd.DataFrame(columns))
    'tool result, > 6 turns'
    """
    lost = arguments[arguments.held < 1]
    if lost.empty:
        return ""
    kind = SPAN_KINDS[lost.source.value_counts().index[0]]
    age = lost.age.map(age_of).value_counts().index[0]
    return f"{kind}, {AGE_SHORT[age]}"


def promised(
    chosen_ways: Sequence[Way], recalls: pd.DataFrame, arguments: pd.DataFrame, target: float
) -> Promise | None:
    """Return what ways hold that were chosen on the other half of the clusters.

    None if a half alone chooses none. The interval is the wider one of that over clusters, if there
    are enough, and of Wilson's for as many calls.
    """
    halves = halves_of(recalls)
    half = recalls.dialog.map(halves)
    values, services, calls = list[float](), list[str](), 0
    for half_number in (0, 1):
        chosen = list[Way]()
        for candidate in chosen_ways:
            name, refused = candidate.policy, candidate.refused
            rows = recalls[(recalls.policy == name) & (half != half_number)]
            size = smallest_size(rows, target) if len(rows) else None
            if size is not None:
                recall = rows[rows.budget == size].value.mean()
                chosen.append(Way(name, size, recall, size, "", refused=refused))
        way = chosen_way(sorted(chosen, key=_smallest))
        if way is None:  # the half that needs most would be told of, but would choose nothing
            return None
        test_rows = recalls[(recalls.policy == way.policy) & (recalls.budget == way.size)]
        test_rows = test_rows[test_rows.dialog.map(halves) == half_number]
        values += test_rows.value.tolist()
        services += test_rows.services.tolist()
        needs = arguments[(arguments.policy == way.policy) & (arguments.budget == way.size)]
        needs = needs[needs.dialog.isin(test_rows.dialog)]
        calls += len(needs.drop_duplicates(["dialog", "turn", "call", "call_number"]))
    if not values or not calls:
        return None
    mean = float(np.mean(values))
    low, high = share_interval(round(mean * calls), calls)
    interval = cluster_mean(values, services).interval
    if not math.isnan(interval[0]):
        low, high = min(low, max(interval[0], 0.0)), max(high, min(interval[1], 1.0))
    return Promise(mean, low, high)


# ------------------------------------------------------------------------------- what is said


def card_sentences(card: Card) -> tuple[str, str]:
    """Return which way and how much, and what that rests on."""
    best, full = card.best, written_bytes(card.tokens * card.shape.entry_bytes)
    read = card.read if card.read is not None and card.read.complete else None
    if not card.clusters and read is None:
        return (
            "No call in these conversations needs a value said before, so only a model can tell "
            "which size is enough.",
            "No model has read them yet.",
        )
    if best is None or best.size is None or not card.pays:
        limit = percent(1 - PAYS)
        why = f"no way tried holds {percent(card.target)} of what calls need in less than {limit}"
        if not card.clusters:
            why = f"in {percent(WITHOUT_CALLS)} of the text, every way loses over {CLEARLY} nats"
        if best is not None and best.size is not None:
            saved = round(card.tokens - best.slots)
            bound = f"{PAYS_TOKENS} tokens" if saved < PAYS_TOKENS else percent(PAYS)
            name = way_words(best.policy)
            why = f"“{name}” would save {count(saved, 'token')}, less than {bound}"
        lead = f"It does not pay to evict here: {why}; all {card.tokens:,.0f} tokens take {full}"
        lead = f"{lead} in {card.shape.name}."
    else:
        stored = written_bytes(best.slots * card.shape.entry_bytes)
        share = percent(best.size / card.tokens)
        size = f"{best.size:,} tokens of {card.unit} ({share} of a conversation)"
        lead = f"{_imperative(best.policy)} with {size}: {stored} instead of {full}"
        lead = f"{lead} in {card.shape.name}."
        if best.refused > 0:
            lead = f"{lead} After {refused_words(best.refused)}."
        if read is None:
            lead = f"By its words, before a model has read it: {lead[0].lower()}{lead[1:]}"
    return lead, _basis(card, read)


def _basis(card: Card, read: ModelRead | None) -> str:
    best, parts = card.best, list[str]()
    if read is None:
        parts.append("Sized by the words of values that calls need")
    else:
        reading = None if best is None else best.reading
        lost = "" if reading is None else f": {reading_words(reading)}"
        among = f"{read.dialogs} of {count(read.dialogs + read.unread, 'conversation')}"
        among += " that can be checked at this size"
        among += f", {read.begun} in part" if read.begun else ""
        parts.append(f"{read.model} read {among}, {count(read.tokens, 'token')}{lost}")
        if best != card.by_words and card.by_words is not None:
            parts[-1] += f"; by words it would be {way_words(card.by_words.policy)}"
        if best is not None and best.guessed:
            parts.append("its size is a guess, by letters of words")
    source = read_policy(best.policy).core.source if best is not None else ""
    if source.startswith(FITTED):
        parts.append(f"this way was {source.removeprefix(FITTED)}")
    if card.promise is not None:
        promise = ranged(card.promise.mean, card.promise.low, card.promise.high, 0, percent)
        parts.append(f"on conversations not used to choose, {promise} of what calls need is held")
    if not card.clusters:
        parts.append("no call says which values must stay")
    elif card.clusters < MIN_CLUSTERS:
        parts.append(f"a guess from {count(card.dialogs, 'conversation')}")
    words = "; ".join(parts)
    return f"{words[0].upper()}{words[1:]}."


def reading_words(reading: ModelLoss) -> str:
    """Return what a model lost, in a few words."""
    if not reading.values:
        return f"its predictions change by {decimal(reading.kl, 2)} nats a token"
    verb = "stays" if reading.values == 1 else "stay"
    return f"{reading.right} of {count(reading.values, 'value')} {verb} right"


def refused_words(share: float) -> str:
    """Return after which share of turns services refuse what stays, and why."""
    shown = "under 1 %" if share < 0.01 else percent(share)
    return (
        f"{shown} of the turns, what stays has no user's message or a result without its call, "
        "which services refuse"
    )


def legend(card: Card) -> str:
    """Return what the cells of the table count."""
    parts = [
        f"Tokens are those of {card.unit}, with the marks of its chat template; for another model, "
        "take the same share of the text"
    ]
    if card.settings and card.best is not None and "clear-results" in card.best.policy:
        parts.append("where clearing is not enough, drop the oldest messages: its setting does not")
    if any(way.reread > 0 for way in card.ways):
        parts.append("again: tokens read again")
    if any(way.reading is not None for way in card.ways):
        parts.append("right, KL: values that stay right, nats a token from the full cache")
    if any(way.guessed for way in card.ways):
        parts.append("*: sized by letters of words, not by a model's vectors")
    if refused := max((way.refused for way in card.ways), default=0.0):
        parts.append(f"†: after up to {refused_words(refused)}")
    return f"{'; '.join(parts)}."


RECORDED = "your compactions, recorded"


def card_grid(card: Card, *, policies: bool = True) -> Grid:
    """Return the table of the ways, the recommended one marked; with the `policies` of the code.

    Without these it is narrower, for a terminal.
    """
    rows = []
    for candidate in card.ways:
        mark = " ←" if candidate == card.best and card.pays else ""
        note = f"{' *' if candidate.guessed else ''}{' †' if candidate.refused > 0 else ''}"
        row = [f"{way_words(candidate.policy)}{note}{mark}"]
        if candidate.size is None:
            recall = (
                math.floor(100 * candidate.recall + 1e-6) / 100
            )  # below the target, so it reads so
            sizes = [f"never: {percent(recall)}", "", ""]
        else:
            stored = written_bytes(candidate.slots * card.shape.entry_bytes)
            sizes = [f"{candidate.size:,}", percent(candidate.size / card.tokens), stored]
            sizes = sizes if policies else [f"{sizes[0]} ({sizes[1]})", "", stored]
        reread = "–" if math.isnan(candidate.reread) else f"{candidate.reread:,.0f}"
        read = "" if candidate.reading is None else candidate.reading.cell
        code = [candidate.policy] if policies else []
        forgets = candidate.forgets if policies else candidate.forgets.removesuffix(" turns")
        rows.append([*row, *sizes, reread, read, forgets, *code])
    if (recorded := card.recorded) is not None:
        times = count(recorded.compactions, "time")
        losses = f"{recorded.lost:,} of {recorded.needed:,} gone"
        row = [RECORDED, times, "", "", "", "", losses]
        rows.append([*row, ""] if policies else row)
    heads = ["way", "tokens", "of text", "cache", "again", "right, KL"]
    heads += ["forgets most", "policy"] if policies else ["forgets (turns)"]
    empty = {"", "–"}
    kept = [place for place in range(len(heads)) if any({row[place]} - empty for row in rows)]
    cells = [[row[place] for place in kept] for row in rows]
    return Grid([heads[place] for place in kept] if rows else heads, cells)


MESSAGES, USER_FIRST = "reread(messages(fifo))", "reread(messages(fifo, begins=user))"
CLEARED = "reread(clear-results)"

TRIM = (
    "# all from a user's message to the next leave together, so it may keep less than that: where\n"
    "# the newest exchange is larger, nothing but the system prompt may stay\n"
    "trim_messages(messages, max_tokens={}, token_counter=model, "
    'start_on="human", include_system=True)'
)

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "shift": {"llama.cpp": "llama-server --context-shift --ctx-size {}"},
    MESSAGES: {
        "Ollama": "OLLAMA_CONTEXT_LENGTH={} ollama serve",
        "LangChain": TRIM,
    },
    USER_FIRST: {"LangChain": TRIM},
    CLEARED: {
        "Anthropic": 'betas=["context-management-2025-06-27"], context_management={{"edits": '
        '[{{"type": "clear_tool_uses_20250919", "trigger": {{"type": "input_tokens", "value": '
        "{}}}}}]}}",
        "LangChain": "ContextEditingMiddleware(edits=[ClearToolUsesEdit(trigger={})], "
        'token_count_method="model")',
    },
}
"""How engines and services set what they do by themselves, as they document it."""

OURS = (
    "from fdkvc import PolicyCache, read_policy\n"
    'cache = PolicyCache(read_policy("{}"), {}, model, tokenizer=tokenizer)\n'
    "model.generate(**turn, cache=cache)"
)
"""How this project's own cache is set, in *transformers*."""


def settings_of(candidate: Way, tokens: float, unit: str) -> dict[str, str]:
    """Return what sets a way and its size, by engine or library.

    Each begins with a comment: engines count by tokenizers of their own, and the size is in tokens
    of `unit`, of conversations with so many on average.
    """
    size = candidate.size or 0
    comment = f"# {size:,} tokens of {unit}, {percent(size / tokens)} of a conversation"
    lines = SETTINGS.get(candidate.policy)
    if lines is None:
        name = candidate.policy.replace(", ", ",")  # so that no line ends within it
        return {"transformers": f"{comment}\n{OURS.format(name, size)}"}
    return {engine: f"{comment}\n{line.format(size)}" for engine, line in lines.items()}


def card_record(card: Card) -> dict[str, Any]:
    """Return the card in values that JSON can hold: its fields, and what is said of them."""
    lead, basis = card_sentences(card)
    sentences = {"sentence": lead, "basis": basis, "pays": card.pays, "settings": card.settings}
    fields = asdict(replace(card, read=None))
    fields["read_by"] = None if card.read is None else card.read.model
    fields["ways"] = [_way_record(card, candidate) for candidate in card.ways]
    return sentences | {name: _plain(value) for name, value in fields.items() if name != "read"}


def _way_record(card: Card, candidate: Way) -> dict[str, Any]:
    size = candidate.slots * card.shape.entry_bytes
    added_fields = {
        "way": way_words(candidate.policy),
        "share": (candidate.size or math.nan) / card.tokens,
    }
    return {
        name: _plain(value)
        for name, value in {**added_fields, **asdict(candidate), "bytes": size}.items()
    }


def _plain(value: Any) -> Any:
    """Return a value without NaN, which JSON has not."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
