"""Results as files, written whole or not at all, and as plain text for a terminal."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import platform
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd

from fdkvc.dialogs.batch import DialogBatch, Scenario, World
from fdkvc.judged import tables
from fdkvc.measured.benchmark import Benchmark, Latency, Results
from fdkvc.measured.replay import Replay, replay_metric, replay_paired, replay_summary
from fdkvc.measured.statistics import AdaptationSummary, Paired
from fdkvc.measured.workers import processor
from fdkvc.policies import Policy
from fdkvc.run.metrics import metric_named
from fdkvc.run.trace import Trace
from fdkvc.words import count, plus_minus

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a text that starts with one of these as a formula."""

NUMBERS = ("summary.csv", "adaptation.csv", "paired.csv")
"""Files of a benchmark that have no times in them, and that the same run gives again."""

MOST_KEPT = 60_000
"""A ``run.json`` holds whole files of at most so many characters; of larger ones, the digest."""

MOST_ENTRIES = 1_000_000
"""Rows of a table of entries."""

Files = Mapping[str, str | bytes]


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
    >>> csv_text(pd.DataFrame({"topic": ["A", "=1+1", None], "score": [0.1, -2.0, math.nan]}))
    "topic,score\nA,0.1\n'=1+1,-2.0\n,\n"
    """
    defused = frame.copy()
    for name in frame.select_dtypes(include=["object", "string", "category"]):
        defused[name] = frame[name].astype(object).map(_defuse)
    return defused.to_csv(index=False, lineterminator="\n")


def _defuse(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def run_json(
    seed: int,
    parameters: Mapping[str, object],
    seconds: float,
    files: Mapping[str, str] | None = None,
) -> str:
    """Return what is needed to repeat a run, as JSON with its keys in a fixed order.

    Parameters
    ----------
    seed : int
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
        "seed": seed,
        "parameters": dict(parameters),
        "versions": versions(),
        "processor": processor(),
        "seconds": seconds,
        "digests": {name: digest(text) for name, text in known.items()},
        "numbers": {
            name: text.splitlines() for name, text in known.items() if len(text) <= MOST_KEPT
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
    source = Path(__file__).parents[1] / "pyproject.toml"
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
    folder = Path(__file__).parent
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
        "policies": [
            {"key": policy.key, **dataclasses.asdict(policy)} for policy in benchmark.policies
        ],
        "world": dataclasses.asdict(benchmark.world),
    }


# ------------------------------------------------------------------------------- what files hold


def benchmark_files(
    results: Results, latencies: Iterable[Latency], baseline: str = tables.BASELINE
) -> dict[str, str]:
    """Return the files of a benchmark by name: its four tables and ``run.json``."""
    benchmark = results.benchmark
    parameters = benchmark_parameters(benchmark, baseline)
    frames = (
        tables.summary_table(results),
        tables.adaptation_table(results),
        tables.paired_table(results, baseline),
    )
    numbers = dict(zip(NUMBERS, map(csv_text, frames), strict=True))
    return {
        **numbers,
        "latency.csv": csv_text(tables.latency_table(latencies, benchmark.budget)),
        "run.json": run_json(benchmark.seed, parameters, results.seconds, numbers),
    }


def ablation_files(results: Results, parameter: str) -> dict[str, str]:
    """Return the files of an ablation by name."""
    return {"ablation.csv": csv_text(tables.ablation_table(results, parameter))}


