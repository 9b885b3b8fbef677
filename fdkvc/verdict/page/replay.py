"""What is run over all dialogs of a file, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from threading import Thread
from time import perf_counter
from typing import Any, Unpack

import numpy as np
import pandas as pd

from fdkvc.conversations.forgot import Forgot, OnRead
from fdkvc.conversations.lexical import KEPT, LexicalRecordings, lexical_recording
from fdkvc.conversations.page.files import DialogFile, shipped_file
from fdkvc.conversations.replay import Replay, transcripts_of
from fdkvc.core.recordings import Recording
from fdkvc.models import after_compaction
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.runs.jobs import Execution
from fdkvc.runs.workers import give_way
from fdkvc.ui.lru import cached
from fdkvc.verdict.card import Card, ways_for
from fdkvc.verdict.checked import CHECKED_WITH, read_card
from fdkvc.verdict.page.vectors import ReadRecordings, read_file
from fdkvc.verdict.results import ReplayRun, at_sizes
from fdkvc.verdict.search import find_sizes, start_workers
from fdkvc.verdict.today import Today, TodayLoss, lose_today


@dataclass(frozen=True)
class FileRun:
    """What is run over a file."""

    replay: Replay
    """The ways, and the metrics."""
    target: float
    key: str
    """The file's."""
    vectors: str | None
    """A model's; None for those of letters."""
    encoding: Encoding
    """What counts tokens, unless there are vectors."""
    file: DialogFile = field(compare=False, repr=False)
    first: int = field(default=0, compare=False)
    """The dialog that a model reads first."""


@dataclass(frozen=True, eq=False)
class Replayed(ReplayRun):
    """A replay of the dialogs of a file, as a model read them if there is one."""

    file: DialogFile = field(kw_only=True)
    model: str | None = None

    def recording(self, dialog: int) -> Recording:
        """Return one of the file's dialogs that ran."""
        ran = self.recordings
        if isinstance(ran, ReadRecordings):
            place = ran.places.index(dialog)
        else:
            names = [transcript.name for transcript in transcripts_of(ran)]
            place = names.index(self.file.transcripts[dialog].name)
        recording: Recording = ran[place]
        return recording


def measured_recordings(file: DialogFile, encoding: Encoding) -> Sequence[Recording]:
    """Return the dialogs of a file that a run measures, with the vectors of letters.

    They are computed on access. Raises a ValueError if all have too many tokens.
    """
    texts = file.transcripts[: file.measured]
    return encoding.in_tokens(LexicalRecordings(texts))[0]


def expect_file(encoding: Encoding) -> None:
    """Prepare for a file that is about to come: load what its run and its card need."""
    # SciPy's functions take half a second, and the first card's intervals need them.
    Thread(target=import_module, args=("scipy.special",), daemon=True).start()
    recordings = measured_recordings(shipped_file("chat"), encoding)
    start_workers(Replay(ways_for(recordings)), recordings)


@cached
def in_tokens_of(file: DialogFile, dialog: int, encoding: Encoding) -> Recording:
    """Return a dialog of a file in tokens."""
    return lexical_recording(file.transcripts[dialog], encoding=encoding)


def replay_file(run: FileRun, **execution: Unpack[Execution]) -> Replayed | None:
    """Search the sizes that ways need for a file; None once it is cancelled.

    With a model's vectors, the numbers are means over KV heads.
    """
    file, began = run.file, perf_counter()
    run_fields: dict[str, Any] = {"name": file.name, "digest": file.digest, "file": file}
    run_fields |= {"target": run.target, "searched": True}
    ran = page_recordings = measured_recordings(file, run.encoding)
    if run.vectors is not None:
        read = read_file(run.vectors, file, run.first, **execution)
        if not read.recordings:
            for reason in read.skipped.values():
                raise ValueError(reason)
            return None
        ran = [*chain.from_iterable(rows for _, rows in sorted(read.recordings.items()))]
        page_recordings = ReadRecordings(run.vectors, file, read)
        run_fields |= {"model": run.vectors, "vectors": f"vectors={run.vectors}"}
    tables = find_sizes(run.replay, ran, run.target, **execution)
    KEPT.clear()  # in this process; workers, which have the rest, end when they are idle
    cancelled = execution.get("cancelled")
    if cancelled is not None and cancelled.is_set():  # a way may need a size that was not tried
        return None
    settings = at_sizes(run.replay, tables)
    table, arguments = tables if run.vectors is None else map(_over_heads, tables)
    seconds = perf_counter() - began
    return Replayed(settings, page_recordings, table, arguments, seconds, **run_fields)


def lose_in_file(run: FileRun, today: Today, **execution: Unpack[Execution]) -> TodayLoss:
    """Replay today's way over a file."""
    recordings = measured_recordings(run.file, run.encoding)
    return lose_today(today, recordings, run.replay.heads[0], **execution)


def _over_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of KV heads, whose dialogs end in layer and head, with their means."""
    aggregates = {"held": "mean", "lost": "min"} if "lost" in table else {"value": "mean"}
    rows = table.assign(dialog=table.dialog.str.rpartition(", ")[0])
    unsigned = rows.astype({"lost": np.uint32} if "lost" in table else {})  # −1, held, is largest
    names = [name for name in table if name not in aggregates]
    means = unsigned.groupby(names, sort=False, dropna=False).agg(aggregates).reset_index()
    return means[[*table]].astype({"lost": np.int32} if "lost" in table else {})


def check_replay(
    card: Card, replayed: Replayed, minutes: int, **execution: Unpack[Execution]
) -> Replayed:
    """Let a model read dialogs of a replay under the ways of its card, for some minutes.

    It gives way to what a person waits for: once it is cancelled, up to hundreds of tokens are
    under way.
    """
    give_way()
    model = shared_language_model(CHECKED_WITH)
    read = read_card(card, model, transcripts_of(replayed.recordings), minutes, **execution)
    execution.pop("on_progress", None)
    return replayed.with_read(read, **execution)


def read_on(result: Forgot, on_read: OnRead) -> Forgot:
    """Let that model read on after a compaction."""
    return after_compaction.read_on(shared_language_model(CHECKED_WITH), result, on_read)
