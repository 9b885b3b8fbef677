"""Compare a repeated run with its ``run.json``."""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fdkvc.core.attention import TOLERANCE
from fdkvc.core.json_input import read_bytes
from fdkvc.core.words import count, listed
from fdkvc.runs.record import Record, digest, versions

QUOTIENTS = {"t": 1e-3, "p": 1e-3, "p_holm": 1e-3}
"""Tolerances of columns that divide by a spread, which may be as small as rounding errors."""

WORDS = ("words",)
"""Columns that say their row's numbers in words."""

MAX_GROWTH = 8
"""How many times as long a table may be for its digits alone: 0.12345678901234567 for 0.1."""


@dataclass(frozen=True)
class Comparison:
    """How the files of a repeated run differ from its record."""

    identical: tuple[str, ...]
    """Identical files."""
    close: Mapping[str, float]
    """Files within the tolerance, each with its largest difference."""
    apart: Mapping[str, float]
    """Files beyond it, each with its largest difference; infinity if rows differ."""
    unknown: tuple[str, ...]
    """Files that are not identical and of which the record has only a digest."""
    other: tuple[str, ...] = ()
    """Parameters that differ, and files that the run does not write."""

    @property
    def repeated(self) -> bool:
        """Whether the run has the same numbers and parameters."""
        unlike = self.apart or self.unknown or self.other
        return bool(self.identical or self.close) and not unlike


def compare(record: Record, files: Mapping[str, str], folder: Path | None = None) -> Comparison:
    """Compare the files of a run, including its ``run.json``, with a record.

    Where a file is not identical, the recorded one in the folder shows how far the two differ.
    """
    identical, unknown = [], []
    close: dict[str, float] = {}
    apart: dict[str, float] = {}
    again = json.loads(files["run.json"])["parameters"]
    other = list(_unlike(record.parameters, again, "parameters"))
    for name, recorded in record.digests.items():
        if name not in files:
            other.append(name)
        elif digest(files[name]) == recorded:
            identical.append(name)
        elif folder is None or (text := _recorded(folder, name, recorded, files[name])) is None:
            unknown.append(name)
        else:
            largest, within = difference(text, files[name])
            (close if within else apart)[name] = largest
    return Comparison(tuple(identical), close, apart, tuple(unknown), tuple(other))


def _recorded(folder: Path, name: str, recorded: str, again: str) -> str | None:
    """Return the text of a file in a folder if it has this digest.

    At most `MAX_GROWTH` times the bytes of the repeated file are read: a longer one has other rows.
    """
    try:
        content = read_bytes(folder / Path(name).name, MAX_GROWTH * len(again.encode()))
    except ValueError:  # it is missing or cannot be read
        return None
    text = content.decode(errors="replace")
    return text if digest(text) == recorded else None


def _unlike(before: Any, again: Any, place: str) -> Iterator[str]:
    """Yield the places where two JSON values differ."""
    if isinstance(before, dict) and isinstance(again, dict):
        for name, value in before.items():
            # For a missing key, this function stands: nothing in JSON equals it.
            yield from _unlike(value, again.get(name, _unlike), f"{place}.{name}")
    elif isinstance(before, list) and isinstance(again, list) and len(before) == len(again):
        for index, (value, twin) in enumerate(zip(before, again, strict=True)):
            yield from _unlike(value, twin, f"{place}[{index}]")
    elif before != again:
        yield place


def difference(one: str, other: str) -> tuple[float, bool]:
    r"""Return the largest difference of two CSV texts, and whether all are within the tolerance.

    Differences are relative to numbers above 1, and infinite where rows, words or missing numbers
    differ. `QUOTIENTS` have their own tolerances and do not count for the largest.

    Examples
    --------
    >>> difference("mean,t\n0.5,9\n", "mean,t\n0.50000001,9.001\n")
    (1e-08, True)
    >>> difference("mean\n0.5\n", "mean\n0.75\n")
    (0.25, False)
    """
    rows, others = (list(csv.reader(text.splitlines())) for text in (one, other))
    if [len(row) for row in rows] != [len(row) for row in others] or rows[:1] != others[:1]:
        return math.inf, False
    largest, within = 0.0, True
    for row, again in zip(rows[1:], others[1:], strict=True):
        for name, cell, twin in zip(rows[0], row, again, strict=False):
            if name in WORDS:
                continue
            # `QUOTIENTS` must be within their tolerance, but are not reported as the largest.
            moved = _moved(cell, twin)
            within = within and moved <= QUOTIENTS.get(name, TOLERANCE)
            if name not in QUOTIENTS:
                largest = max(largest, moved)
    return float(f"{largest:.2g}"), within


def _moved(cell: str, twin: str) -> float:
    if cell == twin:
        return 0.0
    try:
        before, now = float(cell), float(twin)
    except ValueError:
        return math.inf
    moved = abs(now - before) / max(1.0, abs(before))
    return math.inf if math.isnan(moved) else moved  # a number in one, "nan" in the other


def comparison_sentence(record: Record, comparison: Comparison) -> str:
    """Return the result of a comparison in a sentence."""
    close, apart = comparison.close, comparison.apart
    identical, unknown = comparison.identical, comparison.unknown
    parts = []
    if comparison.other:
        parts.append(f"the run differs from the file at {listed(comparison.other)}")
    if apart:
        largest = max(apart.values())
        by = f"by up to {largest:.0e}" if math.isfinite(largest) else "in their rows or words"
        parts.append(f"the numbers are not the same in {', '.join(apart)}, where they differ {by}")
    if close:
        largest = max(close.values())
        parts.append(f"the numbers are the same to {largest:.0e} in {', '.join(close)}")
    if identical:
        parts.append(f"the numbers are the same, byte for byte, in {', '.join(identical)}")
    if unknown:
        parts.append(
            f"not identical: {', '.join(unknown)} (the original files are missing or far larger, "
            "so their numbers cannot be compared)"
        )
    if record.finished:
        low, high = min(record.finished.values()), max(record.finished.values())
        done = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        requested = count(record.benchmark.dialogs, "dialog")
        parts.append(f"the original run was cancelled after {done} of {requested} per scenario")
    if apart or close or unknown:
        parts.append(_circumstances(record))
    return "; ".join(parts)


def _circumstances(record: Record) -> str:
    """Return which versions differ from the record's."""
    current = versions()
    labels = {"source": "the code", "fdkvc-lab": "the version of the lab"}
    changed = [
        labels.get(name, name)
        for name, version in record.versions.items()
        if current.get(name, version) != version
    ]
    if not changed:
        return "versions are the same"
    return f"{listed(changed)} {'differs' if len(changed) == 1 else 'differ'}"
