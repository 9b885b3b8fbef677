"""Settings of FD-KVC's options, searched on one half of a file's dialogs, told on the other.

    python -m benchmarks.tune FILE [--trace] [--half even] [--settings 400] [--policies ...]

The goals: call-argument recall not below H2O's at any budget by more than the paired 95 % interval,
and late retention above 0.9 on Topic Shift. Settings are drawn at random. Those that reach both are
listed by their recall, with the Pareto front of the two goals, which alone is listed if none does;
the first of them are told on the other half of the dialogs and on the synthetic scenarios, beside
other policies. The second tier stays off, since it is memory beyond the budget.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from io import BytesIO
from time import perf_counter

import numpy as np
import pandas as pd

from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.judged.tables import adaptation_table, summary_table
from fdkvc.measured.benchmark import Benchmark, run_benchmark
from fdkvc.measured.replay import Replay, replay, replay_paired, replay_summary
from fdkvc.measured.statistics import pareto_front
from fdkvc.policies import Policy, policy_named, read_policy
from fdkvc.said.formats import read_bytes, read_file
from fdkvc.said.lexical import lexical_recording
from fdkvc.said.recordings import Recording
from fdkvc.said.trace_file import MOST_BYTES, read_trace_file

RETENTION = 0.9
"""Late retention to reach on Topic Shift."""

RECALLS = ("call_recall", "old_call_recall")
SHIFT = "shift"
SHIFT_DIALOGS = 40
"""Of Topic Shift, for each setting of the search."""

CHOICES: dict[str, tuple[float | str, ...]] = {
    "window": (0.0, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
    "reinforcement": ("added", "averaged"),
    "relevance": ("similarity", "attention"),
    "gamma": (0.5, 0.7, 0.8, 0.88, 0.95),
    "alpha_0": (0.1, 0.3, 0.5),
    "tau": (0.0, 0.02, 0.1, 0.2),
    "w_c": (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8),
    "kappa": (0.0, 0.0, 0.5, 1.0),
}
"""What the options are drawn from."""


def candidates(settings: int, seed: int) -> list[Policy]:
    """Draw different settings; an option that another one silences has its default."""
    random = np.random.default_rng(seed)
    found: dict[str, Policy] = {}
    while len(found) < settings:
        drawn = {name: values[random.integers(len(values))] for name, values in CHOICES.items()}
        if drawn["reinforcement"] == "averaged":
            del drawn["alpha_0"]
        policy = policy_named("fd-kvc", **drawn)
        found[policy.name] = policy
    return list(found.values())


def margins(replayed: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """Return of each policy the least difference from the baseline over budgets, and its means.

    Returns
    -------
    DataFrame
        A row a policy: ``least``, the least upper end of the paired interval of recall over the
        budgets, not below 0 where the goal is reached; and the means of `RECALLS` over budgets.
    """
    paired = replay_paired(replayed, baseline)
    least = paired[paired.metric == RECALLS[0]].groupby("policy", sort=False).ci_high.min()
    means = replay_summary(replayed).pivot_table("mean", "policy", "metric")[list(RECALLS)]
    return means.join(least.rename("least"), how="inner")


def shift_retention(policies: Sequence[Policy], dialogs: int) -> pd.Series[float]:
    """Return the mean late retention of each policy on Topic Shift."""
    run = Benchmark((SCENARIOS[SHIFT],), tuple(policies), dialogs, metrics=("retention",))
    summary = summary_table(run_benchmark(run, workers=1))
    return summary[summary.scenario == SHIFT].set_index("policy")["mean"].rename("retention")


def search(recordings: Sequence[Recording], tried: Sequence[Policy]) -> pd.DataFrame:
    """Return what every setting reaches on these dialogs and on Topic Shift, the best first."""
    baseline = policy_named("h2o")
    replayed = replay(Replay((baseline, *tried)), recordings)
    table = margins(replayed, baseline.name).join(shift_retention(tried, SHIFT_DIALOGS))
    both = (table.least >= 0) & (table.retention > RETENTION)
    front = pareto_front(table[["least", "retention"]].to_numpy())
    table = table.assign(both=both, front=front, mean=table[list(RECALLS)].mean(axis=1))
    return table.sort_values(["both", "mean"], ascending=False)


def tell(policies: Sequence[Policy], recordings: Sequence[Recording]) -> None:
    """Print recall on these dialogs beside H2O's, and the synthetic scenarios."""
    replayed = replay(Replay(tuple(policies)), recordings)
    percent = "{:.1f}".format
    for metric in RECALLS:
        summary = replay_summary(replayed)
        means = 100 * summary[summary.metric == metric].pivot_table(
            "mean", "policy", "budget", sort=False
        )
        print(f"\n{metric} in %, {len(recordings)} dialogs")
        print(means.to_string(float_format=percent))
        paired = replay_paired(replayed, "h2o")
        paired = paired[paired.metric == metric]
        words = [
            f"{100 * mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
            for mean, low, high in zip(paired.mean_diff, paired.ci_low, paired.ci_high, strict=True)
        ]
        shown = paired.assign(words=words).pivot_table(
            "words", "policy", "budget", aggfunc="first", sort=False
        )
        print(f"\n{metric}, difference from h2o in points, paired 95 % interval")
        print(shown.to_string())

    results = run_benchmark(Benchmark(policies=tuple(policies), dialogs=200), workers=1)
    summary = summary_table(results)
    for metric in ("late_retention", "late_diversity", "late_alignment"):
        print(f"\n{metric} in %")
        chosen = summary[summary.metric == metric]
        means = 100 * chosen.pivot_table("mean", "policy", "scenario", sort=False)
        print(means.to_string(float_format=percent))
    print("\nturns to adapt")
    print(adaptation_table(results).to_string(index=False, float_format=percent))


def main() -> None:
    """Search on one half, tell on the other."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--trace", action="store_true", help="the file is a trace file")
    parser.add_argument("--half", choices=("even", "odd"), default="even", help="to search on")
    parser.add_argument("--settings", type=int, default=400, help="0 searches nothing")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--finalists", type=int, default=3)
    parser.add_argument(
        "--policies",
        nargs="+",
        default=["fifo", "sink", "h2o", "random", "fd-kvc", "fd-kvc-window"],
        help="to tell of, h2o among them",
    )
    settings = parser.parse_args()

    began = perf_counter()
    recordings: Sequence[Recording]
    if settings.trace:
        recordings = read_trace_file(BytesIO(read_bytes(settings.file, MOST_BYTES)))
    else:
        recordings = [lexical_recording(transcript) for transcript in read_file(settings.file)]
    even, odd = recordings[::2], recordings[1::2]
    searched, held_out = (even, odd) if settings.half == "even" else (odd, even)

    finalists: list[Policy] = []
    if settings.settings:
        table = search(searched, candidates(settings.settings, settings.seed))
        reached = table[table.both]
        print(
            f"{len(reached)} of {len(table)} settings reach both goals on {settings.half} dialogs"
        )
        shown = reached if len(reached) else table[table.front]
        print(shown.head(25).to_string(float_format="{:.3f}".format))
        print("\nPareto front")
        print(table[table.front].to_string(float_format="{:.3f}".format))
        finalists = [read_policy(str(name)) for name in shown.index[: settings.finalists]]
    tell([*map(read_policy, settings.policies), *finalists], held_out)
    print(f"\n{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
