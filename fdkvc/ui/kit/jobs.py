"""Runs in the background, a few at once for all who use this server.

A job outlives a rerun of its page and a change of page; whoever knows its name finds it, or its
result, again, and whoever asks for the same finds what is finished. What one server takes on is
bounded: how many jobs run, how many wait, and how many results are kept and for how long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import accumulate
from time import monotonic
from typing import Any
from uuid import uuid4

from fdkvc.experiments.benchmark import Progress
from fdkvc.experiments.workers import DaemonThreads
from fdkvc.ui.kit.lru import give_back, size_of

RUNNING = 2
"""Jobs at work at once."""

WAITING = 4
"""Jobs that may wait for their turn."""

KEPT = 64
"""Finished jobs whose results are kept."""

KEPT_MEGABYTES = 128
"""Of the results that are kept; the last is kept whatever its size."""

KEPT_SECONDS = 24 * 3600.0
"""How long a result is kept after it was last asked for."""

Report = Callable[[Progress], None]
Work = Callable[[Report, threading.Event], Any]
"""A function of (report progress, cancelled) that returns a result.

It looks at the event now and then; once it is set, it returns what is finished.
"""


@dataclass(eq=False)
class Job:
    """One run.

    Attributes
    ----------
    name : str
        By which it is found again.
    content : hashable, optional
        What it is asked: jobs of equal content have the same result.
    progress : Progress, optional
        The last that it reported; None before it began.
    cancelled : Event
        Set once someone has told it to stop.
    asked : float
        When it was last looked for, by the clock of its `Jobs`.
    size : int
        Bytes of its result.
    """

    name: str
    content: Hashable = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: Progress | None = None
    asked: float = 0.0
    size: int = 0
    future: Future[Any] = field(default_factory=Future)

    def cancel(self) -> None:
        """Tell it to stop: at once if it waits, else as soon as what it is at is finished."""
        self.cancelled.set()
        self.future.cancel()

    def report(self, progress: Progress) -> None:
        """Take note of its progress."""
        self.progress = progress

    @property
    def finished(self) -> bool:
        """Whether it has come to an end, good or bad."""
        return self.future.done()

    @property
    def waiting(self) -> bool:
        """Whether it has not begun."""
        return not self.future.running() and not self.finished

    @property
    def problem(self) -> str:
        """What went wrong, in a sentence; empty if nothing did, or while it runs."""
        if not self.finished or self.future.cancelled():
            return ""
        error = self.future.exception()
        match error:
            case None:
                return ""
            case ValueError():
                return f"The run could not be done: {error}."
            case MemoryError():
                return "The run needed more memory than there is: ask for fewer dialogs."
        return f"The run failed, and that is this program's fault: {type(error).__name__}, {error}."

    @property
    def result(self) -> Any:
        """What it returned; None while it runs, if it failed, or if it never began."""
        if not self.finished or self.future.cancelled() or self.future.exception() is not None:
            return None
        return self.future.result()


class Jobs:
    """All jobs of this process.

    Parameters
    ----------
    running, waiting, kept : int
        At most so many of each.
    kept_seconds : float
        A finished job that nobody asked for so long is forgotten.
    kept_bytes : int
        Of all results together.
    clock : function
        Returns seconds.
    """

    def __init__(
        self,
        running: int = RUNNING,
        waiting: int = WAITING,
        kept: int = KEPT,
        kept_seconds: float = KEPT_SECONDS,
        kept_bytes: int = KEPT_MEGABYTES * 1_000_000,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.running, self.waiting, self.kept = running, waiting, kept
        self._kept_seconds, self._kept_bytes, self._clock = kept_seconds, kept_bytes, clock
        self._threads = DaemonThreads(running)  # a server that is told to stop does
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()

    def start(self, work: Work, content: Hashable = None) -> Job:
        """Begin a job, or let it wait for its turn.

        Parameters
        ----------
        work : function
        content : hashable, optional
            What tells its result from others.

        Raises
        ------
        ValueError
            If as many jobs as may are running and waiting already.
        """
        with self._lock:
            self._forget()
            ahead = sum(not job.finished for job in self._jobs.values())
            if ahead >= self.running + self.waiting:
                raise ValueError(
                    f"this server is busy with {ahead} runs, and takes no more than "
                    f"{self.running + self.waiting} at once: try again in a minute"
                )
            job = Job(uuid4().hex, content, asked=self._clock())
            job.future = self._threads.submit(_measured, work, job)
            self._jobs[job.name] = job
            return job

    def find(self, name: str | None) -> Job | None:
        """Return the job of this name, or None if it is not known any more."""
        with self._lock:
            job = None if name is None else self._jobs.get(name)
            if job is not None:
                job.asked = self._clock()
            self._forget()
            return job

    def at_hand(self, content: Hashable) -> Job | None:
        """Return the last job of this content that came to its end, None if there is none."""
        with self._lock:
            names = [
                job.name
                for job in self._jobs.values()
                if job.content == content and job.result is not None and not job.cancelled.is_set()
            ]
        return self.find(names[-1]) if names else None

    def drop(self, name: str) -> None:
        """Forget a finished job at once."""
        with self._lock:
            if name in self._jobs and self._jobs[name].finished:
                del self._jobs[name]

    def ahead_of(self, job: Job) -> int:
        """Return how many unfinished jobs began before this one."""
        with self._lock:
            names = list(self._jobs)
            before = names[: names.index(job.name)] if job.name in names else []
            return sum(not self._jobs[name].finished for name in before)

    def _forget(self) -> None:
        """Drop the finished jobs that nobody has asked for the longest."""
        finished = sorted(
            (job for job in self._jobs.values() if job.finished), key=lambda job: -job.asked
        )
        oldest = self._clock() - self._kept_seconds
        sizes = accumulate(job.size for job in finished)
        for place, (job, size) in enumerate(zip(finished, sizes, strict=True)):
            too_much = size > self._kept_bytes and place > 0
            if place >= self.kept or too_much or job.asked < oldest:
                del self._jobs[job.name]


def _measured(work: Work, job: Job) -> Any:
    result = work(job.report, job.cancelled)
    job.size = size_of(result)
    give_back()
    return result
