"""Settings of FD-KVC's options: searched on training dialogs, and told of others once.

    python -m benchmarks.tune draw train.json.xz some.json --dialogs 400
    python -m benchmarks.tune search some.json log.jsonl [--settings 60] [--seed 0]
    python -m benchmarks.tune tell dev.json.xz log.jsonl [--policies ...]

A file is dialogues of the Schema-Guided Dialogue dataset in JSON, ``.xz`` or not, or a trace file
that ``python -m fdkvc capture`` made of some. *draw* takes them by set of services, one of each in
turn. *search* draws settings at random; the goal is call-argument recall above that of FIFO and of
H2O, whichever is better, at every budget, and late retention above 0.9 on Topic Shift. *tell*
compares policies, each preset beside its own ablations, with intervals by set of services.

Every look is written to the log: when, at which file, with which policies, and what came of it. So
it tells how often a file has been looked at.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from fdkvc.corpora.formats.annotated import read_dialogue
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.trace_file import read_trace_file
from fdkvc.experiments.benchmark import Benchmark, run_benchmark
from fdkvc.experiments.replay import Replay, replay, replay_paired, replay_summary
from fdkvc.policies import Policy, policy_named, read_policy
from fdkvc.replication.tables import summary_table
from fdkvc.synthetic.scenarios import SCENARIOS

BUDGETS = (32, 48, 64, 96, 128, 160)
SEARCHED = BUDGETS[:4]
"""Those where policies part; in larger caches nearly all is held."""

BASELINES = ("fifo", "h2o")
RECALL = "call_recall"
RETENTION = 0.9
"""Late retention to reach on Topic Shift."""

SHIFT = "shift"
SHIFT_DIALOGS = 10
"""Of Topic Shift, for each setting of the search."""

CHOICES: dict[str, tuple[float | str, ...]] = {
    "window": (0.25, 0.375, 0.5, 0.625, 0.75),
    "salience": (0.5, 0.7, 0.9, 1.0),
    "salience_decay": (0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
    "redundancy": (0.5, 0.6, 0.65, 0.7, 0.8),
    "relevance": ("similarity", "attention"),
    "w_c": (0.1, 0.45),
}
"""What the options are drawn from; recency is an average, so that it stays below 1."""

FIXED: dict[str, float | str] = {"reinforcement": "averaged"}


def dialogues(file: str) -> list[dict[str, Any]]:
    """Read the dialogues of a file as they are."""
    content = Path(file).read_bytes()
    found: list[dict[str, Any]] = json.loads(
        lzma.decompress(content) if file.endswith(".xz") else content
    )
    return found


def drawn(every: Sequence[dict[str, Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """Draw dialogues by set of services: one of each in turn, in an order that the seed draws."""
    random = np.random.default_rng(seed)
    kinds: dict[tuple[str, ...], list[int]] = {}
    for at in random.permutation(len(every)).tolist():
        kinds.setdefault(tuple(sorted(every[at]["services"])), []).append(at)
    order = [(place, kind, at) for kind in kinds for place, at in enumerate(kinds[kind])]
    return [every[at] for *_, at in sorted(order)[:count]]


def recordings_of(file: str) -> Sequence[Recording]:
    """Read a trace file, or give the words of a file of dialogues the lexical embedding."""
    if file.endswith(".npz"):
        return read_trace_file(BytesIO(Path(file).read_bytes()))
    return [
        lexical_recording(transcript)
        for number, each in enumerate(dialogues(file))
        for transcript in read_dialogue(each, number)
    ]


def note(log: str, **facts: Any) -> None:
    """Add a line to the log."""
    facts["when"] = datetime.now(UTC).isoformat(timespec="seconds")
    with Path(log).open("a", encoding="utf-8") as lines:
        lines.write(f"{json.dumps(facts)}\n")


def digest(file: str) -> str:
    """Return what a file is known by in the log."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


# ------------------------------------------------------------------------------- search


def candidates(settings: int, seed: int) -> list[Policy]:
    """Draw different settings."""
    random = np.random.default_rng(seed)
    found: dict[str, Policy] = {}
    while len(found) < settings:
        chosen = {name: values[random.integers(len(values))] for name, values in CHOICES.items()}
        policy = policy_named("fd-kvc", **{**FIXED, **chosen})
        found[policy.name] = policy
    return list(found.values())


def recalls(policies: Sequence[Policy], recordings: Sequence[Recording]) -> pd.DataFrame:
    """Return call-argument recall in % by policy and budget."""
    replayed = replay(Replay(tuple(policies), SEARCHED, best=False), recordings)
    found = replayed[replayed.metric == RECALL]
    table: pd.DataFrame = 100 * found.pivot_table("value", "policy", "budget", sort=False)
    return table


def shift_retention(policy: Policy) -> float:
    """Return the mean late retention of a policy on Topic Shift."""
    run = Benchmark((SCENARIOS[SHIFT],), (policy,), SHIFT_DIALOGS, metrics=("retention",))
    summary = summary_table(run_benchmark(run, workers=1))
    return float(summary[summary.scenario == SHIFT]["mean"].item())


