"""Tables as CSV, files as one archive, and what explains them."""

import csv
import io
import re
import tomllib
import zipfile
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pandas as pd

import fdkvc
from fdkvc.runs.write import Files

README = "README.md"

MAX_STEM = 160
"""Characters with which the names of files begin."""

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet runs a text that starts with one of these as a formula."""


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
    # Few columns need it: their distinct values show that sooner than a map over all cells.
    for name in frame.select_dtypes(include=["object", "string", "category"]):
        if any(_defuse(cell) is not cell for cell in frame[name].unique()):
            defused[name] = frame[name].astype(object).map(_defuse)
    return defused.to_csv(index=False, lineterminator="\n")


def _defuse(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(FORMULA_STARTS) else cell


def as_zip(files: Files) -> bytes:
    """Pack files into one archive; the same files give the same bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)  # dated 1980, not when it is packed
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()


@cache
def meanings() -> Mapping[str, Mapping[str, str]]:
    """Return what files contain (``files``), and what columns mean, in all or in one file."""
    return tomllib.loads(Path(__file__).with_name("columns.toml").read_text("utf-8"))


def meaning_of(file: str, column: str, more_columns: Mapping[str, str]) -> str:
    """Return what a column of a file means; `more_columns` has the meanings of further ones.

    Examples
    --------
    >>> meaning_of("turns.csv", "n", {}), meaning_of("sweep.csv", "gamma", {})
    ('dialogs', 'value of this hyperparameter')
    """
    columns = {**more_columns, **meanings()["columns"], **meanings().get(file, {})}
    if column in columns:
        return columns[column]
    for name, words in columns.items():
        if fnmatchcase(column, name):  # a pattern, such as ``channel_*``
            return words
    return ""


def stem_of(words: str) -> str:
    """Return the stem of file names for these words.

    Examples
    --------
    >>> stem_of("Run: 1,000 dialogs, seed 3, γ=0.6")
    'Run-1000-dialogs-seed-3-γ=0.6'
    """
    return re.sub(r"[^\w=.]+", "-", words.replace(",", "")).strip("-.")[:MAX_STEM]


def with_readme(
    title: str,
    files: Files,
    more_columns: Mapping[str, str] | None = None,
    settings: Mapping[str, object] | None = None,
) -> Files:
    """Add a README with what each file contains, and what each column of a CSV file means.

    It begins with the `settings` of each run, by the run's name.
    """
    note = f"Made with FD-KVC Lab {fdkvc.__version__}. Numbers are not rounded;"
    lines = [f"# {title}", "", note, "missing values are empty.", ""]
    lines += [f"- Settings of {name}: {values}." for name, values in (settings or {}).items()]
    for name, content in files.items():
        lines += ["", f"## {name}", "", meanings()["files"].get(name, "")]
        if name.endswith(".csv"):
            text = content if isinstance(content, str) else content.decode()
            columns = next(csv.reader([text.partition("\n")[0]]))
            lines += ["", "| column | meaning |", "|---|---|"]
            for column in columns:
                lines.append(f"| {column} | {meaning_of(name, column, more_columns or {})} |")
    return {README: "\n".join([*lines, ""]), **files}
