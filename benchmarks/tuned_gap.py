"""How much of FD-KVC's gap tuning closes: on each scenario, on dialogues of people, on answers.

    python -m benchmarks.tuned_gap FILE FOLDER [--trials 120] [--answers 60]

Each goal is searched by itself, among all of FD-KVC's hyperparameters but its second tier, which is
memory beyond the budget. The scenarios' goal is late retention, on drawn dialogs; the dialogues' is
call-argument recall with the lexical embedding. What a search found is told on other dialogs,
beside the paper's FD-KVC, `fd-kvc-window` and FIFO; what it found for recall also by the answers of
the bundled model. FOLDER keeps the journals. It needs requirements-tune.txt.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmarks.held_out import read_shuffled
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.answers import MEASURED, Answers, answer_chunk, answers_summary
from fdkvc.experiments.replay import Replay, replay
from fdkvc.experiments.statistics import paired, summarize
from fdkvc.experiments.tuning import FRESH_SEED, Tuning, tune
from fdkvc.lm import BUNDLED
from fdkvc.lm.folder import load_model
from fdkvc.policies import Policy, policy_named, read_policy
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS

BUDGET = 48
TUNED = "fd-kvc"
BESIDE = ("fd-kvc-window", "fifo")
SECOND_TIER = ("recall", "page_match")
NAMES = tuple(name for name in policy_named(TUNED).settings if name not in SECOND_TIER)


@dataclass(frozen=True)
class OnDialogs(Tuning):
    """A search by the recall of dialogues: some for the search, others for the report."""

    searched_on: Sequence[Recording] = field(default=(), compare=False, repr=False)
    told_on: Sequence[Recording] = field(default=(), compare=False, repr=False)

    def measured(self, dialogs: int, seed: int, policies: Sequence[Policy]) -> dict[str, Any]:
        """Return each policy's recall of every dialogue that asks for something."""
        recordings = self.searched_on if seed == self.seed else self.told_on
        different = {policy.name: policy for policy in policies}
        found = replay(Replay(tuple(different.values()), (self.budget,)), recordings)
        found = found[(found.metric == "call_recall") & found.value.notna()]
        return {str(name): group.value.to_numpy()[None] for name, group in found.groupby("policy")}


def row(name: str, tuning: Tuning, journal: Path) -> tuple[str, Policy]:
    """Search one goal; return its line of the table, and the best setting."""
    tuned = tune(tuning, journal)
    (goal,) = tuning.metrics
    best = read_policy(str(tuned.trials.sort_values(goal).setting.iloc[-1]))
    every = [tuning.policy, best, *map(policy_named, BESIDE)]
    numbers = tuning.measured(tuning.fresh, tuning.seed + FRESH_SEED, every)
    gain = paired(numbers[best.name][0], numbers[TUNED][0])
    means = {name: summarize(values[0]).mean for name, values in numbers.items()}
    gap = means["fifo"] - means[TUNED]
    closed = f"{100 * gain.mean / gap:.0f} %" if gap > 0.005 else "no gap"
    cells = [f"{100 * means[each.name]:.1f}" for each in every]
    interval = f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    return f"| {name} | {' | '.join(cells)} | {interval} | {closed} |", best


def main() -> None:
    """Search and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=120)
    parser.add_argument("--answers", type=int, default=60)
    settings = parser.parse_args()
    start = policy_named(TUNED)
    print(
        "| goal | fd-kvc | tuned | fd-kvc-window | fifo | gain | of the gap to fifo |", flush=True
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    for key in BENCHMARK_SCENARIOS:
        alone = Tuning(start, NAMES, ("retention",), (key,), trials=settings.trials)
        line, best = row(f"late retention, {key}", alone, settings.folder / f"{key}.log")
        print(line, f"`{best.name}`", flush=True)

    said = read_shuffled(settings.file)
    recordings = [lexical_recording(each, 0) for each in said[:300]]
    real = OnDialogs(
        start,
        NAMES,
        ("retention",),
        trials=settings.trials,
        budget=BUDGET,
        searched_on=recordings[200:],
        told_on=recordings[:200],
    )
    line, best = row("call-argument recall, dialogues", real, settings.folder / "dialogues.log")
    print(line, f"`{best.name}`", flush=True)

    every = (start, best, *map(policy_named, BESIDE))
    asked = Answers(every, (BUDGET,), cut_text=False, proxies=False)
    with threadpool_limits(1, user_api="blas"):
        chosen = said[: settings.answers]
        rows, _ = answer_chunk(asked, load_model(BUNDLED), chosen)
    table = answers_summary(pd.DataFrame(rows, columns=list(MEASURED)), 0)
    print(table[table.metric.isin(["calls_exact_of_full", "nats"])].to_string(), flush=True)


if __name__ == "__main__":
    main()
