"""The card read by a model: what its predictions lose on a few dialogs, under the ways that matter.

They are read in order: the way to recommend and what people do today, then the other ways. So the
first answer comes early, and the rest fills in.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, islice
from threading import Lock
from time import perf_counter
from typing import Unpack

import pandas as pd

from fdkvc.conversations.forgot import ModelLoss
from fdkvc.core.transcripts import Transcript
from fdkvc.core.words import count
from fdkvc.engine.summary import mean_table
from fdkvc.models.answers import FULL, Answers, run_answers, work_of
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import count_tokens, encode_dialog
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import Policy, read_policy
from fdkvc.policies.ways import unpinned
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.runs.workers import DaemonThreads
from fdkvc.verdict.card import TODAY, Card, ModelRead, Way
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

TRIED_DIALOGS = 32
"""Most dialogs that are encoded to find some that are short enough for such a sample."""

BY_TEXT, BY_ATTENTION, BY_HABIT = 3, 1, 3
"""How many ways are read of those that see only text, of those by attention, and of today's."""


@dataclass(frozen=True)
class Sized(Answers):
    """Answers of each policy at a size of its own."""

    sizes: tuple[int, ...] = ()

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
    model: AnyModel, transcripts: Sequence[Transcript], most: int = SAMPLE_TOKENS
) -> list[Transcript]:
    """Return dialogs with calls, of at most so many tokens in all: of different clusters first.

    Where no dialog has calls, any is as good. If these are less than half of the tokens, the first
    turns of another. Raises a ValueError if there is nothing to read.
    """
    places = with_calls(transcripts) or [*range(len(transcripts))]
    ordered = [transcripts[place] for place in places[: TRIED_DIALOGS * -(-most // SAMPLE_TOKENS)]]
    sample, room = list[Transcript](), most
    for dialog in ordered:
        with suppress(ValueError):  # it is longer than the model's context
            if (tokens := count_tokens(model, dialog)) <= room:
                sample.append(dialog)
                room -= tokens
    if 2 * room > most:
        begun = (_beginning(model, dialog, room) for dialog in ordered if dialog not in sample)
        sample += islice(filter(None, begun), 1)
    if not sample:
        raise ValueError("no dialog is short enough for a model to check the verdict on it")
    return sample


def _beginning(model: AnyModel, dialog: Transcript, most: int) -> Transcript | None:
    """Return the first turns of a dialog with at most so many tokens; None if there are none."""
    counts = [0] * len(dialog.turns)
    for encoded in model.tokens.encode_dialog(dialog):
        counts[encoded.passage.turn] += len(encoded.ids)
    turns = bisect_right([*accumulate(counts)], most)
    calls = tuple(call for call in dialog.calls if call.turn < turns)
    demands = tuple(demand for demand in dialog.demands if demand.turn < turns)
    if not turns or (dialog.demands and not demands):
        return None
    return replace(dialog, turns=dialog.turns[:turns], calls=calls, demands=demands)


def ways_to_read(card: Card) -> list[list[Way]]:
    """Return the ways that a model reads, in groups: the first decide most."""
    enough = [way for way in card.ways if way.size is not None and way.slots < card.tokens]
    text = [way for way in enough if not way.guessed]
    habits = [way for name in TODAY for way in text if unpinned(way.policy) == name]
    by_attention = [way for way in enough if way.guessed and way.policy.startswith("sinks(")]
    leading = card.ways[:1] if card.by_words is None else (card.by_words,)
    first = [way for way in (*leading, *habits[:1]) if way in enough]
    rest = [*text[:BY_TEXT], *by_attention[:BY_ATTENTION], *habits[:BY_HABIT]]
    return [
        [*dict.fromkeys(filter(None, first))],
        [way for way in dict.fromkeys(rest) if way not in first],
    ]


def read_card(
    card: Card,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    on_read: Callable[[ModelRead], object] = lambda read: None,
    before: ModelRead | None = None,
    most: int = SAMPLE_TOKENS,
    **how: Unpack[Execution],
) -> ModelRead:
    """Let a model read a few dialogs under the ways that matter, each at its share of the text.

    They have at `most` so many tokens. `on_read` gets what is known after each group of ways. Given
    what it has read `before`, it reads others, and `on_read` gets that until all is known of both.
    Raises a ValueError if there is no dialog to read, or no way.
    """
    groups = [group for group in ways_to_read(card) if group]
    if not groups:
        raise ValueError("there is nothing to check: no way saves anything")
    if before is not None:
        on_read(before)
        transcripts = [dialog for dialog in transcripts if dialog.name not in before.names]
    sample, tokens, runs, works = _affordable(card, groups, model, transcripts, most)
    names = tuple(dialog.name for dialog in sample)
    begun = sum(dialog not in transcripts for dialog in sample)
    read = ModelRead(model.name, names, tokens, {}, complete=False, begun=begun)
    title = f"{count(sum(map(len, groups)), 'way')}, {count(tokens, 'token')}"
    reports = _reports(how.get("on_progress"), works, title)
    # One dialog takes one core: then the groups are read at once.
    at_once = len(sample) == 1 and how.get("workers") != 1
    threads = DaemonThreads(len(runs) if at_once else 1)
    parts = [
        threads.submit(partial(run_answers, run, model, sample, **(how | {"on_progress": report})))
        for run, report in zip(runs, reports, strict=True)
    ]
    for part in parts:
        scores = {**read.scores, **readings_of(part.result())}
        read = replace(read, scores=scores, complete=part is parts[-1])
        if before is None:
            on_read(read)
    return read if before is None else before.joined(read)


def _affordable(
    card: Card,
    groups: Sequence[Sequence[Way]],
    model: AnyModel,
    transcripts: Sequence[Transcript],
    most: int,
) -> tuple[list[Transcript], int, list[Sized], list[int]]:
    """Return a sample of at `most` so many tokens, its tokens, and each group's run and work.

    Where ways read so much again that it would take longer than others of its size, it is smaller.
    """
    allowed = MOST_WORK * most / SAMPLE_TOKENS
    while True:
        sample = sample_of(model, transcripts, most)
        passages = [encode_dialog(model, dialog) for dialog in sample]
        tokens = sum(len(passage.ids) for row in passages for passage in row)
        runs = [_sized(group, tokens / len(sample) / card.tokens) for group in groups]
        works = [sum(sum(work_of(run, row)) for row in passages) for run in runs]
        # The groups of one dialog are read at once, each by one core; several dialogs share cores.
        longest = max(works) if len(sample) == 1 else sum(works) / 2
        smaller = tokens * 9 // 10
        if longest <= allowed or smaller < SAMPLE_TOKENS // 4:
            return sample, tokens, runs, works
        most = smaller


def _sized(group: Sequence[Way], ratio: float) -> Sized:
    """Return the run of some ways, at sizes that many times theirs."""
    sizes = tuple(max(1, round(ratio * (way.size or 0))) for way in group)
    policies = tuple(read_policy(way.policy) for way in group)
    return Sized(policies, tuple(sorted({*sizes})), sizes=sizes)


def _reports(
    report: Callable[[Progress], None] | None, works: Sequence[int], title: str
) -> list[Callable[[Progress], None] | None]:
    """Return what reports the progress of each part of a run, as that of the whole."""
    began, done, lock = perf_counter(), [0.0] * len(works), Lock()
    if report is None:
        return [None] * len(works)

    def on_progress(number: int, step: Progress) -> None:
        with lock:
            done[number] = works[number] * step.done / step.total
            report(Progress(round(sum(done)), sum(works), title, perf_counter() - began))

    return [partial(on_progress, number) for number in range(len(works))]


def readings_of(table: pd.DataFrame) -> dict[str, ModelLoss]:
    """Return what a model lost under each policy of a table of `run_answers`."""
    means = mean_table(table[table.metric.isin((KL, RIGHT)) & (table.policy != FULL)])
    kl, right = (means[means.metric == metric].set_index("policy") for metric in (KL, RIGHT))
    readings = {}
    for name, lost in kl["mean"].items():
        values = int(right["count"].get(name, 0))
        kept = round(float(right["mean"].get(name, 0.0)) * values)
        readings[str(name)] = ModelLoss(kept, values, float(lost))
    return readings
