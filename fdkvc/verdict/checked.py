"""The card read by a model: what its predictions lose on a few dialogs, under the ways that matter.

1. Dialogs are drawn over all lengths of those that have more tokens than the recommended way keeps;
   where nothing is evicted, nothing is checked.
2. Each way runs at its own size by words, counted in the model's tokens, over one conversation
   after the other, until a quarter of the minutes is over and the model gets enough values right.
3. While the minutes last, the model finds the size of each way over these conversations, by the
   same bisection as words. Without enough values it reads more conversations instead. Few values
   may make a size larger, not smaller.
4. Only dialogs from which a way evicts count for it, and only values needed after it has evicted.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain
from time import perf_counter
from typing import ClassVar, Unpack

import pandas as pd

from fdkvc.core.parameters import Field
from fdkvc.core.statistics import cluster_share
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.models.answers import CHUNK, FULL, Answers, is_large, run_answers, work_of
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import Policy, read_policy
from fdkvc.runs.jobs import Execution, Progress, worker_count
from fdkvc.verdict.card import (
    DECIDING_VALUES,
    MEASURED_VALUES,
    Card,
    ModelRead,
    Reading,
    Way,
)
from fdkvc.verdict.search import (
    clusters_of,
    next_place,
    next_sizes,
    sizes_of,
    smallest_enough,
    with_calls,
)

CHECKED_WITH = "smollm2"
"""The model that reads a few dialogs of a file to check its card, where it is installed."""

KL, RIGHT = "kl", "values_right_of_full"
"""What is compared."""

MINUTES = Field(
    "Minutes of reading",
    "How long SmolLM2 may read conversations to check the card, on two cores.",
    name="minutes",
    default=1,
    low=1,
    high=600,
)

MINUTE_TOKENS, MINUTE_WORK = 3_000, 8_500
"""Tokens of the sample for each minute, and tokens that each of two cores may read for it under all
ways, first or again: about a minute with a pretrained model of 135 million parameters. That is the
most that is begun; a slower machine reads less."""

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, without their whole parts, spread evenly, however many there are."""

BY_TEXT, BY_ATTENTION = 2, 1
"""How many ways are read of those that see only text, and of those by attention."""

ROUNDS, SIZING_VALUES = 4, DECIDING_VALUES
"""Rounds for which the minutes are to do, and values that the model must get right in what it has
read, before it finds sizes. A choice: four rounds bisect the sizes below or above that by words."""

STRANGE, STRANGE_LOSS = 1.5, 2.0
"""From how many tokens a character on a language is strange to a model, and from which loss, in
nats a character. Choices: SmolLM2 loses 1.0 in English, 1.4 to 1.7 in French, Spanish and German,
and 2.1 or more in Russian, Polish, Arabic and Hindi (benchmarks/research/languages.py). The loss
tells it of SmolLM2 alone: Qwen2.5-Coder-0.5B loses 1.8 to 2.0 in English service dialogs, and 5.3
in Chinese."""

LANGUAGE_TEXT, FEW_CHARACTERS = 100_000, 150
"""How many characters tell how many tokens a language takes, and of how few the loss says nothing:
the first words of a dialog are the hardest."""

HARDLY_READS = "hardly reads this language: by words only"

TAKES = "it takes up to"
"""How a problem begins that more minutes solve."""

TurnSizes = Mapping[str, Sequence[int]]
"""The tokens of each turn of a dialog, by the dialog's name."""


@dataclass(frozen=True)
class Sized(Answers):
    """Answers of each policy at a size of its own."""

    sizes: tuple[int, ...] = ()
    after_eviction: ClassVar = True

    @property
    def cases(self) -> Iterable[tuple[Policy, int]]:
        """The policies with their sizes."""
        return zip(self.policies, self.sizes, strict=True)


def installed(name: str = "") -> bool:
    """Whether a model is there, by default that one."""
    try:
        return bool(find_model(name or CHECKED_WITH))
    except ValueError:
        return False


