"""What is run over all dialogs of a file, and its result."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from threading import Thread
from time import perf_counter
from typing import Unpack

from fdkvc.conversations.lexical import KEPT, LexicalRecordings, lexical_recording
from fdkvc.conversations.page.files import DialogFile, shipped_file
from fdkvc.conversations.replay import Replay, transcripts_of
from fdkvc.core.recordings import Recording
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.runs.jobs import Execution
from fdkvc.runs.workers import give_way
from fdkvc.ui.lru import cached
from fdkvc.verdict.card import Card, ways_for
from fdkvc.verdict.checked import read_card
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
    encoding: Encoding
    """What counts tokens."""
    file: DialogFile = field(compare=False, repr=False)


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


def replay_file(run: FileRun, **execution: Unpack[Execution]) -> ReplayRun | None:
    """Search the sizes that ways need for a file; None once it is cancelled."""
    file = run.file
    began = perf_counter()
    recordings = measured_recordings(file, run.encoding)
    tables = find_sizes(run.replay, recordings, run.target, **execution)
    KEPT.clear()  # in this process; workers, which have the rest, end when they are idle
    cancelled = execution.get("cancelled")
    # A way may need a size that was not tried.
    if cancelled is not None and cancelled.is_set():
        return None
    return ReplayRun(
        at_sizes(run.replay, tables),
        recordings,
        *tables,
        perf_counter() - began,
        file.digest,
        name=file.name,
        target=run.target,
        searched=True,
    )


def lose_in_file(run: FileRun, today: Today, **execution: Unpack[Execution]) -> TodayLoss:
    """Replay today's way over a file."""
    recordings = measured_recordings(run.file, run.encoding)
    return lose_today(today, recordings, **execution)


def check_replay(
    card: Card, replayed: ReplayRun, reader: str, minutes: int, **execution: Unpack[Execution]
) -> ReplayRun:
    """Let a model read dialogs of a replay under the ways of its card, for some minutes.

    It gives way to what a person waits for: once it is cancelled, up to hundreds of tokens are
    under way.
    """
    give_way()
    model = shared_language_model(reader)
    read = read_card(card, model, transcripts_of(replayed.recordings), minutes, **execution)
    # What is left is no reading, and the bar has come to its end.
    execution.pop("on_progress", None)
    return replayed.with_read(read, **execution)
