"""Background runs, a few at once, and the results of the latest.

A job outlives a rerun of its page, a change of page and a reload; all tabs see the same jobs.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from fdkvc.experiments.benchmark import Progress
from fdkvc.experiments.workers import DaemonThreads
from fdkvc.limits import MAX_RESULTS_MEGABYTES, MAX_RUNNING_JOBS
from fdkvc.ui.kit.lru import size_of

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
    size : int
        Bytes of its result.
    """

    name: str
    content: Hashable = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    progress: Progress | None = None
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
    running : int
        So many run at once; others wait for their turn.
    most : int
        Bytes of all results together. The oldest leave first; the latest stays, whatever its size.
    """

    def __init__(
        self,
        running: int = MAX_RUNNING_JOBS,
        most: int = MAX_RESULTS_MEGABYTES * 1_000_000,
    ) -> None:
        self.most = most
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
        """
        with self._lock:
            job = Job(uuid4().hex, content)
            job.future = self._threads.submit(self._run, work, job)
            self._jobs[job.name] = job
            return job

    def find(self, name: str | None) -> Job | None:
        """Return the job of this name, or None if it is not known any more."""
        return self._jobs.get(name or "")

    def results(self, kind: type) -> list[Job]:
        """Return the jobs that have a result, of contents of this type, oldest first."""
        with self._lock:
            jobs = list(self._jobs.values())
        return [job for job in jobs if isinstance(job.content, kind) and job.result is not None]

    def drop(self, name: str) -> None:
        """Forget a job at once."""
        with self._lock:
            self._jobs.pop(name, None)

    def _run(self, work: Work, job: Job) -> Any:
        result = work(job.report, job.cancelled)
        job.size = size_of(result)
        room = self.most - job.size
        with self._lock:
            for other in reversed([each for each in self._jobs.values() if each.finished]):
                room -= other.size
                if room < 0:
                    del self._jobs[other.name]
        return result
