"""Results as files: tables as CSV, and how a run was made as ``run.json``."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pandas as pd

from fdkvc.experiments.answers import Answers, AnswerScores
from fdkvc.experiments.benchmark import Benchmark, Latency, Results
from fdkvc.experiments.proxies import AnswersTables
from fdkvc.experiments.replay import Replay, replay_paired, replay_services, replay_summary
from fdkvc.experiments.study import Study
from fdkvc.experiments.workers import processor
from fdkvc.explain.tables import entries_table, turns_table
from fdkvc.limits import MAX_EMBEDDED_CHARACTERS, MAX_ENTRY_ROWS
from fdkvc.lm.language_model import AnyModel
from fdkvc.paper.tables import BASELINE
from fdkvc.policies import Policy, as_record
from fdkvc.replication import tables
from fdkvc.run.trace import Trace
from fdkvc.synthetic.batch import DialogBatch
from fdkvc.synthetic.scenarios import Scenario, World

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a text that starts with one of these as a formula."""

NUMBERS = ("summary.csv", "adaptation.csv", "paired.csv")
"""Files of a benchmark that have no times in them, and that the same run gives again."""


# ------------------------------------------------------------------------------- formats


def csv_text(frame: pd.DataFrame) -> str:
    r"""Return a table as CSV: one header, numbers in full, nothing where a value is missing.

    A number is written with the fewest digits that give it back exactly in its own precision: a
    float32 of 0.3 is ``0.3`` and not ``0.30000001192092896``. Texts that a spreadsheet would run
    as a formula get a ``'`` in front; numbers are left alone.

    Parameters
    ----------
    frame : DataFrame
        Its index is left out.

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


def run_json(
    seed: int | None,
    parameters: Mapping[str, object],
    seconds: float,
    files: Mapping[str, str] | None = None,
) -> str:
    """Return what is needed to repeat a run, as JSON with its keys in a fixed order.

    Parameters
    ----------
    seed : int, optional
        Of what was drawn; None if nothing was.
    parameters : mapping of name to anything that JSON can hold
        Everything else that the numbers depend on; see `benchmark_parameters`.
    seconds : float
        How long the run took.
    files : mapping of name to text, optional
        Files of which the same run gives the same bytes. Their digests are kept, and the lines of
        those that are not large, so that a later run can be compared with this one: on the same
        machine byte for byte, on another number by number.
    """
    known = files or {}
    run = {
        **({} if seed is None else {"seed": seed}),
        "parameters": dict(parameters),
        "versions": versions(),
        "processor": processor(),
        "seconds": seconds,
        "digests": {name: digest(text) for name, text in known.items()},
        "numbers": {
            name: text.splitlines()
            for name, text in known.items()
            if len(text) <= MAX_EMBEDDED_CHARACTERS
        },
    }
    return json.dumps(run, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def versions() -> dict[str, str]:
    """Return the versions of the project, of its code, and of what its numbers rest on."""
    packages = ("numpy", "scipy", "pandas")
    return {
        "fdkvc-lab": project_version(),
        "source": source_digest(),
        "python": platform.python_version(),
        **{package: metadata.version(package) for package in packages},
    }


def project_version() -> str:
    """Return the version of this project, installed or run from its folder."""
    source = Path(__file__).parents[2] / "pyproject.toml"
    if source.is_file():
        return str(tomllib.loads(source.read_text("utf-8"))["project"]["version"])
    try:
        return metadata.version("fdkvc-lab")
    except metadata.PackageNotFoundError:
        return "unknown"


def digest(text: str) -> str:
    """Return the SHA-256 of a text as UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def source_digest() -> str:
    """Return a digest of this package's source, which says which code a run is of."""
    folder = Path(__file__).parents[1]
    joined = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        joined.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return joined.hexdigest()[:16]


def benchmark_parameters(benchmark: Benchmark, baseline: str) -> dict[str, object]:
    """Return everything that a benchmark's numbers depend on apart from the seed."""
    return {
        "dialogs": benchmark.dialogs,
        "budget": benchmark.budget,
        "baseline": baseline,
        "metrics": list(benchmark.metrics),
        "scenarios": [dataclasses.asdict(scenario) for scenario in benchmark.scenarios],
        "policies": list(map(as_record, benchmark.policies)),
        "world": dataclasses.asdict(benchmark.world),
    }