def search(file: str, log: str, settings: int, seed: int, policies: Sequence[str]) -> None:
    """Measure settings, and print the best by their least and their mean margin."""
    recordings, known = recordings_of(file), digest(file)
    base = recalls([policy_named(key) for key in BASELINES], recordings)
    better = base.max()
    print(base.round(1).to_string())
    tried = list(map(read_policy, policies)) or candidates(settings, seed)
    note(log, look="search", file=known, dialogs=len(recordings), settings=len(tried), seed=seed)
    rows = {}
    for number, policy in enumerate(tried, start=1):
        found = recalls([policy], recordings).T[policy.name]
        margin = found - better
        facts = {
            "policy": policy.name,
            "least": round(float(margin.min()), 2),
            "mean": round(float(margin.mean()), 2),
            "retention": round(shift_retention(policy), 3),
            **{str(budget): round(float(found[budget]), 2) for budget in SEARCHED},
        }
        note(log, file=known, **facts)
        rows[policy.name] = facts
        if number % 10 == 0:
            print(f"{number} of {len(tried)}", flush=True)
    table = pd.DataFrame(rows.values()).set_index("policy")
    reached = table[table.retention >= RETENTION]
    for by in ("least", "mean"):
        print(f"\nby the {by} margin over the better of {' and '.join(BASELINES)}")
        print(reached.sort_values(by, ascending=False).head(12).to_string())


# ------------------------------------------------------------------------------- tell


def told(mean: float, low: float, high: float) -> str:
    """Write a difference in points."""
    return f"{100 * mean:+.1f} ({100 * low:+.1f} to {100 * high:+.1f})"


def tell(file: str, log: str, policies: Sequence[str], seed: int) -> None:
    """Compare policies on a file, and write down that it was looked at."""
    recordings = recordings_of(file)
    chosen = tuple(map(read_policy, policies))
    note(
        log,
        look="tell",
        file=digest(file),
        dialogs=len(recordings),
        source=recordings[0].source,
        policies=[policy.name for policy in chosen],
        budgets=BUDGETS,
    )
    replayed = pd.concat([replay(Replay(chosen, BUDGETS), recordings), *alike(chosen, recordings)])
    summary = replay_summary(replayed, seed)
    kinds = int(summary.services.max())
    print(f"{recordings[0].source}, {len(recordings)} dialogs of {kinds} sets of services")
    for metric in dict.fromkeys(summary.metric):
        if metric.endswith("call_recall"):
            means = summary[summary.metric == metric].pivot_table(
                "mean", "policy", "budget", sort=False
            )
            print(f"\n{metric} in %\n{(100 * means).round(1).to_string()}")
    for baseline in BASELINES:
        paired = replay_paired(replayed, baseline, seed)
        paired = paired[paired.metric == RECALL]
        words = list(map(told, paired.mean_diff, paired.ci_low, paired.ci_high))
        table = paired.assign(words=words).pivot_table(
            "words", "policy", "budget", aggfunc="first", sort=False
        )
        print(f"\nless {baseline}, in points\n{table.to_string()}")
        note(log, baseline=baseline, differences=table.to_dict("index"))


def alike(policies: Sequence[Policy], recordings: Sequence[Recording]) -> Iterator[pd.DataFrame]:
    """Yield what policies that weigh surprisal come to if every token is as surprising.

    What is left of it is age, so this is what surprisal itself is worth.
    """
    even = [replace(each, surprisal=np.ones(each.starts[-1], np.float32)) for each in recordings]
    for policy in policies:
        if "surprisal" in policy.looks_at:
            replayed = replay(Replay((policy,), BUDGETS, best=False), even)
            yield replayed.assign(policy=f"{policy.name}, all alike")


def ablations(policy: Policy) -> list[str]:
    """Return a preset beside FIFO and H2O, the same window, and itself without each ingredient."""
    window = policy.settings["window"].default
    off = {"salience": 0.0, "redundancy": 0.0, "window": 0.0}
    names = [
        *BASELINES,
        f"h2o window={window}",
        *("fd-kvc", "fd-kvc-window"),
        policy.name,
        *(policy.variant(**{name: value}).name for name, value in off.items()),
    ]
    return list(dict.fromkeys(read_policy(name).name for name in names))


def main() -> None:
    """Draw, search or tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("look", choices=("draw", "search", "tell"))
    parser.add_argument("file")
    parser.add_argument("out", help="the file to draw into, or the log")
    parser.add_argument("--dialogs", type=int, default=400, help="to draw")
    parser.add_argument("--settings", type=int, default=60, help="to search")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--policies", nargs="+", help="to tell of, or to search among")
    settings = parser.parse_args()

    began = perf_counter()
    if settings.look == "draw":
        some = drawn(dialogues(settings.file), settings.dialogs, settings.seed)
        Path(settings.out).write_text(json.dumps(some), "utf-8")
    elif settings.look == "search":
        search(
            settings.file, settings.out, settings.settings, settings.seed, settings.policies or ()
        )
    else:
        names = settings.policies or ablations(policy_named("fd-kvc-salience"))
        tell(settings.file, settings.out, names, settings.seed)
    print(f"\n{perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
