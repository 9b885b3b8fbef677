"""The card read by a model: what its predictions lose on a few dialogs, under the ways that matter.

1. Dialogs are drawn over all lengths of those that have more tokens than the recommended way keeps;
   where nothing is evicted, nothing is checked.
2. Each way runs at its own size, counted in the model's tokens.
3. The way to recommend and what people do today are read before the other ways, so the first answer
   comes early.
4. Only dialogs from which a way evicts count for it, and only values needed after it has evicted.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from threading import Lock
from time import perf_counter
from typing import ClassVar, Unpack

import pandas as pd

from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.models.answers import FULL, Answers, run_answers, work_of
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import Policy, read_policy
from fdkvc.policies.ways import unpinned
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.runs.workers import DaemonThreads
from fdkvc.verdict.card import TODAY, Card, ModelRead, Reading, Way
from fdkvc.verdict.search import with_calls

CHECKED_WITH = "smollm2"
"""The model that reads a few dialogs of a file to check its card, where it is installed."""

KL, RIGHT = "kl", "values_right_of_full"
"""What is compared."""

SAMPLE_TOKENS = 3_000
"""Most tokens of a sample."""

MOST_WORK = 8_500
"""Tokens that each of two cores may read for such a sample under all ways, first or again: about a
minute with a pretrained model of 135 million parameters."""

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, without their whole parts, spread evenly, however many there are."""

BY_TEXT, BY_ATTENTION, BY_HABIT = 3, 1, 3
"""How many ways are read of those that see only text, of those by attention, and of today's."""

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


def installed() -> bool:
    """Whether that model is there."""
    try:
        return bool(find_model(CHECKED_WITH))
    except ValueError:
        return False


def sample_of(
    transcripts: Sequence[Transcript], sizes: TurnSizes, evicting: int, limit: int = SAMPLE_TOKENS
) -> list[Transcript]:
    """Return dialogs that a way of `evicting` tokens evicts from, of at most `limit` in all.

    They are drawn evenly over all lengths, of different clusters first, and only those with calls
    if any has some. Of one that is longer than what is left, it has the first turns.
    """
    sample, room = list[Transcript](), limit
    for dialog in drawn_over_lengths(transcripts, sizes):
        part = evicted_part(dialog, sizes[dialog.name], evicting, room)
        if part is not None:
            sample.append(part)
            room -= sum(sizes[dialog.name][: len(part.turns)])
    return sample


def drawn_over_lengths(transcripts: Sequence[Transcript], sizes: TurnSizes) -> list[Transcript]:
    """Return dialogs in an order in which any first few are spread over all lengths."""
    by_length = sorted(transcripts, key=lambda dialog: sum(sizes[dialog.name]))
    middle = len(by_length) // 2
    places = sorted(range(len(by_length)), key=lambda place: GOLDEN * (place - middle) % 1)
    spread = [by_length[place] for place in places]
    return [spread[place] for place in with_calls(spread)] or spread


def evicted_part(
    dialog: Transcript, turn_sizes: Sequence[int], evicting: int, limit: int
) -> Transcript | None:
    """Return the first turns of a dialog, all if they have at most so many tokens.

    None if nothing is needed after the turn in which more than `evicting` tokens are held.
    """
    turn_ends = [*accumulate(turn_sizes)]
    turns, full_turn = bisect_right(turn_ends, limit), bisect_right(turn_ends, evicting)
    demands = tuple(demand for demand in dialog.demands if demand.turn < turns)
    calls = [demand.turn for demand in dialog.demands if demand.kind == "call"]
    needing_turns = calls or range(len(turn_ends))
    if not any(full_turn < turn < turns for turn in needing_turns):
        return None
    if turns == len(dialog.turns):
        return dialog
    read_calls = tuple(call for call in dialog.calls if call.turn < turns)
    return replace(dialog, turns=dialog.turns[:turns], calls=read_calls, demands=demands)


def ways_to_read(card: Card) -> list[list[Way]]:
    """Return the ways that a model reads, in groups: the first decide most."""
    sized = [
        candidate
        for candidate in card.ways
        if candidate.size is not None and candidate.slots < card.tokens
    ]
    text = [way for way in sized if not way.guessed]
    habits = [way for name in TODAY for way in text if unpinned(way.policy) == name]
    by_attention = [way for way in sized if way.guessed and way.policy.startswith("sinks(")]
    leading = card.ways[:1] if card.by_words is None else (card.by_words,)
    first_group = dict.fromkeys(way for way in (*leading, *habits[:1]) if way in sized)
    remaining = dict.fromkeys([*text[:BY_TEXT], *by_attention[:BY_ATTENTION], *habits[:BY_HABIT]])
    return [[*first_group], [way for way in remaining if way not in first_group]]


