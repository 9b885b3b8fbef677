"""Measure the map of policies: fdkvc/experiments/shipped/policy_map.csv.

    python -m benchmarks.research.policy_map FILE FOLDER [--drawn N] [--dialogs N] [--answers N]

FILE has real annotated dialogs. A sample drawn by the seed is replayed with the lexical embedding
and answered by the bundled model. FOLDER keeps the values of each dialog, so that an interrupted
run continues. The map is written last.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks import options
from benchmarks.research.held_out import read_shuffled
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.transcripts import Transcript
from fdkvc.experiments.answers import Answers, run_answers
from fdkvc.experiments.benchmark import Benchmark, measure_latency, run_benchmark
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.shipped_tables import AXES, FOLDER, TABLES
from fdkvc.experiments.statistics import (
    CONFIDENCE,
    RESAMPLES,
    cluster_interval,
    cluster_numbers,
)
from fdkvc.lm import BUNDLED
from fdkvc.lm.language_model import load_language_model
from fdkvc.policies import (
    POLICIES,
    Policy,
    looks_at_words,
    policy_named,
    read_policy,
    synthetic_policies,
)
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS

COLUMNS = tuple(TABLES["policy_map"])
BUDGET = 48

OF_HEADS = (
    *(f"ada-heads({key})" for key in ("h2o", "snapkv", "keydiff")),
    *(f"pyramid({key})" for key in ("h2o", "snapkv", "keydiff")),
    *(f"pyramid({key}, last=1.5)" for key in ("h2o", "snapkv", "keydiff")),
    *("pyramid(fifo)", "pyramid(fifo, last=1.5)"),
)
"""Settings that matter only with several heads or layers: measured on the model's answers."""

VARIANTS = (
    "retrieval size=8",
    "h2o window=0.75",
    "h2o forgetting=0.88",
    "window(snapkv, share=0.75)",
    "whitelist(fd-kvc)",
    "turns(snapkv)",
    "turns(h2o)",
    "recall(fifo)",
    "blocks(h2o, size=8)",
    "blocks(h2o, size=16)",
    "blocks(surprisal, size=8)",
)
"""Settings on the map besides every policy with its defaults."""


def policies() -> tuple[Policy, ...]:
    """Return the settings on the map."""
    names = (*synthetic_policies(), "learned", *VARIANTS, *OF_HEADS)
    return tuple(policy_named(name) if name in POLICIES else read_policy(name) for name in names)


def drawn(every: Sequence[Policy], dialogs: int, seed: int) -> pd.DataFrame:
    """Return each synthetic dialog's values, averaged over the scenarios."""
    metrics = [
        axis.removeprefix("late_") for axis in AXES if AXES[axis].data == AXES["memory"].data
    ]
    results = run_benchmark(
        Benchmark(
            scenarios=tuple(SCENARIOS[key] for key in BENCHMARK_SCENARIOS),
            policies=tuple(every),
            dialogs=dialogs,
            seed=seed,
            metrics=tuple(metric for metric in metrics if metric != "time"),
        )
    )
    rows = []
    for policy in every:
        for axis in AXES:
            metric = axis if axis.startswith("late_") else f"late_{axis}"
            for at, value in enumerate(results.mean(BENCHMARK_SCENARIOS, policy.name, metric)):
                rows.append((at, at, policy.name, axis, float(value), 1))
    columns = ["dialog", "services", "policy", "metric", "value", "count"]
    return pd.DataFrame(rows, columns=columns).dropna()


def real(every: Sequence[Policy], transcripts: Sequence[Transcript]) -> pd.DataFrame:
    """Return each real dialog's values in a replay."""
    recordings = [lexical_recording(each, 0) for each in transcripts]
    found = replay(Replay(tuple(every), (BUDGET,), best=False), recordings).assign(count=1)
    return found[found.value.notna()]


def answered(policy: Policy, transcripts: Sequence[Transcript]) -> pd.DataFrame:
    """Return the scores of the model's answers to each dialog."""
    settings = Answers((policy,), (BUDGET,), cut_text=False, write_calls=True)
    found = run_answers(settings, load_language_model(BUNDLED), transcripts).answers
    return found[found.policy == policy.name]


