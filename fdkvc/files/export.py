"""Results as files: tables as CSV, and the ``run.json`` of `fdkvc.files.record`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from fdkvc.corpora.recordings import Recording
from fdkvc.dialogs import DialogBatch
from fdkvc.experiments.answers import Answers, AnswerScores
from fdkvc.experiments.arguments import forgotten, source_recall
from fdkvc.experiments.benchmark import Latency, Results
from fdkvc.experiments.model_shape import ModelShape
from fdkvc.experiments.plan import dialog_lengths, plan_table, smallest_budgets
from fdkvc.experiments.proxies import AnswersTables
from fdkvc.experiments.replay import Replay, cluster_means, not_computed
from fdkvc.experiments.study import Study
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.explain.tables import entries_table, turns_table
from fdkvc.files.record import run_json
from fdkvc.limits import MAX_ENTRY_ROWS
from fdkvc.lm.language_model import AnyModel
from fdkvc.paper.tables import BASELINE
from fdkvc.policies import Policy
from fdkvc.replication import tables
from fdkvc.run.trace import Trace
from fdkvc.synthetic.scenarios import Scenario, World

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a text that starts with one of these as a formula."""


# ------------------------------------------------------------------------------- formats


def csv_text(frame: pd.DataFrame) -> str:
    r"""Return a table as CSV: one header, numbers in full, nothing where a value is missing.

    A number is written with the fewest digits that give it back exactly in its own precision: a
    float32 of 0.3 is ``0.3`` and not ``0.30000001192092896``. Texts that a spreadsheet would run as
    a formula get a ``'`` in front; numbers are left alone. The index is left out.

    Examples
    --------
    >>> csv_text(pd.DataFrame({"topic": ["A", "=1+1", None], "score": [0.1, -2.0, None]}))
    "topic,score\nA,0.1\n'=1+1,-2.0\n,\n"
    """
    defused = frame.copy()
    for name in frame.select_dtypes(include=["object", "string", "category"]):
        if any(_defuse(each) is not each for each in frame[name].unique()):
            defused[name] = frame[name].astype(object).map(_defuse)
    return defused.to_csv(index=False, lineterminator="\n")


def _defuse(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


# ------------------------------------------------------------------------------- what files hold


def benchmark_files(
    results: Results, latencies: Iterable[Latency], baseline: str = BASELINE
) -> dict[str, str]:
    """Return the files of a benchmark by name: its four tables and ``run.json``."""
    numbers = {
        "summary.csv": csv_text(tables.summary_table(results)),
        "adaptation.csv": csv_text(tables.adaptation_table(results)),
        "paired.csv": csv_text(tables.paired_table(results, baseline)),
    }
    about = {"baseline": baseline, "finished": finished(results)}
    return {
        **numbers,
        "latency.csv": csv_text(tables.latency_table(Study(results, latencies=tuple(latencies)))),
        "run.json": run_json("benchmark", results.benchmark, numbers, results.seconds, **about),
    }


def finished(results: Results) -> dict[str, int] | None:
    """Return how many dialogs of each scenario a cancelled run finished, None if all."""
    keys = [scenario.key for scenario in results.benchmark.scenarios]
    return None if results.complete else {key: results.dialogs(key) for key in keys}


def trace_files(
    trace: Trace, dialogs: DialogBatch, more: Iterable[str] = (), words: Sequence[str] = ()
) -> dict[str, str]:
    """Return the files of a trace by name; see `turns_table` and `entries_table`."""
    return {
        "entries.csv": csv_text(entries_table(trace, dialogs, words=words)),
        "turns.csv": csv_text(turns_table(trace, dialogs, metrics=more)),
    }


def replay_files(
    settings: Replay,
    replayed: pd.DataFrame,
    baseline: str,
    *,
    source: str,
    file: str,
    seed: int,
    seconds: float,
    name: str | None = None,
    shape: ModelShape | None = None,
    more: Mapping[str, pd.DataFrame] | None = None,
) -> dict[str, str]:
    """Return the files of a replay by name: its tables and ``run.json``.

    `source` is that of the vectors, `name` that of the file of dialogs, if it is not the examples,
    and `file` its SHA-256, `seed` that of the lexical embedding, and `shape` that of the model of a
    plan. `more` has other tables by file name.
    """
    numbers = {
        "replay.csv": csv_text(replayed),
        "replay_summary.csv": csv_text(mean_table(replayed)),
        "replay_paired.csv": csv_text(paired_differences(replayed, baseline)),
        "replay_services.csv": csv_text(cluster_means(replayed)),
        **{name: csv_text(table) for name, table in (more or {}).items()},
    }
    about: dict[str, Any] = {"source": source, "name": name, "file": file, "seed": seed}
    about |= {"dialogs": int(replayed.dialog.nunique()), "baseline": baseline, "shape": shape}
    about["missing"] = not_computed(replayed) or None
    return {**numbers, "run.json": run_json("replay", settings, numbers, seconds, **about)}


def argument_files(arguments: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the tables of `fdkvc.experiments.arguments` by file name."""
    return {
        "replay_sources.csv": source_recall(arguments),
        "replay_forgotten.csv": forgotten(arguments),
    }


def replay_tables(
    settings: Replay,
    recordings: Sequence[Recording],
    table: pd.DataFrame,
    calls: pd.DataFrame,
    shape: ModelShape | None,
) -> dict[str, pd.DataFrame]:
    """Return the tables of arguments and, for a model's shape, of the plan by file name."""
    more = argument_files(calls)
    if shape is not None:
        plan = plan_table(settings, table, dialog_lengths(recordings), shape)
        more |= {"plan.csv": plan, "plan_budgets.csv": smallest_budgets(plan)}
    return more


def answers_files(
    settings: Answers,
    measured: AnswerScores,
    found: AnswersTables,
    *,
    model: AnyModel,
    file: str,
    seconds: float,
    more: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return the files of answers by name: their tables and ``run.json``.

    `file` is the SHA-256 of the file of dialogs, and `more` what else the numbers depend on, as
    values of JSON.
    """
    numbers = {
        "answers.csv": csv_text(pd.concat([measured.answers, measured.proxies])),
        "answers_summary.csv": csv_text(found.summary),
        "answers_paired.csv": csv_text(found.paired),
        "proxies.csv": csv_text(found.proxies),
    }
    if not found.known.empty:
        numbers["answers_services.csv"] = csv_text(found.known)
        numbers["answers_by_services.csv"] = csv_text(found.by_services)
    about = {
        "model": {"name": model.name, "digest": model.digest, **(more or {})},
        "file": file,
        "dialogs": int(measured.answers.dialog.nunique()),
        "baseline": found.baseline,
    }
    return {**numbers, "run.json": run_json("answers", settings, numbers, seconds, **about)}


def check_entries(policy: Policy, scenario: Scenario, budget: int) -> None:
    """Raise a ValueError if a dialog's table of entries could be too long."""
    new, turns = World().tokens_per_turn, len(scenario.schedule)
    held = policy.capacity(budget, turns * new) + policy.tier_places(budget, turns * new)
    entries = sum(min(turn * new, held + new) for turn in range(1, turns + 1))
    if entries > MAX_ENTRY_ROWS:
        raise ValueError(
            f"the trace has up to {entries:,} entries, but at most {MAX_ENTRY_ROWS:,} are written: "
            "choose a shorter schedule or a smaller budget"
        )
