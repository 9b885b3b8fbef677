"""Whether a card that a model has read keeps its promise on other conversations, read by it too.

    python -m benchmarks.research.calibration_model MODEL OUT.csv SGD.json AIRLINE.json …

Of each file's conversations with more than three calls, four draws of sixteen are taken by a seed.
The card is made from eight, in the model's tokens, as `dialogs --plan --model MODEL` makes it; the
model reads for a minute, the default. Then it reads the other eight, up to 12,000 tokens of them,
at the recommended size, and at that which words alone recommended, where that is another. The card
holds if the share of values that stay right there is at least the low end of what it says. Each
card is appended to OUT.csv, with which a later run goes on. Prints a table.
"""

import sys
from collections.abc import Sequence
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
from fdkvc.verdict.card import Card, Way, ways_for
from fdkvc.verdict.checked import Sized, read_card, readings_of, sample_of
from fdkvc.verdict.model_shape import SHAPES
from fdkvc.verdict.results import ReplayRun
from fdkvc.verdict.sentences import certainty

FILES, OF, WORKERS, REST_TOKENS = 4, 16, 2, 12_000
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
    if best is not None and best.reading is not None and best.reading.values:
        return best.reading.right / best.reading.values, best.reading.interval[0]
    if card.promise is not None:
        return card.promise.mean, card.promise.low
    return float("nan"), float("nan")


def right_of(
    way: Way, model: LanguageModel, dialogs: Sequence[Transcript], lengths: dict[str, int]
) -> tuple[int, int]:
    """Return how many values stay right under a way in other dialogs, of how many."""
    assert way.size is not None
    run = Sized((read_policy(way.policy),), (way.size,), sizes=(way.size,))
    if not dialogs:
        return 0, 0
    table = run_answers(run, model, dialogs, workers=WORKERS)
    readings = readings_of(table, lengths)
    if way.policy not in readings:  # nothing is evicted
        return 0, 0
    return readings[way.policy].right, readings[way.policy].values


def tried(dialogs: Sequence[Transcript], named: NamedModel) -> tuple[object, ...]:
    """Return the columns from `policy` on for a card of half of some dialogs."""
    began = perf_counter()
    first = dialogs[: OF // 2]
    rest = dialogs[OF // 2 :]
    card = card_of(first, named)
    best = card.best
    words = card.by_words
    if best is None or best.size is None or not card.pays:
        return ("", 0, card.tokens, False, certainty(card), *[None] * 8, perf_counter() - began)
    model = named.answering_model
    sizes = {dialog.name: model.tokens.count_by_turn(dialog) for dialog in rest}
    rest = sample_of(rest, sizes, best.size, REST_TOKENS)
    lengths = {dialog.name: sum(sizes[dialog.name][: len(dialog.turns)]) for dialog in rest}
    right = right_of(best, model, rest, lengths)
    words_cells: tuple[object, ...] = None, None, None, None
    if words is not None and words.size is not None:
        same = (words.policy, words.size) == (best.policy, best.size)
        words_right = right if same else right_of(words, model, rest, lengths)
        words_cells = words.policy, words.size, *words_right
    setting = best.policy, best.size, card.tokens, best.sized_by_model, certainty(card)
    return (*setting, *promise_of(card), *right, *words_cells, perf_counter() - began)


def table_of(cards: pd.DataFrame) -> Grid:
    """Return how often cards hold, and what words alone would have set, by file and in all."""
    rows = []
    groups = [*cards.groupby("file", sort=False), ("all", cards)]
    for name, group in groups:
        made = group[group["values"] > 0]
        other = made[(made.policy != made.words_policy) | (made["size"] != made.words_size)]
        holds = int((made.right / made["values"] >= made.low).sum())
        rows.append(
            [
                str(name),
                str(len(group)),
                str(len(made)),
                f"{100 * made.promised.mean():.0f} %",
                f"{made.right.sum():.0f} of {made['values'].sum():.0f}",
                f"{100 * (made['size'] / made.tokens).mean():.0f} %",
                f"{holds} of {len(made)}",
                str(len(other)),
                f"{100 * (made.words_size / made.tokens).mean():.0f} %",
                f"{made.words_right.sum():.0f} of {made.words_values.sum():.0f}",
            ]
        )
    heads = ["data", "files", "with a setting that evicts", "promised", "right", "of the text"]
    heads += ["hold", "words differ", "of the text by words", "right by words"]
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
