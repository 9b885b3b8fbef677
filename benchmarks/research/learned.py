"""Fit the default weights of the policy `learned`, and measure what each feature is worth.

Reads train.json.xz as `benchmarks.research.held_out` does, draws dialogs that the bundled model was
trained on, fits to two thirds of the clusters, and prints call-argument recall on the rest: all
features, and without one or a group of them. Writes ``fdkvc/policies/learned.json``, fitted to all.

    python -m benchmarks.research.learned train.json.xz
"""

import json
import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks import options
from benchmarks.research.held_out import HELD_OUT, parted, read_dialogues
from fdkvc.corpora.formats import read_transcripts
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.experiments.learning import Weights, draw_pairs, fit, split_by_cluster
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.summary import mean_table
from fdkvc.policies import policy_named
from fdkvc.policies.learned import FEATURES, GROUPS, SHIPPED

DIALOGS, SEED = 600, 0

WITHOUT = ("user",)
"""Not used: the model's answers are better without it, on training dialogues."""

ADDED = {"surprisal": 0.6}
"""Added to fitted weights: what a model needs besides arguments is surprising, too. Chosen among 0,
0.6, 0.9 and 1.2 by the bundled model's answers on training dialogues."""

BUDGETS = (32, 48, 64, 96)


def adjusted(weights: Weights) -> Weights:
    """Return weights with `ADDED`."""
    added = np.array([ADDED.get(name, 0.0) for name in FEATURES])
    return replace(weights, weight=weights.weight + added)


def recall(weights: Weights, dialogs: LexicalRecordings) -> Sequence[float]:
    """Return call-argument recall in % at each of `BUDGETS`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json", dir=".", prefix="weights") as file:
        file.write(json.dumps({"features": weights.record()}))
        file.flush()
        policy = policy_named("learned", weights=Path(file.name).name)
        table = mean_table(replay(Replay((policy,), BUDGETS, best=False), dialogs))
    return [100 * mean for mean in table[table.metric == "call_recall"]["mean"]]


def main() -> None:
    """Fit, write and print."""
    learnt, _ = parted(read_dialogues(options(__doc__, "train").train), HELD_OUT, SEED)
    drawn = random.Random(SEED).sample(learnt, DIALOGS)
    transcripts = read_transcripts(json.dumps(drawn).encode())
    used = [name for name in FEATURES if name not in WITHOUT]
    features, labels = draw_pairs(LexicalRecordings(transcripts), SEED)
    about = {
        "file": "train.json.xz of the Schema-Guided Dialogue dataset (CC BY-SA 4.0)",
        "command": "python -m benchmarks.research.learned train.json.xz",
        "dialogs": DIALOGS,
        "clusters": len({each.services for each in transcripts}),
        "seed": SEED,
        "date": "2026-11-22",
        "added": ADDED,
    }
    weights = adjusted(fit(features, labels, used))
    record = {"training": about, "features": weights.record()}
    SHIPPED.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    training, rest = split_by_cluster(transcripts, SEED)
    features, labels = draw_pairs(LexicalRecordings(training), SEED)
    cases = {"shipped": used, "as fitted, with the speaker": [*FEATURES]}
    for name in [*GROUPS, *FEATURES]:
        left = [each for each in used if each not in GROUPS.get(name, (name,))]
        if left != used:
            cases.setdefault(f"without {name}", left)
    for name, names in cases.items():
        weights = fit(features, labels, names)
        weights = adjusted(weights) if "surprisal" in names and "fitted" not in name else weights
        print(name, *(f"{each:.1f}" for each in recall(weights, LexicalRecordings(rest))))


if __name__ == "__main__":
    main()
