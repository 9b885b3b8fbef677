"""The card read by a model: what its predictions lose on a few dialogs, under the ways that matter.

1. Dialogs are drawn over all lengths of those that have more tokens than the recommended way keeps;
   where nothing is evicted, nothing is checked.
2. Each way runs at its own size, counted in the model's tokens.
3. As many conversations are read as the minutes allow.
4. Only dialogs from which a way evicts count for it, and only values needed after it has evicted.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import ClassVar, Unpack

import pandas as pd

from fdkvc.core.parameters import Field
from fdkvc.core.transcripts import Transcript
from fdkvc.models.answers import FULL, Answers, run_answers, work_of
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import AnyModel
from fdkvc.policies import Policy, read_policy
from fdkvc.runs.jobs import Execution
from fdkvc.verdict.card import Card, ModelRead, Reading, Way
from fdkvc.verdict.search import with_calls

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
ways, first or again: about a minute with a pretrained model of 135 million parameters."""

GOLDEN = (5**0.5 - 1) / 2
"""Its multiples, without their whole parts, spread evenly, however many there are."""

BY_TEXT, BY_ATTENTION = 3, 1
"""How many ways are read of those that see only text, and of those by attention."""

STRANGE = 1.5
"""From how many tokens a character on a language is strange to a model."""

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
    transcripts: Sequence[Transcript], sizes: TurnSizes, evicting: int, limit: int = MINUTE_TOKENS
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


def ways_to_read(card: Card) -> list[Way]:
    """Return the ways that a model reads: the best, today's, what is offered, and a few others."""
    sized = [row for row in card.ways if row.size is not None and row.slots < card.tokens]
    text = [row for row in sized if not row.guessed]
    today = None if card.today is None else card.today.today.policy
    habits = [row for row in text if row.policy == today]
    by_attention = [row for row in sized if row.guessed and row.policy.startswith("sinks(")]
    leading = card.ways[:1] if card.by_words is None else (card.by_words,)
    offered = *leading, *habits, card.smaller, *text[:BY_TEXT], *by_attention[:BY_ATTENTION]
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
        raise ValueError("there is nothing to check: no way saves anything")
    sizes: TurnSizes = {dialog.name: model.tokens.count_by_turn(dialog) for dialog in transcripts}
    check_language(model.name, transcripts, sum(map(sum, sizes.values())))
    # A card may count tokens as another model does.
    ratio = sum(map(sum, sizes.values())) / len(sizes) / card.tokens
    sizes = {name: _readable(turn_sizes, model) for name, turn_sizes in sizes.items()}
    run = _sized(candidates, ratio)
    limit = round(MINUTE_TOKENS * minutes)
    sample = _affordable(run, model, transcripts, sizes, limit)
    tokens = {dialog.name: sum(sizes[dialog.name][: len(dialog.turns)]) for dialog in sample}
    unread = [dialog for dialog in transcripts if dialog.name not in tokens]
    evicting = run.sizes[0]
    table = run_answers(run, model, sample, **execution)
    return ModelRead(
        model.name,
        tuple(tokens),
        sum(tokens.values()),
        readings_of(table, tokens),
        partly_read=sum(dialog not in transcripts for dialog in sample),
        unread=sum(bool(sample_of([dialog], sizes, evicting, limit)) for dialog in unread),
    )


def check_language(name: str, transcripts: Sequence[Transcript], tokens: int) -> None:
    """Raise a ValueError where a model needs so many tokens that it hardly knows the language."""
    characters = sum(len(text) for dialog in transcripts for text in dialog.texts)
    if tokens > STRANGE * characters:
        raise ValueError(f"{name} hardly reads this language: by words only")


def _readable(turn_sizes: Sequence[int], model: AnyModel) -> Sequence[int]:
    """Return the sizes of the first turns, as many as the model's context holds."""
    turn_ends = [*accumulate(turn_sizes)]
    return turn_sizes[: bisect_right(turn_ends, model.decoder.shape.positions)]


def _affordable(
    run: Sized,
    model: AnyModel,
    transcripts: Sequence[Transcript],
    sizes: TurnSizes,
    limit: int,
) -> list[Transcript]:
    """Return a sample of at most `limit` tokens, and fewer where ways read much again.

    Raises a ValueError if there is none that is read in time.
    """
    allowed, evicting = MINUTE_WORK * limit / MINUTE_TOKENS, run.sizes[0]
    room = limit
    while sample := sample_of(transcripts, sizes, evicting, room):
        works = [sum(work_of(run, encode_dialog(model, dialog))) for dialog in sample]
        # One dialog takes one core; several share two.
        if max(max(works), sum(works) / 2) <= allowed:
            return sample
        room = room * 9 // 10
    raise ValueError(
        f"no conversation needs a value after {evicting:,} tokens and is read in "
        f"{limit / MINUTE_TOKENS:g} min: more minutes read more"
    )


def _sized(candidates: Sequence[Way], ratio: float) -> Sized:
    """Return the run of some ways, at sizes that many times theirs."""
    sizes = tuple(max(1, round(ratio * (candidate.size or 0))) for candidate in candidates)
    policies = tuple(read_policy(candidate.policy) for candidate in candidates)
    return Sized(policies, tuple(sorted({*sizes})), sizes=sizes)


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
