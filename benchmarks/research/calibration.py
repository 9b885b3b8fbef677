"""Whether the card keeps its promise: made from one half of a file, tried on the other.

    python -m benchmarks.research.calibration OUT.csv SGD.json AIRLINE.json BFCL.json TOOLTALK.json

Of each file's conversations, ten draws of eight are taken by a seed. The card is made from five of
them, whole or from the first half of each one's turns; what it recommends is replayed on the other
three, or on the other turns. It holds if the share of values held there is at least the low end of
its interval. Each draw is halved in one way, then each in the other. Cards go to OUT.csv as they
are made, which a later run goes on with. Prints a table.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from fdkvc.conversations.formats import read_dialogs
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import Replay, replay_arguments
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.core.transcripts import Transcript
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid
from fdkvc.verdict.card import Card, find_card, ways_for
from fdkvc.verdict.model_shape import SHAPES
from fdkvc.verdict.search import VECTORS, dialog_lengths, find_sizes, needed_values

FILES, OF, FOR_CARD, TARGET = 10, 8, 5, 0.95
"""Draws from each file, conversations of a draw and of its card, and the share to hold."""

HALVES = ("turns", "conversations")

COLUMNS = ["file", "draw", "half", "promised", "low", "held", "size"]

Split = tuple[Sequence[Transcript], Sequence[Transcript]]


def part(dialog: Transcript, first: int, end: int) -> Transcript:
    """Return some turns of a dialog, with what they need of themselves."""
    demands = []
    for demand in dialog.demands:
        mentions = [row for row in demand.mentions if row.turn >= first]
        if first <= demand.turn < end and mentions:
            moved = tuple(row._replace(turn=row.turn - first) for row in mentions)
            demands.append(replace(demand, turn=demand.turn - first, mentions=moved))
    return replace(
        dialog, turns=dialog.turns[first:end], calls=(), demands=tuple(demands), tools=()
    )


def halved(dialogs: Sequence[Transcript], half: str) -> Split:
    """Return what a card is made from, some conversations or turns of each, and the rest."""
    chosen = dialogs[:FOR_CARD]
    if half == "conversations":
        return chosen, dialogs[FOR_CARD:]
    begun = []
    rest = []
    for dialog in chosen:
        middle = len(dialog.turns) // 2
        begun.append(part(dialog, 0, middle))
        rest.append(part(dialog, middle, len(dialog.turns)))
    return begun, rest


def card_of(dialogs: Sequence[Transcript]) -> Card:
    """Return the card of some dialogs, without a model's reading."""
    recordings = LexicalRecordings(dialogs, 0, Encoding())
    ways = ways_for(recordings)
    # Without a model, no other is recommended.
    settings = Replay(tuple(row for row in ways if VECTORS.isdisjoint(row.looks_at)))
    tables = find_sizes(settings, recordings, TARGET, workers=1)
    lengths = dialog_lengths(recordings)
    shape = SHAPES["llama-3.1-8b"]
    return find_card(settings.policies, tables, lengths, shape, TARGET, "SmolLM2")


def held(card: Card, dialogs: Sequence[Transcript]) -> float:
    """Return the share of values that the card's way holds on other dialogs, NaN for none."""
    assert card.best is not None
    assert card.best.size is not None
    settings = Replay((read_policy(card.best.policy),), (card.best.size,))
    recordings = LexicalRecordings(dialogs, 0, Encoding())
    _, arguments = replay_arguments(settings, recordings, workers=1)
    return float(needed_values(arguments).kept.mean())


def tried(dialogs: Sequence[Transcript], half: str) -> list[float]:
    """Return what a card promises, the low end, what is held, and the share of the text.

    NaN where no card is made, or where no call of the rest needs a value.
    """
    first, rest = halved(dialogs, half)
    card = card_of(first)
    if card.best is None or card.promise is None:
        return [np.nan] * 4
    size = (card.best.size or 0) / card.tokens
    return [card.promise.mean, card.promise.low, held(card, rest), size]


def drawn(
    paths: Sequence[str], files: int = FILES, size: int = OF
) -> list[tuple[str, int, list[Transcript]]]:
    """Return draws of conversations with more than three calls: file, number, conversations."""
    calling, generator = dict[str, list[Transcript]](), np.random.default_rng(0)
    for path in paths:
        dialogs, _ = read_dialogs(read_bytes(path, MAX_DIALOG_FILE_BYTES), Path(path).name)
        needs = [sum(need.kind == "call" for need in row.demands) for row in dialogs]
        many = (row for row, count in zip(dialogs, needs, strict=True) if count > 3)
        calling[Path(path).name.partition(".")[0]] = [*many]
    draws = []
    for draw, (name, rows) in product(range(files), calling.items()):
        places = generator.choice(len(rows), size, replace=False)
        draws.append((name, draw, [rows[place] for place in places]))
    return draws


def table_of(cards: pd.DataFrame) -> Grid:
    """Return how often the cards hold, by file and by half."""
    rows = []
    for key, group in [*cards.groupby(["half", "file"]), *cards.groupby("half")]:
        half, file = key if isinstance(key, tuple) else (key, "all")
        made = group.dropna()
        cells = [f"{100 * made[name].mean():.0f} %" for name in ("promised", "held", "size")]
        holds = f"{(made.held >= made.low).sum()} of {len(made)}"
        rows.append([str(half), str(file), str(len(group)), *cells, holds])
    heads = ["card from half of the", "data", "files", "promised", "held", "of the text", "hold"]
    return Grid(heads, rows, 2)


def main(out: str, paths: Sequence[str]) -> None:
    """Make the cards that a file has not, and print how often all hold."""
    path, draws = Path(out), drawn(paths)
    if not path.exists():
        pd.DataFrame(columns=COLUMNS).to_csv(path, index=False)
    done = {*pd.read_csv(path)[COLUMNS[:3]].itertuples(index=False, name=None)}
    for turned in range(len(HALVES)):
        for name, draw, dialogs in draws:
            half = HALVES[(draw + turned) % len(HALVES)]
            if (name, draw, half) not in done:
                row = pd.DataFrame([[name, draw, half, *tried(dialogs, half)]], columns=COLUMNS)
                row.to_csv(path, mode="a", header=False, index=False)
    print(table_of(pd.read_csv(path)).markdown())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
