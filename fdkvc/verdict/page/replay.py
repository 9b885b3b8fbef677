"""What is run over all dialogs of a file, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from time import perf_counter
from typing import Any, Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.lexical import LexicalRecordings
from fdkvc.conversations.page.files import DialogFile
from fdkvc.conversations.replay import Replay, replay_arguments, replay_tables
from fdkvc.core.recordings import Recording
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.runs.jobs import Execution, Progress
from fdkvc.verdict.checked import Check, check_verdict
from fdkvc.verdict.page.vectors import ReadRecordings, Vectors, read_file
from fdkvc.verdict.plan import Verdict
from fdkvc.verdict.report import replay_report
from fdkvc.verdict.results import ReplayRun

CHECKED_WITH = "smollm2"
"""The model that reads a few dialogs of a file to check its verdict, where it is installed."""


@dataclass(frozen=True)
class FileRun:
    """What is run over a file."""

    replay: Replay
    key: str
    """The file's."""
    vectors: Vectors | None
    """Those of a model; None for those of the file's trace, or else of letters."""
    file: DialogFile = field(compare=False, repr=False)
    first: int = field(default=0, compare=False)
    """The dialog that a model reads first."""


@dataclass(frozen=True, eq=False)
class Replayed(ReplayRun):
    """A replay of the dialogs of a file, as a model read them if there is one."""

    file: DialogFile = field(kw_only=True)
    model: Vectors | None = None

    def recording(self, dialog: int) -> Recording:
        """Return one of the file's dialogs that ran."""
        ran = self.recordings
        return ran[ran.places.index(dialog) if isinstance(ran, ReadRecordings) else dialog]


def measured_recordings(file: DialogFile) -> Sequence[Recording]:
    """Return the dialogs of a file that a run measures, with the vectors of its trace or letters'.

    Those of letters are computed on access.
    """
    return file.traced[: file.measured] or LexicalRecordings(file.transcripts[: file.measured])


def replay_file(run: FileRun, **how: Unpack[Execution]) -> Replayed | None:
    """Replay the dialogs of a file; meanwhile, progress has the result of those that are done.

    With a model's vectors, the numbers are means over KV heads, and the result is None if cancelled
    before the model has read a dialog.
    """
    file, began = run.file, perf_counter()
    about: dict[str, Any] = {"name": file.name, "digest": file.digest, "file": file}
    ran = shown = measured_recordings(file)
    if run.vectors is not None:
        read = read_file(run.vectors, file, run.first, **how)
        if not read.recordings:
            for reason in read.skipped.values():
                raise ValueError(reason)
            return None
        ran = [*chain.from_iterable(rows for _, rows in sorted(read.recordings.items()))]
        shown = ReadRecordings(run.vectors, file, read)
        about |= {"model": run.vectors, "vectors": "vectors={}&layers={}".format(*run.vectors)}
    report, latest, due = how.pop("on_progress", None), None, 0

    def replayed(tables: tuple[pd.DataFrame, pd.DataFrame]) -> Replayed:
        table, arguments = tables if run.vectors is None else map(_over_heads, tables)
        return Replayed(run.replay, shown, table, arguments, perf_counter() - began, **about)

    def progress(step: Progress) -> None:
        nonlocal latest, due
        if len(step.partial) > due:
            # A table is made anew each time twice as much is done, so all of them cost little.
            latest, due = replayed(replay_tables(step.partial)), 2 * len(step.partial)
        if report is not None:
            report(replace(step, partial=latest if step.done < step.total else None))

    how = how | {"on_progress": progress}
    return replayed(replay_arguments(run.replay, ran, spread=True, **how))


def _over_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of KV heads, whose dialogs end in layer and head, with their means."""
    how = {"held": "mean", "lost": "min"} if "lost" in table else {"value": "mean"}
    rows = table.assign(dialog=table.dialog.str.rpartition(", ")[0])
    unsigned = rows.astype({"lost": np.uint32} if "lost" in table else {})  # −1, held, is largest
    names = [name for name in table if name not in how]
    means = unsigned.groupby(names, sort=False, dropna=False).agg(how).reset_index()
    return means[[*table]].astype({"lost": np.int32} if "lost" in table else {})


def check_file(
    verdict: Verdict, tokens: Sequence[int], file: DialogFile, **how: Unpack[Execution]
) -> Check:
    """Check a verdict on a file, whose dialogs have these lengths, with a model."""
    model = shared_language_model(CHECKED_WITH)
    return check_verdict(verdict, tokens, model, file.transcripts, **how)


def report_of(done: Replayed) -> str:
    """Return a run as a report with its first failed call."""
    total, requested = len(done.file.transcripts), len(done.recordings)
    note = [f"These are {requested} of {total} dialogs of a file."] if requested < total else []
    return replay_report(done, note)
