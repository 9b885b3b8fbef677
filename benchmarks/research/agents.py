"""Measure what policies hold of agent conversations: agents.csv.

    python -m benchmarks.research.agents FILE DIALOGUES [--workers N]

FILE has results of τ-bench, whose trials of one task form a cluster. Calls are read as text, and
vectors are lexical: a dialog's recall is the mean over those of several seeds. DIALOGUES has
dialogues of SGD, whose calls are not part of the text. With the package `wordfreq` installed,
surprisal is measured with the word frequencies of general English, too; marks keep those of the
shipped table.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks import options
from fdkvc.corpora.formats import read_bytes, read_dialogs
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.token_traits import word_surprisal
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.shipped_tables import AGENTS
from fdkvc.experiments.summary import mean_by_cluster
from fdkvc.limits import MAX_DIALOG_FILE_BYTES
from fdkvc.policies import read_policy, wrapped

POLICIES = (
    *("fifo", "sink", "h2o", "h2o:window=0.75", "h2o:window=0.9", "fd-kvc"),
    *("random", "surprisal", "learned", "snapkv", "tova", "keydiff"),
)
BUDGETS = (128, 256, 512, 1024, 2048)
SGD_BUDGETS = (32, 48, 64, 96, 128, 192, 256)
METRICS = ("call_recall", "old_call_recall")
SEEDS = (0, 1, 2, 3, 4)

PINNED_BUDGET = 2048
"""The only budget with room for a pinned system prompt."""

COLUMNS = (
    *("variant", "policy", "budget", "metric", "n", "clusters", "mean", "ci_low", "ci_high"),
    *("mean_diff", "diff_low", "diff_high"),
)

AS_READ, PINNED, GENERAL, SGD = "as read", "pinned", "general", "sgd"
"""The variants."""

MOST = 0.75
"""Share of the budget that the pinned prompt may take: at half of it the prompt would not fit."""


def general_surprisal() -> Callable[[str], float] | None:
    """Return the surprisal of a word in general English, if its frequencies are installed."""
    try:
        from wordfreq import get_frequency_dict, word_frequency
    except ImportError:
        return None
    least = min(get_frequency_dict("en").values())

    def surprisal(word: str) -> float:
        if not word[0].isalnum():
            return word_surprisal(word)
        return -math.log(word_frequency(word, "en") or least)

    return surprisal


def measured(
    recordings: Sequence[Recording], dialogues: Sequence[Recording], workers: int | None
) -> pd.DataFrame:
    """Return the recall of each dialog with vectors of one seed.

    Columns variant, policy, budget, metric, dialog, services (the cluster) and value.
    """
    policies = {name: read_policy(name) for name in POLICIES}
    names = {policy.name: name for name, policy in policies.items()}
    runs = [(AS_READ, Replay(tuple(policies.values()), BUDGETS), recordings)]
    pinned = {wrapped("whitelist", each, most=MOST): each.name for each in policies.values()}
    names |= {policy.name: names[inside] for policy, inside in pinned.items()}
    runs.append((PINNED, Replay(tuple(pinned), (PINNED_BUDGET,), best=False), recordings))
    if (surprisal := general_surprisal()) is not None:
        general = [
            replace(each, surprisal=np.array([*map(surprisal, each.words)], np.float32))
            for each in recordings
        ]
        alone = (policies["surprisal"],)
        runs.append((GENERAL, Replay(alone, BUDGETS, best=False), general))
    runs.append((SGD, Replay(tuple(policies.values()), SGD_BUDGETS), dialogues))
    tables = []
    for variant, settings, some in runs:
        found = replay(settings, some, workers=workers, on_progress=lambda at: print(at.title))
        tables.append(found.assign(variant=variant))
    found = pd.concat(tables)
    found = found[found.metric.isin(METRICS) & found.value.notna()]
    return found.assign(policy=found.policy.map(lambda name: names.get(name, name)))


def table(found: pd.DataFrame) -> pd.DataFrame:
    """Return means, and paired differences from `AS_READ`."""
    case = ["policy", "budget", "metric"]
    as_read = found[found.variant == AS_READ].set_index(["dialog", *case]).value
    rows = []
    for key, group in found.groupby(["variant", *case], sort=False):
        tasks, values = group.services.tolist(), group.value.to_numpy()
        numbers = list(mean_by_cluster(values, tasks, share=True))
        numbers += [math.nan] * 3
        if key[0] in {PINNED, GENERAL}:
            gap = (
                values - as_read.loc[pd.MultiIndex.from_frame(group[["dialog", *case]])].to_numpy()
            )
            numbers[-3:] = mean_by_cluster(gap, tasks)[2:]
        rows.append((*key, *numbers))
    return pd.DataFrame(rows, columns=[*COLUMNS])


def read(file: Path, *, calls: bool) -> tuple[Transcript, ...]:
    """Read dialogs, with or without calls as text."""
    return read_dialogs(read_bytes(file, MAX_DIALOG_FILE_BYTES), file.name, calls=calls)[0]


def main() -> None:
    """Measure and write, and print how means depend on the seed."""
    asked = options(__doc__, "file", "dialogues", workers=None)
    agents, dialogues = read(asked.file, calls=True), read(asked.dialogues, calls=False)
    runs = []
    for seed in SEEDS:
        one, other = (LexicalRecordings(each, seed) for each in (agents, dialogues))
        runs.append(measured(one, other, asked.workers).assign(seed=seed))
    found = pd.concat(runs)
    case = [name for name in found.columns if name not in ("seed", "value")]
    means = found.groupby(case, sort=False).value.mean().reset_index()
    table(means).round(6).to_csv(AGENTS, index=False)
    by = ["variant", "metric", "policy", "budget"]
    seeds = found.groupby([*by, "seed"], sort=False).value.mean().groupby(by, sort=False)
    print((100 * seeds.agg(["mean", "min", "max"])).round(1).to_string())


if __name__ == "__main__":
    main()