def trace_files(trace: Trace, dialogs: DialogBatch, asked: Iterable[str] = ()) -> dict[str, str]:
    """Return the files of a trace by name; see `tables.turns_table`."""
    return {
        "entries.csv": csv_text(tables.entries_table(trace, dialogs)),
        "turns.csv": csv_text(tables.turns_table(trace, dialogs, asked=asked)),
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
    """Return the files of a replay by name: its three tables and ``replay.json``.

    Parameters
    ----------
    settings : Replay
    replayed : DataFrame
        As `fdkvc.measured.replay.replay` returns it.
    baseline : str
        The name of a policy that ran.
    source : str
        What made the vectors.
    file : str
        A digest of the file of dialogs.
    seed : int
        Of the lexical embedding.
    seconds : float
    """
    numbers = {
        "replay.csv": csv_text(replayed),
        "replay_summary.csv": csv_text(replay_summary(replayed)),
        "replay_paired.csv": csv_text(replay_paired(replayed, baseline)),
    }
    parameters = {
        "source": source,
        "file": file,
        "dialogs": int(replayed.dialog.nunique()),
        "budgets": list(settings.budgets),
        "heads": list(settings.heads),
        "metrics": list(settings.metrics),
        "baseline": baseline,
        "policies": [
            {"key": policy.key, **dataclasses.asdict(policy)} for policy in settings.policies
        ],
    }
    return {**numbers, "replay.json": run_json(seed, parameters, seconds, numbers)}


# ------------------------------------------------------------------------------- writing


def check_entries(policy: Policy, scenario: Scenario, budget: int) -> None:
    """Raise a ValueError if a dialog's table of entries could be too long."""
    new, turns = World().tokens_per_turn, len(scenario.schedule)
    held = policy.capacity(budget, turns * new) + policy.tier_places(budget)
    entries = sum(min(turn * new, held + new) for turn in range(1, turns + 1))
    if entries > MOST_ENTRIES:
        raise ValueError(
            f"the trace has up to {entries:,} entries, but at most {MOST_ENTRIES:,} are written: "
            "choose a shorter schedule or a smaller budget"
        )


def check_folder(folder: str | os.PathLike[str], names: Iterable[str] = ()) -> None:
    """Say beforehand whether `write_files` can write to a folder; nothing is left behind.

    Parameters
    ----------
    folder : path
        A folder, or one to be made, with those above it that are missing.
    names : iterable of str
        Of files to be written there, where a person chose them.

    Raises
    ------
    ValueError
        If it is something else than a folder, cannot be made, or is not writable.
    """
    with _writable(folder) as (path, unfinished):
        for name in names:
            _check_file(path / name)
            (unfinished / name).touch()


@contextmanager
def _writable(folder: str | os.PathLike[str]) -> Iterator[tuple[Path, Path]]:
    """Give a folder, made if it is missing, and one within it that goes away in the end.

    Folders that were made go away, too, unless something was put into them.
    """
    if not os.fspath(folder):
        raise ValueError("the folder '' cannot be written: it has no name")
    path, made = Path(folder), []
    try:
        if path.exists() and not path.is_dir():
            raise ValueError(f"the folder {str(path)!r} cannot be written: it is not a folder")
        missing = _missing(path)
        there = missing[-1].parent if missing else path
        if not there.is_dir():
            raise ValueError(
                f"the folder {str(path)!r} cannot be made: {str(there)!r} is no folder"
            )
        made = missing
        path.mkdir(parents=True, exist_ok=True)
        # In the folder itself, so that moving from there is a rename and not a copy.
        with tempfile.TemporaryDirectory(prefix=".unfinished-", dir=path) as unfinished:
            yield path, Path(unfinished)
    except OSError as error:
        raise ValueError(f"the folder {str(path)!r} cannot be written: {_reason(error)}") from error
    finally:
        for folder_made in made:
            with suppress(OSError):
                folder_made.rmdir()


def _check_file(path: Path) -> None:
    """Raise a ValueError if what stands where a file is to be written is something else."""
    if path.exists() and not path.is_file():
        what = "a folder" if path.is_dir() else "no regular file"
        raise ValueError(f"the file {str(path)!r} cannot be written: it is {what}")


def write_files(folder: str | os.PathLike[str], files: Files) -> None:
    """Write files into a folder, all of them or none; files of the same names are replaced.

    If anything fails or interrupts, the folder is as it was before.

    Parameters
    ----------
    folder : path
        It is made if it is missing, and those above it.
    files : mapping of name to str or bytes
        A text is written as UTF-8.

    Raises
    ------
    ValueError
        If the folder cannot be written, or a file in it cannot.
    """
    with _writable(folder) as (path, unfinished):
        _replace_all(path, files, unfinished)


def _missing(folder: Path) -> list[Path]:
    """Return the folder and those above it that do not exist, the innermost first."""
    above = [folder.absolute(), *folder.absolute().parents]
    return [each for each in above if not each.exists()]


def _replace_all(folder: Path, files: Files, unfinished: Path) -> None:
    """Write all files aside, with copies of those that they replace, then move them in place."""
    new, old = unfinished / "new", unfinished / "old"
    new.mkdir()
    old.mkdir()
    for name, content in files.items():
        _check_file(folder / name)
        (new / name).write_bytes(content.encode() if isinstance(content, str) else content)
        if (folder / name).exists():
            shutil.copy2(folder / name, old / name)
    try:
        for name in files:
            os.replace(new / name, folder / name)
    except BaseException:
        for name in files:
            if (new / name).exists():
                continue  # it was not moved
            if (old / name).exists():
                (old / name).rename(folder / name)
            else:
                (folder / name).unlink()
        raise


def _reason(error: OSError) -> str:
    reason = error.strerror or str(error)
    return reason[:1].lower() + reason[1:]


# ------------------------------------------------------------------------------- plain text


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1, *, grouped: bool = False
) -> str:
    """Lay cells out in columns for a terminal.

    Parameters
    ----------
    header : sequence of str
    rows : sequence of sequences of str
    left : int
        How many columns, from the first, hold words and are aligned to the left.
    grouped : bool
        Whether rows with the same first cell are set apart from others and name it once.

    Examples
    --------
    >>> print(text_table(["policy", "turns"], [["fifo", "2"], ["h2o", "16"]]))
    policy  turns
    fifo        2
    h2o        16
    """
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            cell.ljust(width) if at < left else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return "  ".join(aligned).rstrip()

    lines = [line(header)]
    group = None
    for row in rows:
        if grouped and row[0] == group:
            row = ["", *row[1:]]
        elif grouped:
            group = row[0]
            lines.append("")
        lines.append(line(row))
    return "\n".join(lines)


