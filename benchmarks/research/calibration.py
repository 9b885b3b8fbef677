"""Whether the card keeps its promise: made from one half of a file, tried on the other.

    python -m benchmarks.research.calibration sgd/dev.json.xz agents/airline_dev.json ...

Of each file's conversations, ten draws of five are taken by a seed. The card is made from the first
turns of each conversation, or from three of the five; what it recommends is replayed on the rest.
It holds if the share of values held there is at least the low end of its interval. Prints a table.
"""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from fdkvc.conversations.formats import read_dialogs
from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.replay import Replay, replay
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.core.transcripts import Transcript
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.policies import read_policy
from fdkvc.runs.grid import Grid
from fdkvc.verdict.model_shape import SHAPES
from fdkvc.verdict.plan import VECTORS, Card, find_card, ways_for
from fdkvc.verdict.search import call_recalls, dialog_lengths, find_sizes

FILES, OF, TARGET = 10, 5, 0.95
"""Draws from each file, conversations of a draw, and the share to hold."""

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


def splits(dialogs: Sequence[Transcript]) -> Iterator[tuple[str, Split]]:
    """Yield both ways to take a half, with its name."""
    middle = [len(dialog.turns) // 2 for dialog in dialogs]
    begun = [part(dialog, 0, turn) for dialog, turn in zip(dialogs, middle, strict=True)]
    rest = [
        part(dialog, turn, len(dialog.turns)) for dialog, turn in zip(dialogs, middle, strict=True)
    ]
    yield "turns", (begun, rest)
    yield "conversations", (dialogs[:3], dialogs[3:])


def card_of(dialogs: Sequence[Transcript]) -> Card:
    """Return the card of some dialogs, without a model's reading."""
    recordings = LexicalRecordings(dialogs, 0, Encoding())
    ways = ways_for(recordings).policies
    by_text = [policy for policy in ways if VECTORS.isdisjoint(policy.looks_at)]
    settings = ways_for(recordings, by_text)  # without a model, no other is recommended
    tables = find_sizes(settings, recordings, TARGET, workers=1)
    lengths, source = dialog_lengths(recordings), recordings[0].source
    shape = SHAPES["llama-3.1-8b"]
    return find_card(settings.policies, tables, lengths, source, shape, TARGET, "SmolLM2")


def held(card: Card, dialogs: Sequence[Transcript]) -> float:
    """Return the share of values that the card's way holds on other dialogs, NaN for none."""
    assert card.best is not None
    assert card.best.size is not None
    settings = Replay((read_policy(card.best.policy),), (card.best.size,))
    table = replay(settings, LexicalRecordings(dialogs, 0, Encoding()), workers=1)
    return float(call_recalls(table).value.mean())


def main(paths: Sequence[str]) -> None:
    """Print how often the card holds, by file and by half."""
    rows, generator = list[tuple[str, str, float, float, float, float]](), np.random.default_rng(0)
    calling = dict[str, list[Transcript]]()
    for path in paths:
        dialogs, _ = read_dialogs(read_bytes(path, MAX_DIALOG_FILE_BYTES), Path(path).name)
        needs = [sum(need.kind == "call" for need in row.demands) for row in dialogs]
        many = (row for row, count in zip(dialogs, needs, strict=True) if count > 3)
        calling[Path(path).stem] = [*many]
    for name, candidates in [*calling.items()] * FILES:
        places = generator.choice(len(candidates), OF, replace=False)
        for half, (first, rest) in splits([candidates[place] for place in places]):
            card = card_of(first)
            if card.best is not None and card.promise is not None:
                size = (card.best.size or 0) / card.tokens
                promise, share = card.promise, held(card, rest)
                rows.append((name, half, promise.mean, promise.low, share, size))
                print(*rows[-1], file=sys.stderr, flush=True)
    columns = ["file", "half", "promised", "low", "held", "size"]
    table = pd.DataFrame(rows, columns=columns).dropna(subset="held")
    table["holds"] = table.held >= table.low
    parts = []
    for key, group in [*table.groupby(["half", "file"]), *table.groupby("half")]:
        half, file = key if isinstance(key, tuple) else (key, "all")
        cells = [f"{100 * group[name].mean():.0f} %" for name in ("promised", "held", "size")]
        parts.append([str(half), str(file), str(len(group)), *cells, f"{group.holds.sum()}"])
    heads = ["card from half of the", "data", "cards", "promised", "held", "of the text", "hold"]
    print(Grid(heads, parts, 2).markdown())


if __name__ == "__main__":
    main(sys.argv[1:])
