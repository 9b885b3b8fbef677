"""Tables as CSV, and files as one archive."""

import io
import zipfile

import pandas as pd

from fdkvc.runs.write import Files

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
            entry = zipfile.ZipInfo(name)  # without the time of packing
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return packed.getvalue()