def benchmark_text(
    results: Results, latencies: Iterable[Latency], baseline: str = tables.BASELINE
) -> str:
    """Return the tables of a benchmark for a terminal, measured beside published."""
    benchmark = results.benchmark
    parts = [_summary_text(results), _adaptation_text(results)]
    parts += [_paired_text(results, baseline), _latency_text(latencies, benchmark.budget)]
    return "\n\n\n".join(part for part in parts if part)


def ablation_text(results: Results, parameter: str) -> str:
    """Return the table of an ablation for a terminal, measured beside published."""
    benchmark = results.benchmark
    table = tables.ablation_table(results, parameter)
    cells = _measured_beside_published(table, ["value"], benchmark)
    rows = [[f"{value:g}", *texts] for (value,), texts in cells.items()]
    header = [parameter, *_metric_header(benchmark)]
    return (
        f"{benchmark.scenarios[0].label}: means over the last turns of "
        f"{count(benchmark.dialogs, 'dialog')}, ± half of the 95 % interval\n\n"
        f"{text_table(header, rows)}"
    )


def replay_text(replayed: pd.DataFrame) -> str:
    """Return the means of a replay for a terminal, a column for each budget."""
    table = replay_summary(replayed)
    budgets = [int(budget) for budget in table.budget.unique()]
    cells: dict[tuple[str, str], list[str]] = {}
    for metric in dict.fromkeys(replayed.metric):
        for row in _records(table[table.metric == metric]):
            name = row["policy"] if row["heads"] == "each" else f"{row['policy']}, heads together"
            texts = cells.setdefault((metric, name), [""] * len(budgets))
            scale, digits = (100, 1) if replay_metric(metric).percent else (1, 2)
            words = plus_minus(row["mean"], row["ci_high"], scale, digits)
            texts[budgets.index(row["budget"])] = words
    rows = [
        [f"{metric}{' %' if replay_metric(metric).percent else ''}", policy, *texts]
        for (metric, policy), texts in cells.items()
    ]
    dialogs = count(int(replayed.dialog.nunique()), "dialog")
    return (
        f"Means over {dialogs} by budget, ± half of the 95 % interval\n\n"
        f"{text_table(['metric', 'policy', *map(str, budgets)], rows, 2, grouped=True)}"
    )


def trace_text(trace: Trace, dialogs: DialogBatch, asked: Iterable[str] = ()) -> str:
    """Return the turns of a trace for a terminal."""
    table = tables.turns_table(trace, dialogs, asked=asked).rename(columns={"latency_ms": "ms"})
    frame = table.dropna(axis="columns", how="all")
    rows = [[_short(value) for value in row.values()] for row in _records(frame)]
    return text_table([str(name) for name in frame], rows, left=0)


def _summary_text(results: Results) -> str:
    table = tables.summary_table(results)
    if table.empty:
        return ""
    benchmark = results.benchmark
    cells = _measured_beside_published(table, ["scenario", "policy"], benchmark)
    rows = [[*names, *texts] for names, texts in cells.items()]
    header = ["scenario", "policy", *_metric_header(benchmark)]
    text = (
        f"Means over the last turns of {count(benchmark.dialogs, 'dialog')} a scenario, "
        f"± half of the 95 % interval\n\n{text_table(header, rows, 2, grouped=True)}"
    )
    if table.published[table.metric == "late_alignment"].notna().any():
        text += (
            "\n\nAlignment is with the topic projected by W_V. The published alignments are of the "
            "size\nthat unrelated vectors have, and their own t-tests find no difference "
            "(Section 5.6)."
        )
    return text


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): cell for name, cell in row.items()} for row in frame.to_dict("records")]


def _metric_header(benchmark: Benchmark) -> list[str]:
    return [word for key in benchmark.metrics for word in (_metric_name(key), "published")]


def _metric_name(key: str) -> str:
    metric = metric_named(key)
    return f"{metric.label.lower()}{' %' if metric.percent else ''}"