def sample_of(
    transcripts: Sequence[Transcript],
    sizes: TurnSizes,
    evicting: int,
    limit: int,
) -> list[Transcript]:
    """Return dialogs that a way of `evicting` tokens evicts from, of at most `limit` in all.

    They are drawn evenly over all lengths, of different clusters first, and only those with calls
    if any has some. Of one that is longer than what is left, it has the first turns.
    """
    sample = []
    room = limit
    for dialog in drawn_over_lengths(transcripts, sizes):
        part = evicted_part(dialog, sizes[dialog.name], evicting, room)
        if part is not None:
            sample.append(part)
            room -= sum(sizes[dialog.name][: len(part.turns)])
    return sample


def drawn_over_lengths(
    transcripts: Sequence[Transcript], sizes: TurnSizes
) -> list[Transcript]:
    """Return dialogs in an order in which any first few are spread over all lengths."""
    by_length = sorted(transcripts, key=lambda dialog: sum(sizes[dialog.name]))
    middle = len(by_length) // 2
    # The one of middle length comes first.
    places = sorted(range(len(by_length)), key=lambda place: GOLDEN * (place - middle) % 1)
    spread = [by_length[place] for place in places]
    return with_calls(spread) or spread


def evicted_part(
    dialog: Transcript, turn_sizes: Sequence[int], evicting: int, limit: int
) -> Transcript | None:
    """Return the first turns of a dialog, all if they have at most so many tokens.

    None if nothing is needed after the turn in which more than `evicting` tokens are held.
    """
    turn_ends = [*accumulate(turn_sizes)]
    turns = bisect_right(turn_ends, limit)
    full_turn = bisect_right(turn_ends, evicting)
    demands = tuple(demand for demand in dialog.demands if demand.turn < turns)
    calls = [demand.turn for demand in dialog.demands if demand.kind == "call"]
    needing_turns = calls or range(len(turn_ends))
    if not any(full_turn < turn < turns for turn in needing_turns):
        return None
    if turns == len(dialog.turns):
        return dialog
    read_calls = tuple(call for call in dialog.calls if call.turn < turns)
    return replace(dialog, turns=dialog.turns[:turns], calls=read_calls, demands=demands)


def ways_to_read(card: Card) -> list[Way]:
    """Return the ways that a model reads: the best, today's, what is offered, and a few others."""
    today = None if card.today is None else card.today.today.policy
    sized = []
    habits = []
    by_text = []
    by_attention = []
    for row in card.ways:
        if row.size is None or row.slots >= card.tokens:
            continue
        sized.append(row)
        if not row.guessed:
            by_text.append(row)
        elif row.policy.startswith("sinks("):
            by_attention.append(row)
        if not row.guessed and row.policy == today:
            habits.append(row)
    leading = card.ways[:1] if card.by_words is None else (card.by_words,)
    offered = *leading, *habits, card.smaller, *by_text[:BY_TEXT], *by_attention[:BY_ATTENTION]
    return [row for row in dict.fromkeys(offered) if row in sized]


def read_card(
    card: Card,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    minutes: float = MINUTES.default,
    **execution: Unpack[Execution],
) -> ModelRead:
    """Let a model read a few dialogs under the ways that matter, each at its size.

    `transcripts` are the dialogs of the card, of which it reads as many as take some `minutes`.
    Raises a ValueError if there is no dialog to read, or no way.
    """
    candidates = ways_to_read(card)
    if not candidates:
        raise ValueError("no way saves anything, so there is nothing to check")
    sizes: TurnSizes = {
        dialog.name: model.tokens.count_by_turn(dialog) for dialog in transcripts
    }
    check_language(model, transcripts)
    # A card may count tokens as another model does.
    ratio = sum(map(sum, sizes.values())) / len(sizes) / card.tokens
    sizes = {name: _readable(turn_sizes, model) for name, turn_sizes in sizes.items()}
    by_words = {way.policy: way.size or 0 for way in candidates}
    run = _sized(by_words, ratio)
    limit = round(MINUTE_TOKENS * minutes)
    # The first way is the recommended one, see `ways_to_read`.
    evicting = run.sizes[0]
    work = _work_of_dialogs(run, model)
    sampled = partial(sample_of, transcripts, sizes, evicting)
    sample = _affordable(work, sampled, limit)
    if not sample:
        raise ValueError(_why_unread(work, sampled, evicting, limit))
    tokens = dict[str, int]()
    for dialog in sample:
        tokens[dialog.name] = sum(sizes[dialog.name][: len(dialog.turns)])
    sizing = Sizing(card, model, sample, tokens, ratio, 60 * minutes, by_words)
    sizing.read(**execution)
    names = tuple(dialog.name for dialog in sizing.read_dialogs)
    others = (dialog for dialog in transcripts if dialog.name not in names)
    unread = sum(bool(sample_of([dialog], sizes, evicting, limit)) for dialog in others)
    return ModelRead(
        title_of(model),
        names,
        sum(map(tokens.__getitem__, names)),
        sizing.final_readings,
        partly_read=sum(dialog not in transcripts for dialog in sizing.read_dialogs),
        unread=unread,
        sizes=sizing.found_sizes,
    )


