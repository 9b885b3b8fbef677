"""What all commands share: results on stdout, progress and warnings on stderr, and workers."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import unicodedata
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from fdkvc.policies import Policy
    from fdkvc.runs.base import Run
    from fdkvc.runs.jobs import Execution, Progress

SECONDS_PER_LINE = 10.0
"""Time between two lines of progress where stderr is not a terminal."""

_last_line = -math.inf
"""Time (`monotonic`) of the last line of progress, or of the start of a command's first part."""

_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Characters without a width (Default_Ignorable in Unicode) that Python calls printable."""


def visible(text: str) -> str:
    r"""Return a text as a terminal may show it.

    Characters that are not printable, such as direction marks, or have no width become escapes,
    except line ends; every kind of space becomes a plain one.

    Examples
    --------
    >>> visible("a\u202eb\xa0c")
    'a\\u202eb c'
    """
    return "".join(map(_visible, text))


def _visible(letter: str) -> str:
    if letter == "\n" or (letter.isprintable() and not _UNSEEN.match(letter)):
        return letter
    if unicodedata.category(letter) == "Zs":
        return " "
    return letter.encode("unicode_escape").decode()


def warn(text: str, end: str = "\n", begin: str = "") -> None:
    """Print to stderr if it can be written; `begin` and `end` are not escaped."""
    try:
        print(begin + visible(text), end=end, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def warn_each(sentences: Iterable[str]) -> None:
    """Warn of each sentence that is not empty."""
    for sentence in filter(None, sentences):
        warn(sentence)


@contextmanager
def without_library_warnings() -> Iterator[None]:
    """Hide programmers' warnings of *transformers* and torch, unless Python runs with ``-W``."""
    with warnings.catch_warnings():
        if not sys.warnoptions:
            for category in (UserWarning, FutureWarning):
                warnings.simplefilter("ignore", category)
        yield


def flush(text: str = "") -> None:
    """Print to stdout at once."""
    with writing():
        print(visible(text), end="", flush=True)


@contextmanager
def writing() -> Iterator[None]:
    """Raise a ValueError if stdout cannot be written; a reader that has closed it is no error."""
    try:
        yield
    except BrokenPipeError:  # as by ``head``
        _discard(sys.stdout)
    except OSError as error:
        from fdkvc.core.words import error_reason

        _discard(sys.stdout)
        raise ValueError(f"the output cannot be written: {error_reason(error)}") from None


def _discard(stream: TextIO) -> None:
    """Send the rest of a stream to the null device."""
    # Else Python would fail once more when it flushes the stream at exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_results(text: str, path: str | None = None) -> None:
    """Print the results of a command, and where its files are."""
    flush(f"{text}\n" if path is None else f"{text}\n\nWritten to {path}\n")


def finish(options: Namespace, run: Run, text: str | None = None) -> None:
    """Write the files of a run to the folder of ``--out``, if any; print its text or another."""
    from fdkvc.runs.write import write_files

    text = run.text if text is None else text
    if options.out is not None:
        write_files(options.out, run.files)
    print_results(text, options.out)


@contextmanager
def progress(text: str = "Preparing") -> Iterator[Callable[[Progress], None]]:
    """Yield a function that shows progress: in one line of a terminal, else line by line.

    While there is no progress, the last text (at first the given one) is shown again every
    `SECONDS_PER_LINE`. Consecutive parts of a command share one clock.
    """
    global _last_line
    terminal = sys.stderr.isatty()
    ended = threading.Event()
    due = SECONDS_PER_LINE  # seconds of the run until the next line
    seconds_left = math.inf  # until its end
    began = reported = monotonic()
    if began - _last_line > SECONDS_PER_LINE:
        _last_line = began

    def write(line: str) -> None:
        global _last_line
        _last_line = monotonic()
        if math.isfinite(seconds_left):
            # It was estimated at the last report: the time since then has passed.
            line = (
                f"{text}, about {max(0.0, seconds_left - (_last_line - reported)):.0f} s left"
            )
        if terminal:
            warn(line, end="", begin="\r\x1b[K")  # to the start of the line, and clear it
        else:
            warn(line)

    def show(progress: Progress) -> None:
        nonlocal due, text, seconds_left, reported
        share = progress.finished_jobs / progress.total
        seconds_left = progress.seconds_left
        reported = monotonic()
        text = f"{share:4.0%}  {progress.title}"
        if terminal or progress.seconds >= due:
            due = progress.seconds + SECONDS_PER_LINE
            write(text)

    # In a thread of its own: a chunk may take longer than `SECONDS_PER_LINE`.
    def repeat() -> None:
        while not ended.wait(max(0.0, _last_line + SECONDS_PER_LINE - monotonic())):
            if monotonic() >= _last_line + SECONDS_PER_LINE:
                write(f"{text}, after {monotonic() - began:.0f} s")

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield show
    finally:
        ended.set()
        thread.join()
        if terminal:
            warn("", end="", begin="\r\x1b[K")


@contextmanager
def running(workers: int | None) -> Iterator[Execution]:
    """Yield the arguments of a run: its workers, and its progress."""
    with progress() as on_progress:
        yield {"workers": workers, "on_progress": on_progress}


def warn_no_effect(policies: Sequence[Policy], **available: Any) -> None:
    """Warn of the policies' settings that have no effect, given what policies may observe."""
    from fdkvc.explain.notes import no_effect_notes
    from fdkvc.policies.base import Available

    warn_each(no_effect_notes(policies, Available(**available)))
