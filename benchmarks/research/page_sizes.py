"""Measure what page size costs, against eviction by entries: page_sizes.csv.

    python -m benchmarks.research.page_sizes FILE [--dialogs 200] [--seed 0]

FILE has real annotated dialogs; that many of them, drawn by the seed, are replayed with
the lexical embedding. It writes call-argument recall by policy, budget and page size, its paired
difference from eviction by entries, with intervals by clusters, and the share of the places
that are filled once a cache could be full. It also prints the difference between scoring a page by
its largest score and by its mean score.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from benchmarks import options
from benchmarks.research.held_out import read_shuffled
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.shipped_tables import FOLDER, TABLES
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.policies import Policy, policy_named, wrapped
from fdkvc.run.simulate import simulate

INSIDE = ("fifo", "h2o", "snapkv", "fd-kvc")
"""The policies that evict by pages."""

SIZES = (1, 8, 16, 32)
"""Entries of a page; 1 is eviction by entries."""

BUDGETS, METRIC = (48, 96), "call_recall"


def paged(key: str, size: int) -> Policy:
    """Return a policy that evicts by pages; by entries, where a page has one."""
    policy = policy_named(key)
    return policy if size == 1 else wrapped("blocks", policy, size=size)


def filled(policy: Policy, budget: int, recordings: Sequence[Recording]) -> float:
    """Return the share of the budget's places that hold an entry, once it could be full."""
    shares = []
    for recording in recordings:
        trace = simulate(policy, recording.dialogs, budget, entries=False)
        could = recording.dialogs.bounds[0, 1:] >= budget
        shares += ((trace.kept[0] >= 0).sum(axis=1) / budget)[could].tolist()
    return float(np.mean(shares))


def measured(recordings: Sequence[Recording]) -> pd.DataFrame:
    """Return a row for each policy, budget and page size."""
    rows = []
    for key in INSIDE:
        every = {size: paged(key, size) for size in SIZES}
        replayed = replay(Replay(tuple(every.values()), BUDGETS, best=False), recordings)
        replayed = replayed[replayed.metric == METRIC]
        paired = paired_differences(replayed, every[1].name)
        paired = paired.rename(columns={"ci_low": "diff_low", "ci_high": "diff_high"})
        gaps = paired[["policy", "budget", "mean_diff", "diff_low", "diff_high"]]
        found = mean_table(replayed).merge(gaps, "left", ["policy", "budget"]).fillna(0.0)
        sizes = {policy.name: size for size, policy in every.items()}
        found["filled"] = [
            filled(every[sizes[name]], budget, recordings)
            for name, budget in zip(found.policy, found.budget, strict=True)
        ]
        rows.append(found.assign(size=found.policy.map(sizes), policy=key)[[*TABLES["page_sizes"]]])
        print(key, flush=True)
    return pd.concat(rows)


def by_largest(recordings: Sequence[Recording]) -> pd.DataFrame:
    """Return the paired differences of scoring pages by their largest score, not by the mean."""
    rows = []
    for key in INSIDE:
        for size in SIZES[1:3]:
            mean, largest = (
                wrapped("blocks", policy_named(key), size=size, score=score)
                for score in ("mean", "largest")
            )
            replayed = replay(Replay((mean, largest), BUDGETS[:1], best=False), recordings)
            replayed = replayed[replayed.metric == METRIC]
            rows.append(paired_differences(replayed, mean.name))
    return pd.concat(rows)


def main() -> None:
    """Measure and write."""
    asked = options(__doc__, "file", dialogs=200, seed=0)
    transcripts = read_shuffled(asked.file, asked.seed)[: asked.dialogs]
    recordings = [lexical_recording(each, 0) for each in transcripts]
    table = measured(recordings)
    table.round(6).to_csv(FOLDER / "page_sizes.csv", index=False)
    print(table.to_string())
    print(by_largest(recordings).to_string())


if __name__ == "__main__":
    main()