ALL = "all"
"""The one group of which a model's values are: they are counted together."""


@dataclass(eq=False)
class Sizing:
    """The readings of a sample so far, by policy and size in tokens of the card."""

    card: Card
    model: AnyModel
    sample: Sequence[Transcript]
    tokens: Mapping[str, int]
    """The model's, of each dialog."""
    ratio: float
    """The model's tokens for each of the card's."""
    seconds: float
    """For how long it may read."""
    sizes_by_words: Mapping[str, int]
    """The size with which each policy begins."""

    def __post_init__(self) -> None:
        self.readings = dict[str, dict[int, Reading]]()
        self.shares: dict[str, dict[int, pd.Series]] = {
            policy: {} for policy in self.sizes_by_words
        }
        """Of values that stay right, by policy and place among `sizes`."""
        sizes = {*sizes_of(self.card.tokens), *self.sizes_by_words.values()}
        self.sizes = tuple(sorted(sizes))
        self.read_dialogs: Sequence[Transcript] = ()
        self.values = 0.0
        """How many the model gets right in them with the full cache."""
        self.rounds = 0

    def read(self, **execution: Unpack[Execution]) -> None:
        """Read the ways at some sizes, then at those that tell their smallest ones.

        Once it is cancelled, a round after the first that was under way is left out.
        """
        began = perf_counter()
        report = execution.pop("on_progress", None)
        if report is not None:
            execution["on_progress"] = partial(self._report, report, began)
        self._read_first(began, **execution)
        cancelled = execution.get("cancelled")
        groups = {policy: [[ALL]] for policy in self.shares}
        round_seconds = perf_counter() - began
        while self.values >= SIZING_VALUES:
            round_began = perf_counter()
            next_tries = next_sizes(self.shares, self.sizes, self.card.target, groups)
            if not next_tries or round_began + round_seconds > began + self.seconds:
                break
            run = _sized(next_tries, self.ratio)
            table = run_answers(run, self.model, self.read_dialogs, **execution)
            if cancelled is not None and cancelled.is_set():
                break
            self._take(next_tries, table)
            round_seconds = perf_counter() - round_began

    def _read_first(self, began: float, **execution: Unpack[Execution]) -> None:
        """Read the ways at their sizes by words, over as many conversations as there is time for.

        Raises a ValueError if none was read, or if the language is strange to the model.
        """
        run = _sized(self.sizes_by_words, self.ratio)
        cancelled = execution.get("cancelled")
        # As many as keep all workers busy: the time is looked at only after each part.
        at_once = worker_count(execution) * (1 if is_large(self.model) else CHUNK)
        tables = list[pd.DataFrame]()
        for start in range(0, len(self.sample), at_once):
            part = self.sample[start : start + at_once]
            tables.append(run_answers(run, self.model, part, **execution))
            table = pd.concat(tables, ignore_index=True)
            read_names = {*table.dialog}
            self.read_dialogs = [dialog for dialog in self.sample if dialog.name in read_names]
            self.values = _right_values(table)
            seconds = perf_counter() - began
            enough = self.values >= SIZING_VALUES and seconds >= self.seconds / ROUNDS
            if (
                enough
                or seconds >= self.seconds
                or (cancelled is not None and cancelled.is_set())
            ):
                break
        if not self.read_dialogs:
            raise ValueError("it was stopped before it had read a conversation")
        check_loss(title_of(self.model), self.read_dialogs, table)
        self._take(self.sizes_by_words, table)

    def _report(
        self, report: Callable[[Progress], None], began: float, step: Progress
    ) -> None:
        """Report how much of the time is over."""
        seconds = perf_counter() - began
        share = min(seconds / self.seconds, 1.0)
        if self.rounds:
            dialogs = count(len(self.read_dialogs), "conversation")
            title = f"size {self.rounds + 1} of each way, in {dialogs}"
        else:
            title = f"conversation {len(self.read_dialogs) + 1} of {len(self.sample)}"
        report(Progress(round(100 * share), 100, title, seconds))

    def _take(self, next_tries: Mapping[str, int], table: pd.DataFrame) -> None:
        self.rounds += 1
        readings = readings_of(table, self.tokens)
        for policy, size in next_tries.items():
            wrong_values = 0
            if policy in readings:
                self.readings.setdefault(policy, {})[size] = reading = readings[policy]
                wrong_values = reading.wrong
            # One wrong value may be chance.
            share = 1.0 if wrong_values <= 1 else 1 - wrong_values / self.values
            self.shares[policy][self.sizes.index(size)] = pd.Series({ALL: share})

    @property
    def found_sizes(self) -> dict[str, int | None]:
        """The smallest size of each way at which enough stays right; None if none is enough.

        Without those whose size is not known yet, or from which nothing is evicted. It is not below
        that by words where fewer than `MEASURED_VALUES` values tell: they cannot show that 95 %
        stay right.
        """
        sizes = dict[str, int | None]()
        target = self.card.target
        # The first round is at the sizes by words alone.
        if self.rounds < 2:
            return sizes
        for policy, shares in self.shares.items():
            means = {place: float(values[ALL]) for place, values in shares.items()}
            place = smallest_enough(means, target)
            if place is None:
                if next_place(means, len(self.sizes), target) is None:
                    sizes[policy] = None
                continue
            size = self.sizes[place]
            readings = self.readings.get(policy, {})
            by_words = self.sizes_by_words[policy]
            if size in readings and readings[size].values < MEASURED_VALUES:
                size = max(size, by_words)
            if size in readings:
                sizes[policy] = size
        return sizes

    @property
    def final_readings(self) -> dict[str, Reading]:
        """The reading of each way at the size found, or else at that by words, if it evicts."""
        found_sizes = self.found_sizes
        final_readings = {}
        for policy, readings in self.readings.items():
            size = found_sizes.get(policy) or self.sizes_by_words[policy]
            if size in readings:
                final_readings[policy] = readings[size]
        return final_readings