def times(every: Sequence[Policy], repeats: int = 5) -> Iterator[tuple[object, ...]]:
    """Yield the rows of the time of a turn: the median, minimum and maximum over rounds."""
    rounds = [
        {
            each.policy: each.milliseconds
            for each in measure_latency(every, repeats=3, batched=False)
        }
        for _ in range(repeats)
    ]
    numbers = np.array([[each[policy.name] / each["fifo"] for each in rounds] for policy in every])
    medians = np.median(numbers, axis=1)
    ranks = 1 + (numbers[None] < numbers[:, None]).sum(axis=1)
    for at, policy in enumerate(every):
        rank = 1 + int((medians < medians[at]).sum())
        figures = (float(medians[at]), float(numbers[at].min()), float(numbers[at].max()))
        within = (int(ranks[at].min()), int(ranks[at].max()))
        yield policy.name, "time", repeats, *figures, rank, *within


def rank_policies(measured: pd.DataFrame, axis: str, seed: int = 0) -> pd.DataFrame:
    """Return the mean and the rank of every policy on one of `AXES`, with 95 % intervals.

    A rank's interval is over bootstrap resamples of clusters, shared by all policies.
    `measured` has columns dialog, services, policy, value and count, a dialog's weight, of the same
    dialogs for every policy; the result has `COLUMNS`.
    """
    values, counts = (
        measured.pivot_table(column, "dialog", "policy", sort=False).dropna()
        for column in ("value", "count")
    )
    services = measured.drop_duplicates("dialog").set_index("dialog").services[values.index]
    clusters = cluster_numbers(services.tolist())
    size = clusters.max() + 1
    drawn = np.random.default_rng(seed).multinomial(size, [1 / size] * size, size=RESAMPLES)
    weights = drawn[:, clusters].astype(float)
    numbers, sizes = values.to_numpy(float), counts.loc[values.index].to_numpy(float)
    sums, totals = weights @ (numbers * sizes), weights @ sizes
    means = np.divide(sums, totals, out=np.full(sums.shape, np.nan), where=totals > 0)
    mean = (numbers * sizes).sum(axis=0) / sizes.sum(axis=0)
    lower = AXES[axis].lower_is_better
    rank, ranks = _ranks(mean[None], lower)[0], _ranks(means, lower)
    rows = []
    for at, policy in enumerate(values.columns):
        ends = cluster_interval(numbers[:, at], clusters.tolist(), sizes[:, at])
        within = np.quantile(ranks[:, at], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
        figures = (len(values), mean[at], *ends)
        rows.append((policy, axis, *figures, int(rank[at]), *map(round, within.tolist())))
    return pd.DataFrame(rows, columns=COLUMNS)


def _ranks(means: NDArray[np.float64], lower_is_better: bool) -> NDArray[np.float64]:
    """Rank the columns of each row, 1 for the best; ties share the best rank."""
    signed = means if lower_is_better else -means
    better = signed[:, None, :] < signed[:, :, None]
    return np.asarray(1.0 + better.sum(axis=2), np.float64)


def _once(path: Path, measure: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    if not path.exists():
        measure().to_csv(path, index=False)
    return pd.read_csv(path)


def main() -> None:
    """Measure what is missing in the folder, and write the map."""
    asked = options(__doc__, "file", "folder", drawn=100, dialogs=200, answers=200, seed=0)
    asked.folder.mkdir(parents=True, exist_ok=True)
    every = policies()
    alone = [policy for policy in every if policy.name not in OF_HEADS]
    wordless = [policy for policy in alone if not looks_at_words(policy)]
    transcripts = read_shuffled(asked.file, asked.seed)
    steps = {
        "drawn": partial(drawn, wordless, asked.drawn, asked.seed),
        "real": partial(real, alone, transcripts[: asked.dialogs]),
        **{
            f"answers {number}": partial(answered, policy, transcripts[: asked.answers])
            for number, policy in enumerate(every)
            if "future" not in policy.looks_at
        },
    }
    measured = pd.concat(_once(asked.folder / f"{name}.csv", step) for name, step in steps.items())
    rows = [
        rank_policies(measured[measured.metric == axis], axis, asked.seed)
        for axis in AXES
        if axis != "time"
    ]
    whole = pd.concat([*rows, pd.DataFrame(times(wordless), columns=COLUMNS)])
    whole.round(6).to_csv(FOLDER / "policy_map.csv", index=False)


if __name__ == "__main__":
    main()
