"""Compare a repeated run with the tables beside its ``run.json``."""

import io
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from fdkvc.core.attention import TOLERANCE
from fdkvc.core.json_input import read_bytes
from fdkvc.core.words import count, listed
from fdkvc.runs.record import Record, versions

QUOTIENTS = {"t": 1e-3, "p": 1e-3}
"""Tolerances of columns that divide by a spread, which may be as small as rounding errors."""

MAX_GROWTH = 8
"""How many times as long a table may be for its digits alone: 0.12345678901234567 for 0.1."""

ROWS = "rows"
"""Stands for a column where two tables have other rows or columns."""


@dataclass(frozen=True)
class Comparison:
    """How a repeated run differs from its record."""

    largest: float
    """The largest difference of a number that is within the tolerance."""
    differences: tuple[str, ...]
    """The parameters and tables that differ, each with the columns and by how much."""


def compare(record: Record, files: Mapping[str, str], folder: Path) -> Comparison:
    """Compare the files of a run, including its ``run.json``, with a record and its folder."""
    parameters = json.loads(files["run.json"])["parameters"]
    differences = list(_differences(record.parameters, parameters, "parameters"))
    largest = 0.0
    for name in record.files:
        if name not in files:
            differences.append(f"{name}, which the run does not write")
            continue
        # Only the last part of a name: a record must not name files elsewhere.
        recorded = _recorded(folder / Path(name).name, files[name])
        if recorded is None:
            differences.append(f"{name}, which is not beside run.json, or is far larger there")
            continue
        columns = []
        for column, change in column_differences(recorded, files[name]).items():
            if change > QUOTIENTS.get(column, TOLERANCE):
                amount = f" (by up to {change:.0e})" if math.isfinite(change) else ""
                columns.append(f"{column}{amount}")
            elif column not in QUOTIENTS:
                largest = max(largest, change)
        if columns:
            differences.append(f"{name}: {', '.join(columns)}")
    return Comparison(largest, tuple(differences))


def _recorded(path: Path, repeated: str) -> str | None:
    """Return the text of a table, unless it is missing or longer than digits explain."""
    most_bytes = MAX_GROWTH * len(repeated.encode())
    try:
        content = read_bytes(path, most_bytes)
    except ValueError:
        return None
    return content.decode(errors="replace") if len(content) <= most_bytes else None


def _differences(recorded: Any, repeated: Any, place: str) -> Iterator[str]:
    """Yield the places where two JSON values differ."""
    if isinstance(recorded, dict) and isinstance(repeated, dict):
        for name, value in recorded.items():
            # For a missing key, this function stands: nothing in JSON equals it.
            yield from _differences(value, repeated.get(name, _differences), f"{place}.{name}")
    elif recorded != repeated:
        yield place


def column_differences(recorded: str, repeated: str) -> dict[str, float]:
    r"""Return the largest difference of each column of two CSV texts.

    Differences are relative to numbers above 1, and infinite where words or missing numbers differ.
    Where rows or columns differ, `ROWS` is the only name.

    Examples
    --------
    >>> column_differences("mean,t\n0.5,9\n", "mean,t\n0.75,9\n")
    {'mean': 0.25, 't': 0.0}
    """
    try:
        texts = map(io.StringIO, (recorded, repeated))
        tables = [pd.read_csv(text, dtype=str, keep_default_na=False) for text in texts]
    except ValueError:  # not a table
        return {ROWS: math.inf}
    if [*tables[0]] != [*tables[1]] or len(tables[0]) != len(tables[1]):
        return {ROWS: math.inf}
    moved = {}
    for name in tables[0]:
        columns = [table[name] for table in tables]
        expected, measured = (pd.to_numeric(column, errors="coerce") for column in columns)
        change = (measured - expected).abs() / expected.abs().clip(lower=1)
        # Of a word, "nan" or an empty cell there is no change: all are infinite unless the same.
        change = change.fillna(math.inf).where(columns[0] != columns[1], 0.0)
        moved[str(name)] = float(max(change, default=0.0))
    return moved


def comparison_sentence(record: Record, comparison: Comparison) -> str:
    """Return the result of a comparison in a sentence."""
    tolerance = f" to {comparison.largest:.0e}" if comparison.largest else ""
    sentence = f"the numbers are the same{tolerance} in {', '.join(record.files)}"
    if comparison.differences:
        places = "; ".join(comparison.differences)
        sentence = f"the run differs from its record in {places}; {_circumstances(record)}"
    if record.finished:
        low = min(record.finished.values())
        high = max(record.finished.values())
        dialogs = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        requested = count(record.benchmark.dialogs, "dialog")
        sentence += (
            f"; the original run was cancelled after {dialogs} of {requested} per scenario"
        )
    return sentence


def _circumstances(record: Record) -> str:
    """Return which versions differ from the record's."""
    current = versions()
    labels = {"source": "the code", "fdkvc-lab": "the version of the lab"}
    changed = []
    for name, version in record.versions.items():
        if current.get(name, version) != version:
            changed.append(labels.get(name, name))
    if not changed:
        return "versions are the same"
    return f"{listed(changed)} {'differs' if len(changed) == 1 else 'differ'}"