def title_of(model: AnyModel) -> str:
    """Return how people call a model."""
    return Encoding.name if model.name.startswith(Encoding.name) else model.name


def check_language(model: AnyModel, transcripts: Sequence[Transcript]) -> None:
    """Raise a ValueError where a model needs so many tokens that it hardly knows the language."""
    texts = chain.from_iterable(dialog.texts for dialog in transcripts)
    text = "\n".join(texts)[:LANGUAGE_TEXT]
    if len(model.tokens.encode(text)[0]) > STRANGE * len(text):
        raise ValueError(f"{title_of(model)} {HARDLY_READS}")


def check_loss(name: str, transcripts: Sequence[Transcript], table: pd.DataFrame) -> None:
    """Raise a ValueError where SmolLM2 loses so much with the full cache, by `run_answers`."""
    if name != Encoding.name:
        return
    full = table[(table.policy == FULL) & (table.metric == "nats")].drop_duplicates("dialog")
    characters = _characters(transcripts)
    lost = (full.value * full["count"]).sum()
    if characters >= FEW_CHARACTERS and lost > STRANGE_LOSS * characters:
        raise ValueError(f"{name} {HARDLY_READS}")


def _characters(transcripts: Sequence[Transcript]) -> int:
    """Return the characters of all turns, and of the names and values of calls."""
    characters = 0
    for dialog in transcripts:
        characters += sum(map(len, dialog.texts))
        for call in dialog.calls:
            characters += len(call.method)
            characters += sum(len(row.slot) + len(row.value) for row in call.arguments)
    return characters