def read_card(
    card: Card,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    on_read: Callable[[ModelRead], object] = lambda read: None,
    previous: ModelRead | None = None,
    limit: int = SAMPLE_TOKENS,
    **execution: Unpack[Execution],
) -> ModelRead:
    """Let a model read a few dialogs under the ways that matter, each at its size.

    `transcripts` are the dialogs of the card. Those read have at most `limit` tokens. `on_read`
    gets what is known after each group of ways. Given what it has read `previous`ly, it reads
    others, and `on_read` gets that until all is known of both. Raises a ValueError if there is no
    dialog to read, or no way.
    """
    groups = [group for group in ways_to_read(card) if group]
    if not groups:
        raise ValueError("there is nothing to check: no way saves anything")
    sizes: TurnSizes = {dialog.name: model.tokens.count_by_turn(dialog) for dialog in transcripts}
    # A card may count tokens as another model does.
    ratio = sum(map(sum, sizes.values())) / len(sizes) / card.tokens
    if previous is not None:
        on_read(previous)
        transcripts = [dialog for dialog in transcripts if dialog.name not in previous.names]
    sizes = {name: _readable(turn_sizes, model) for name, turn_sizes in sizes.items()}
    runs = [_sized(group, ratio) for group in groups]
    sample = _affordable(runs, model, transcripts, sizes, limit)
    tokens = {dialog.name: sum(sizes[dialog.name][: len(dialog.turns)]) for dialog in sample}
    unread = [dialog for dialog in transcripts if dialog.name not in tokens]
    read = ModelRead(
        model.name,
        tuple(tokens),
        sum(tokens.values()),
        {},
        complete=False,
        begun=sum(dialog not in transcripts for dialog in sample),
        unread=sum(bool(sample_of([dialog], sizes, runs[0].sizes[0], limit)) for dialog in unread),
    )
    title = f"{count(read.dialogs, 'conversation')}, {count(read.tokens, 'token')}, under "
    title += count(sum(map(len, groups)), "way")
    for scores, complete in _readings(runs, model, sample, tokens, title, execution):
        read = replace(read, scores={**read.scores, **scores}, complete=complete)
        if previous is None:
            on_read(read)
    return read if previous is None else previous.joined(read)


def _readable(turn_sizes: Sequence[int], model: AnyModel) -> Sequence[int]:
    """Return the sizes of the first turns, as many as the model's context holds."""
    turn_ends = [*accumulate(turn_sizes)]
    return turn_sizes[: bisect_right(turn_ends, model.decoder.shape.positions)]


def _readings(
    runs: Sequence[Sized],
    model: AnyModel,
    sample: Sequence[Transcript],
    tokens: Mapping[str, int],
    title: str,
    execution: Execution,
) -> Iterator[tuple[dict[str, Reading], bool]]:
    """Yield what a model lost under the ways of each run, and whether this was the last run."""
    works = [sum(_works(run, model, sample)) for run in runs]
    reports = _reports(execution.get("on_progress"), works, title)
    # One dialog takes one core: then the groups are read at once.
    at_once = len(sample) == 1 and execution.get("workers") != 1
    threads, parts = DaemonThreads(len(runs) if at_once else 1), []
    for run, report in zip(runs, reports, strict=True):
        options: Execution = {**execution, "on_progress": report}
        parts.append(threads.submit(partial(run_answers, run, model, sample, **options)))
    for part in parts:
        yield readings_of(part.result(), tokens), part is parts[-1]


def _works(run: Sized, model: AnyModel, sample: Sequence[Transcript]) -> list[int]:
    """Return about how many tokens a run reads of each dialog, first or again."""
    return [sum(work_of(run, encode_dialog(model, dialog))) for dialog in sample]


def _affordable(
    runs: Sequence[Sized],
    model: AnyModel,
    transcripts: Sequence[Transcript],
    sizes: TurnSizes,
    limit: int,
) -> list[Transcript]:
    """Return a sample of at most `limit` tokens, and fewer where ways read much again.

    Raises a ValueError if there is none that is read in time.
    """
    allowed, evicting = MOST_WORK * limit / SAMPLE_TOKENS, runs[0].sizes[0]
    room = limit
    while sample := sample_of(transcripts, sizes, evicting, room):
        works = [_works(run, model, sample) for run in runs]
        # The groups of one dialog are read at once, each by one core; several dialogs share cores.
        longest = max(map(sum, works)) if len(sample) == 1 else sum(map(sum, works)) / 2
        if longest <= allowed:
            return sample
        room = room * 9 // 10
    raise ValueError(
        f"no conversation that needs a value after {evicting:,} tokens can be read within "
        f"{limit:,} tokens; on the command line, --read N reads more"
    )


def _sized(group: Sequence[Way], ratio: float) -> Sized:
    """Return the run of some ways, at sizes that many times theirs."""
    sizes = tuple(max(1, round(ratio * (candidate.size or 0))) for candidate in group)
    policies = tuple(read_policy(way.policy) for way in group)
    return Sized(policies, tuple(sorted({*sizes})), sizes=sizes)


def _reports(
    report: Callable[[Progress], None] | None, works: Sequence[int], title: str
) -> list[Callable[[Progress], None] | None]:
    """Return what reports the progress of each part of a run, as that of the whole."""
    began, work_done, lock = perf_counter(), [0.0] * len(works), Lock()
    if report is None:
        return [None] * len(works)

    def on_progress(number: int, step: Progress) -> None:
        with lock:
            work_done[number] = works[number] * step.finished_jobs / step.total
            report(Progress(round(sum(work_done)), sum(works), title, perf_counter() - began))

    return [partial(on_progress, number) for number in range(len(works))]


def readings_of(table: pd.DataFrame, tokens: Mapping[str, int]) -> dict[str, Reading]:
    """Return what a model lost under each policy of a table of `run_answers`.

    Dialogs of as few `tokens` as a policy keeps do not count for it.
    """
    evicting = (table.policy != FULL) & (table.budget < table.dialog.map(tokens))
    table = table[evicting & table.metric.isin((KL, RIGHT))]
    readings = {}
    for name, rows in table.groupby("policy", sort=False):
        kl, right = (rows[rows.metric == metric] for metric in (KL, RIGHT))
        right_values = round(float((right.value * right["count"]).sum()))
        values = int(right["count"].sum())
        readings[str(name)] = Reading(right_values, values, float(kl.value.mean()), len(kl))
    return readings
