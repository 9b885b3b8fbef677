"""Whether a card that a model has read keeps its promise on other conversations, read by it too.

    python -m benchmarks.research.calibration_model MODEL OUT.csv SGD.json AIRLINE.json …

Of each file's conversations with more than three calls, eighteen draws of sixteen are taken by a
seed. The card is made from eight, in the model's tokens, as `dialogs --plan --model MODEL` makes
it; the model reads for a minute, the default. Then it reads the other eight, up to 12,000 tokens of
them, at the recommended size, and at that which words alone recommended, where that is another. The
card holds if the share of values that stay right there is at least the low end of what it says.
Each card is appended to OUT.csv, with which a later run goes on. Prints a table.
"""

import sys
from collections.abc import Mapping, Sequence
from math import isnan
from pathlib import Path
from time import perf_counter

import pandas as pd

from benchmarks.research.calibration import TARGET, drawn
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import Replay
from fdkvc.core.transcripts import Transcript
from fdkvc.models.answers import run_answers
from fdkvc.models.loaded import NamedModel
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid
from fdkvc.verdict.card import Card, ways_for
from fdkvc.verdict.checked import Sized, read_card, readings_of, sample_of
from fdkvc.verdict.model_shape import SHAPES
from fdkvc.verdict.results import ReplayRun
from fdkvc.verdict.sentences import RIGHT_OF_EXPECTED, certainty

FILES, OF, WORKERS, REST_TOKENS = 18, 16, 2, 12_000
"""Draws of each file, conversations of a draw, cores, and tokens of the others."""

COLUMNS = (
    *("file", "draw", "policy", "size", "tokens", "sized_by_model", "how_sure"),
    *("promised", "low", "right", "values"),
    *("words_policy", "words_size", "words_right", "words_values", "seconds"),
)
"""`promised` and its `low` end are what the card says; `right` of `values` stay so elsewhere."""


def card_of(dialogs: Sequence[Transcript], named: NamedModel) -> Card:
    """Return the card of some dialogs, read by a model where that can judge them."""
    recordings, _ = named.encoding.in_tokens(LexicalRecordings(dialogs))
    run = ReplayRun.measure(
        Replay(ways_for(recordings)),
        recordings,
        {"digest": "", "shape": SHAPES["llama-3.1-8b"], "target": TARGET, "searched": True},
        workers=WORKERS,
    )
    assert run.card is not None
    try:
        read = read_card(run.card, named.answering_model, dialogs, workers=WORKERS)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return run.card
    card = run.with_read(read, workers=WORKERS).card
    assert card is not None
    return card


def promise_of(card: Card) -> tuple[float, float]:
    """Return the share of values that a card says stays right, and its low end; NaN for none."""
    best = card.best
    reading = None if best is None else best.reading
    if reading is not None and not isnan(reading.low):
        return reading.right / reading.values, reading.low
    if card.promise is not None:
        return card.promise.mean, card.promise.low
    return float("nan"), float("nan")


def right_of(
    sizes: Mapping[str, int],
    model: LanguageModel,
    dialogs: Sequence[Transcript],
    lengths: dict[str, int],
) -> dict[str, tuple[int, int]]:
    """Return how many values stay right in other dialogs, and of how many, by policy.

    Each has its size; (0, 0) where nothing is evicted.
    """
    right = dict.fromkeys(sizes, (0, 0))
    if not dialogs:
        return right
    policies = tuple(map(read_policy, sizes))
    run = Sized(policies, tuple(sorted({*sizes.values()})), sizes=tuple(sizes.values()))
    table = run_answers(run, model, dialogs, workers=WORKERS)
    for policy, reading in readings_of(table, lengths).items():
        right[policy] = reading.right, reading.values
    return right


def tried(dialogs: Sequence[Transcript], named: NamedModel) -> tuple[object, ...]:
    """Return the columns from `policy` on for a card of half of some dialogs."""
    began = perf_counter()
    first = dialogs[: OF // 2]
    rest = dialogs[OF // 2 :]
    card = card_of(first, named)
    best = card.advice.setting
    words = card.by_words
    if best is None or best.size is None:
        return ("", 0, card.tokens, False, certainty(card), *[None] * 8, perf_counter() - began)
    model = named.answering_model
    tokens = {dialog.name: model.tokens.count_by_turn(dialog) for dialog in rest}
    rest = sample_of(rest, tokens, best.size, REST_TOKENS)
    lengths = {dialog.name: sum(tokens[dialog.name][: len(dialog.turns)]) for dialog in rest}
    words_size = None if words is None else words.size
    sizes_read = {best.policy: best.size}
    if words is not None and words_size is not None:
        sizes_read = {words.policy: words_size} | sizes_read
    all_right = right_of(sizes_read, model, rest, lengths)
    right = all_right[best.policy]
    words_cells: tuple[object, ...] = None, None, None, None
    if words is not None and words_size is not None:
        words_right = all_right[words.policy]
        if words.policy == best.policy and words_size != best.size:
            words_right = right_of({words.policy: words_size}, model, rest, lengths)[words.policy]
        words_cells = words.policy, words_size, *words_right
    setting = best.policy, best.size, card.tokens, best.sized_by_model, certainty(card)
    return (*setting, *promise_of(card), *right, *words_cells, perf_counter() - began)


def table_of(cards: pd.DataFrame) -> Grid:
    """Return how often cards hold, and what words alone would have set, by file and in all."""
    rows = []
    groups = [*cards.groupby("file", sort=False), ("all", cards)]
    for name, group in groups:
        made = group[group["values"] > 0]
        other = made[(made.policy != made.words_policy) | (made["size"] != made.words_size)]
        shares = made.right / made["values"]
        holds = int((shares >= made.low).sum())
        holds_at_rate = int((shares >= RIGHT_OF_EXPECTED * made.low).sum())
        rows.append(
            [
                str(name),
                str(len(group)),
                str(len(made)),
                f"{100 * made.promised.mean():.0f} %",
                f"{made.right.sum():.0f} of {made['values'].sum():.0f}",
                f"{100 * (made['size'] / made.tokens).mean():.0f} %",
                f"{holds} of {len(made)}",
                f"{holds_at_rate} of {len(made)}",
                str(len(other)),
                f"{100 * (made.words_size / made.tokens).mean():.0f} %",
                f"{made.words_right.sum():.0f} of {made.words_values.sum():.0f}",
            ]
        )
    heads = ["data", "files", "with a setting that evicts", "promised", "right", "of the text"]
    heads += [
        "hold",
        "hold at the rate of the card",
        "words differ",
        "of the text by words",
        "right by words",
    ]
    return Grid(heads, rows, 1)


def main(model: str, out: str, paths: Sequence[str]) -> None:
    """Make the cards that a file has not, and print how often they hold."""
    path = Path(out)
    if not path.exists():
        pd.DataFrame(columns=COLUMNS).to_csv(path, index=False)
    done = {*pd.read_csv(path)[["file", "draw"]].itertuples(index=False, name=None)}
    named = NamedModel(model)
    for name, draw, dialogs in drawn(paths, FILES, OF):
        if (name, draw) not in done:
            row = pd.DataFrame([(name, draw, *tried(dialogs, named))], columns=COLUMNS)
            row.to_csv(path, mode="a", header=False, index=False)
    print(table_of(pd.read_csv(path)).markdown())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