def results_parameters(results: Results, baseline: str) -> dict[str, object]:
    """Return those of the benchmark that ran; if it was cut short, also what was finished.

    That is how many dialogs of each scenario, where ``dialogs`` are those that were asked for.
    """
    benchmark = results.benchmark
    parameters = benchmark_parameters(benchmark, baseline)
    if results.complete:
        return parameters
    finished = {scenario.key: results.dialogs(scenario.key) for scenario in benchmark.scenarios}
    return {**parameters, "finished": finished}


# ------------------------------------------------------------------------------- what files hold


def benchmark_files(
    results: Results, latencies: Iterable[Latency], baseline: str = BASELINE
) -> dict[str, str]:
    """Return the files of a benchmark by name: its four tables and ``run.json``."""
    frames = (
        tables.summary_table(results),
        tables.adaptation_table(results),
        tables.paired_table(results, baseline),
    )
    numbers = dict(zip(NUMBERS, map(csv_text, frames), strict=True))
    return {
        **numbers,
        "latency.csv": csv_text(tables.latency_table(Study(results, latencies=tuple(latencies)))),
        "run.json": run_json(
            results.benchmark.seed, results_parameters(results, baseline), results.seconds, numbers
        ),
    }


def ablation_files(results: Results, parameter: str) -> dict[str, str]:
    """Return the files of an ablation by name."""
    return {"ablation.csv": csv_text(tables.ablation_table(results, parameter))}


def trace_files(trace: Trace, dialogs: DialogBatch, asked: Iterable[str] = ()) -> dict[str, str]:
    """Return the files of a trace by name; see `turns_table`."""
    return {
        "entries.csv": csv_text(entries_table(trace, dialogs)),
        "turns.csv": csv_text(turns_table(trace, dialogs, asked=asked)),
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
) -> dict[str, str]:
    """Return the files of a replay by name: its tables and ``replay.json``.

    Parameters
    ----------
    replayed : DataFrame
        As `fdkvc.experiments.replay.replay` returns it.
    baseline : str
        The name of a policy that ran.
    source : str
        What made the vectors.
    file : str
        A digest of the file of dialogs.
    seed : int
        Of the lexical embedding.
    """
    numbers = {
        "replay.csv": csv_text(replayed),
        "replay_summary.csv": csv_text(replay_summary(replayed)),
        "replay_paired.csv": csv_text(replay_paired(replayed, baseline)),
        "replay_services.csv": csv_text(replay_services(replayed)),
    }
    parameters = {
        "source": source,
        "file": file,
        "dialogs": int(replayed.dialog.nunique()),
        "budgets": list(settings.budgets),
        "heads": list(settings.heads),
        "metrics": list(settings.metrics),
        "baseline": baseline,
        "policies": list(map(as_record, settings.policies)),
    }
    return {**numbers, "replay.json": run_json(seed, parameters, seconds, numbers)}


def answers_files(
    settings: Answers,
    measured: AnswerScores,
    told: AnswersTables,
    *,
    model: AnyModel,
    file: str,
    seconds: float,
    more: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """Return the files of answers by name: their tables and ``run.json``.

    Parameters
    ----------
    settings : Answers
    measured : AnswerScores
    told : AnswersTables
    model : AnyModel
    file : str
        A digest of the file of dialogs.
    seconds : float
    more : mapping of name to anything that JSON can hold, optional
        What else the numbers depend on.
    """
    numbers = {
        "answers.csv": csv_text(pd.concat([measured.answers, measured.proxies])),
        "answers_summary.csv": csv_text(told.summary),
        "answers_paired.csv": csv_text(told.paired),
        "proxies.csv": csv_text(told.proxies),
    }
    if not told.known.empty:
        numbers["answers_services.csv"] = csv_text(told.known)
    parameters = {
        "model": {"name": model.name, "digest": model.digest, **(more or {})},
        "file": file,
        "dialogs": int(measured.answers.dialog.nunique()),
        "budgets": list(settings.budgets),
        "decides": settings.decides,
        "every": settings.every,
        "cut_text": settings.cut_text,
        "baseline": told.baseline,
        "policies": [
            {"key": policy.key, **dataclasses.asdict(policy)} for policy in settings.policies
        ],
    }
    return {**numbers, "run.json": run_json(None, parameters, seconds, numbers)}


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