def _readable(turn_sizes: Sequence[int], model: AnyModel) -> Sequence[int]:
    """Return the sizes of the first turns, as many as the model's context holds."""
    turn_ends = [*accumulate(turn_sizes)]
    return turn_sizes[: bisect_right(turn_ends, model.decoder.shape.positions)]


def _work_of_dialogs(run: Sized, model: AnyModel) -> Callable[[Transcript], int]:
    """Return what tells the work of a dialog, or of its first turns, each computed once."""
    known_work = dict[tuple[str, int], int]()

    def work(dialog: Transcript) -> int:
        key = dialog.name, len(dialog.turns)
        if key not in known_work:
            known_work[key] = sum(work_of(run, encode_dialog(model, dialog)))
        return known_work[key]

    return work


def _affordable(
    work: Callable[[Transcript], int], sampled: Callable[[int], list[Transcript]], limit: int
) -> list[Transcript]:
    """Return a sample of at most `limit` tokens that can be read in time; empty if none can.

    It has fewer where ways read much again.
    """
    allowed = MINUTE_WORK * limit / MINUTE_TOKENS
    room = limit
    while sample := sampled(room):
        works = [*map(work, sample)]
        # One dialog takes one core; several share two.
        if max(max(works), sum(works) / 2) <= allowed:
            break
        room = room * 9 // 10
    return sample


def _why_unread(
    work: Callable[[Transcript], int],
    sampled: Callable[[int], list[Transcript]],
    evicting: int,
    limit: int,
) -> str:
    """Return why no dialog is read in time, and which minutes are enough."""
    for doublings in range(1, 10):
        longer = limit * 2**doublings
        if _affordable(work, sampled, longer):
            minutes = f"{max(longer / MINUTE_TOKENS, 1):.0f} min"
            return f"{TAKES} {minutes} to read on to a value needed after {evicting:,} tokens"
    return f"no conversation needs a value after {evicting:,} tokens, so there is nothing to check"


def _right_values(table: pd.DataFrame) -> float:
    """Return how many values a model gets right with the full cache."""
    full = table[(table.policy == FULL) & (table.metric == "values_right")]
    full = full.drop_duplicates("dialog")
    return float((full.value * full["count"]).sum())


def _sized(next_tries: Mapping[str, int], ratio: float) -> Sized:
    """Return the run of some policies, at so many times their sizes."""
    policies = tuple(map(read_policy, next_tries))
    sizes = tuple(max(1, round(ratio * size)) for size in next_tries.values())
    return Sized(policies, tuple(sorted({*sizes})), sizes=sizes)


def readings_of(table: pd.DataFrame, tokens: Mapping[str, int]) -> dict[str, Reading]:
    """Return what a model lost under each policy of a table of `run_answers`.

    Dialogs of as few `tokens` as a policy keeps do not count for it.
    """
    evicting = (table.policy != FULL) & (table.budget < table.dialog.map(tokens))
    table = table[evicting & table.metric.isin((KL, RIGHT))]
    readings = {}
    for name, rows in table.groupby("policy", sort=False):
        kl = rows[rows.metric == KL].value
        right = rows[rows.metric == RIGHT]
        counts = right["count"]
        right_values = round(float((right.value * counts).sum()))
        values = int(counts.sum())
        clusters = clusters_of(right).tolist()
        ends = cluster_share(right.value, clusters, values, counts) if values else ()
        readings[str(name)] = Reading(right_values, values, float(kl.mean()), len(kl), *ends)
    return readings
