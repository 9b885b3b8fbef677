"""What is run over all dialogs of a file, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """What is run over a file, by its key: with letters or its trace, or with a model's `vectors`.

    `first` is the dialog that a model reads first.
    """

    replay: Replay
    key: str
    vectors: Vectors | None
    file: DialogFile = field(compare=False, repr=False)
    first: int = field(default=0, compare=False)


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


def judge_file(run: FileRun, **how: Unpack[Execution]) -> Replayed | None:
    """Run the dialogs of a file; progress has the result of the first ones, ever more of them.

    With a model's vectors, its numbers are means over KV heads; it is None if cancelled before the
    model has read a dialog.
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
        ran = [row for at in sorted(read.recordings) for row in read.recordings[at]]
        shown = ReadRecordings(run.vectors, file, read)
        about |= {"model": run.vectors, "vectors": "vectors={}&layers={}".format(*run.vectors)}
    report, latest, due = how.pop("on_progress", None), None, 0

    def made(tables: tuple[pd.DataFrame, pd.DataFrame]) -> Replayed:
        table, arguments = tables if run.vectors is None else map(_over_heads, tables)
        return Replayed(run.replay, shown, table, arguments, perf_counter() - began, **about)

    def progress(step: Progress) -> None:
        nonlocal latest, due
        if len(step.partial) > due:
            latest, due = made(replay_tables(step.partial)), 2 * len(step.partial)
        if report is not None:
            report(replace(step, partial=latest if step.done < step.total else None))

    return made(replay_arguments(run.replay, ran, spread=True, **how | {"on_progress": progress}))


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
    every, requested = len(done.file.transcripts), len(done.recordings)
    some = [f"These are {requested} of {every} dialogs of a file."] if requested < every else []
    return replay_report(done, some)