def _measured_beside_published(
    table: pd.DataFrame, by: Sequence[str], benchmark: Benchmark
) -> dict[tuple[Any, ...], list[str]]:
    """Return a measured and a published text for each metric, by the values of some columns.

    Both are empty for a metric that says nothing of a scenario.
    """
    place = {metric: 2 * at for at, metric in enumerate(tables.late_metrics(benchmark))}
    texts: dict[tuple[Any, ...], list[str]] = {}
    for row in _records(table):
        percent = tables.late_metric(row["metric"]).percent
        scale, digits, printed_digits = (100, 1, 1) if percent else (1, 3, 4)  # as it is printed
        measured = plus_minus(row["mean"], row["ci_high"], scale, digits)
        figure = scale * row["published"]
        printed = "" if math.isnan(figure) else f"{figure:.{printed_digits}f}"
        cells = texts.setdefault(tuple(row[name] for name in by), [""] * (2 * len(place)))
        at = place[row["metric"]]
        cells[at : at + 2] = measured, printed
    return texts


def _adaptation_text(results: Results) -> str:
    table = tables.adaptation_table(results)
    if table.empty:
        return ""
    rows = []
    for row, (policy, summary) in zip(_records(table), tables.adaptations(results), strict=True):
        cells = [policy]
        for name, text in at_least(summary).items():
            figure = row[f"published_{name}"]
            cells += [text, "" if math.isnan(figure) else f"{figure:g}"]
        rows.append([*cells, str(summary.never)])
    header = ["policy", "mean", "published", "median", "published", "p90", "published", "never"]
    return (
        "Turns from a change of topic to 80 % retention of the new one, "
        f"{count(results.benchmark.dialogs, 'dialog')}\n\n{text_table(header, rows)}"
    )


def at_least(summary: AdaptationSummary) -> dict[str, str]:
    """Return mean, median and p90 of the turns to adapt in words that "never" has a part in.

    A dialog that never adapts counts with the turns it had, so what rests on one is ``> `` that.

    Examples
    --------
    >>> at_least(AdaptationSummary(n=600, mean=16, median=16, p90=16, never=600))
    {'mean': '> 16.00', 'median': '> 16', 'p90': '> 16'}
    >>> at_least(AdaptationSummary(n=600, mean=4.5, median=4, p90=5, never=0))
    {'mean': '4.50', 'median': '4', 'p90': '5'}
    """
    first_never = summary.n - summary.never  # its place among the turns in ascending order
    mark = {
        "mean": summary.never > 0,
        "median": first_never <= math.ceil(0.5 * (summary.n - 1)),
        "p90": first_never <= math.ceil(0.9 * (summary.n - 1)),
    }
    words = {"mean": f"{summary.mean:.2f}"}
    words |= {"median": f"{summary.median:g}", "p90": f"{summary.p90:g}"}
    return {name: f"> {word}" if mark[name] else word for name, word in words.items()}


def _paired_text(results: Results, baseline: str) -> str:
    rows = []
    for scenario, metric, policy, comparison in tables.comparisons(results, baseline):
        key = metric.removeprefix("late_")
        difference = _difference(comparison, metric_named(key).percent)
        rows.append([scenario, _metric_name(key), policy, *difference])
    if not rows:
        return ""
    header = ["scenario", "metric", "policy", "difference", "t", "p"]
    return (
        f"Paired differences from {baseline} over the same dialogs, ± half of the 95 % interval"
        f"\n\n{text_table(header, rows, 3, grouped=True)}"
    )


def _difference(comparison: Paired, percent: bool) -> list[str]:
    scale, digits = (100, 1) if percent else (1, 3)
    mean = f"{scale * comparison.mean:+.{digits}f}"
    match comparison.verdict:
        case "too few":
            return [mean, "", "too few dialogs"]
        case "same" if comparison.mean == 0:
            return ["0", "", "no difference in any dialog"]
        case "same":
            return [mean, "", "the same in every dialog"]
    margin = f"{scale * (comparison.high - comparison.mean):.{digits}f}"
    p = "< 0.001" if comparison.p < 0.001 else f"{comparison.p:.3f}"
    return [f"{mean} ± {margin}", f"{comparison.t:.1f}", p]


def _latency_text(latencies: Iterable[Latency], budget: int) -> str:
    table = tables.latency_table(latencies, budget)
    rows = [[_short(cell) for cell in row.values()] for row in _records(table)]
    header = ["policy", "ms", "times FIFO's", "published ms"]
    return f"Time of a turn of one dialog\n\n{text_table(header, rows)}"


def _short(value: object) -> str:
    """Return a number with a few decimals, nothing where it is missing."""
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.3f}"
    return "" if value is None else str(value)
