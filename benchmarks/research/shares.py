"""The gain of budgets that differ between heads or layers, at the same total.

    python -m benchmarks.research.shares FILE FOLDER [--dialogs 500] [--recorded 60]

FILE holds annotated dialogues. Their answers by the bundled model are measured as the map's are, in
FOLDER/answers.csv; then the model's own heads are recorded, all query heads of a layer as one
recording, and replayed. Paired differences from equal budgets are printed, with intervals by sets
of services.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.research.held_out import read_shuffled
from benchmarks.research.policy_map import BUDGET, OF_HEADS, answered
from fdkvc.corpora.model_text import model_text
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.answers import answers_paired, answers_summary
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.statistics import cluster_interval
from fdkvc.lm import BUNDLED
from fdkvc.lm.head_recordings import head_recordings
from fdkvc.lm.language_model import LanguageModel, load_language_model
from fdkvc.lm.text_cache import TextCache, read
from fdkvc.policies import read_policy

EQUAL = ("h2o", "snapkv", "keydiff")
"""Policies whose scores may differ between heads."""


def layers_of(model: LanguageModel, said: Transcript) -> list[Recording]:
    """Record a dialogue as the model reads it: all query heads of each layer together."""
    passages = [model.tokens.encode_passage(passage) for passage in model_text(said)]
    cache = TextCache(model.decoder)
    if model.tokens.first:
        read([cache], model.tokens.first, last=1)
    for passage in passages:
        read([cache], passage.ids, last=1)
        cache.end_turn()
    demanded = replace(said, demands=tuple(each for each in said.demands if each.kind == "call"))
    each, shape = head_recordings(cache, demanded, passages), model.decoder.shape
    found = []
    for layer in range(shape.layers):
        heads = each[layer * shape.kv_heads : (layer + 1) * shape.kv_heads]
        queries, keys, values = (
            np.concatenate([getattr(head, name) for head in heads])
            for name in ("queries", "keys", "values")
        )
        named = replace(heads[0].transcript, name=f"{said.name}, {layer}")
        numbers = tuple(number for head in heads for number in head.heads)
        vectors = (queries, keys, values)
        found.append(Recording(named, heads[0].tokens, heads[0].embeddings, *vectors, numbers, ""))
    return found


def recorded(model: LanguageModel, said: Sequence[Transcript]) -> None:
    """Print the gain of shared budgets in call-argument recall, averaged over layers."""
    names = [name for key in EQUAL for name in (key, f"ada-heads({key})")]
    each = [one for transcript in said for one in layers_of(model, transcript)]
    found = replay(Replay(tuple(map(read_policy, names)), (BUDGET,)), each)
    found = found[(found.metric == "call_recall") & found.value.notna()]
    found = found.assign(dialog=found.dialog.str.rpartition(",")[0])
    means = found.pivot_table("value", "dialog", "policy")
    services = {each.name: each.services for each in said}
    clusters = [services[name] for name in means.index]
    for key in EQUAL:
        gain = (means[f"ada-heads({key})"] - means[key]).to_numpy()
        low, high = cluster_interval(gain, clusters)
        print(
            f"{key}: {100 * means[key].mean():.1f}, shared by heads {100 * gain.mean():+.1f} "
            f"({100 * low:+.1f} to {100 * high:+.1f}), {len(gain)} dialogues"
        )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dialogs", type=int, default=500)
    parser.add_argument("--recorded", type=int, default=60)
    settings = parser.parse_args()
    settings.folder.mkdir(parents=True, exist_ok=True)
    said = read_shuffled(settings.file)
    equal = tuple(dict.fromkeys(read_policy(name).core.name for name in OF_HEADS))
    every = [read_policy(name) for name in (*equal, *OF_HEADS)]
    table = answered(every, said[: settings.dialogs], settings.folder / "answers.csv")
    shown = ("calls_exact_of_full", "nats")
    columns = ["metric", "policy", "n", "services", "count", "mean", "ci_low", "ci_high"]
    summary = answers_summary(table)
    print(summary[summary.metric.isin(shown)][columns].to_string(index=False))
    for key in equal:
        names = {key, *(name for name in OF_HEADS if read_policy(name).core.key == key)}
        pairs = answers_paired(table[table.policy.isin(names)], key)
        pairs = pairs[pairs.metric.isin(shown)]
        print(pd.DataFrame(pairs).drop(columns=["budget"]).to_string(index=False))
    recorded(load_language_model(BUNDLED), said[: settings.recorded])


if __name__ == "__main__":
    main()
