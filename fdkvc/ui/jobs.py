"""Background runs, a few at once, and the results of the latest.

A job outlives a rerun of its page, a change of page and a reload; all tabs of a browser see it.
"""

import sys
import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import uuid4
from weakref import WeakValueDictionary

from fdkvc.core.limits import MAX_ENDED_JOBS, MAX_RESULTS_MEGABYTES, MAX_RUNNING_JOBS
from fdkvc.runs.jobs import Progress
from fdkvc.runs.workers import DaemonThreads
from fdkvc.ui.lru import size_of

SWITCH_SECONDS = 0.0005
"""How long a thread computes before another one may; by default 5 ms."""

FAILED = "The run failed: "
"""How a problem begins whose reason is known."""

Report = Callable[[Progress], None]

Work = Callable[..., Any]
"""A function of `on_progress`, a `Report`, and `cancelled`, an event that it checks regularly.

It returns what is finished once that event is set.
"""


@dataclass(eq=False)
class Job:
    """One run with its latest progress; jobs of equal content have equal results."""

    name: str
    """A unique name."""
    content: Hashable = None
    """What it computes, such as settings."""
    browser: str = ""
    """The browser that started it."""
    requested: datetime = field(default_factory=lambda: datetime.now(UTC))
    """When it was started or queued."""
    seconds: float = 0.0
    """How long it took, once it has ended."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    holders: set["Held"] = field(default_factory=set)
    """The sessions that wait for it; once the last lets go, it is cancelled."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Taken while a session joins or lets go, so that none joins a job that is being cancelled."""
    progress: Progress | None = None
    size: int = 0
    future: Future[Any] = field(default_factory=Future)

    def cancel(self) -> None:
        """Stop it: at once if it is waiting, else after its current step."""
        self.cancelled.set()
        self.future.cancel()

    def join(self, holder: "Held") -> bool:
        """Let a session wait for it; return whether it can: not once it is cancelled."""
        with self.lock:
            if not self.cancelled.is_set():
                self.holders.add(holder)
            return holder in self.holders

    def leave(self, holder: "Held") -> None:
        """Let a session wait no longer; without one, cancel it unless it has ended."""
        with self.lock:
            self.holders.discard(holder)
            if not self.holders and not self.finished:
                self.cancel()

    def report(self, progress: Progress) -> None:
        """Store its progress."""
        self.progress = progress

    @property
    def latest(self) -> Any:
        """Its result, or while it runs that of a part; None if there is none."""
        running = self.progress is not None and not self.finished
        return self.progress.partial if self.progress and running else self.result

    @property
    def finished(self) -> bool:
        """Whether it has ended, also in failure."""
        return self.future.done()

    @property
    def waiting(self) -> bool:
        """Whether it has not started."""
        return not self.future.running() and not self.finished

    @property
    def problem(self) -> str:
        """The error in a sentence; empty if there is none yet."""
        if not self.finished or self.future.cancelled():
            return ""
        error = self.future.exception()
        match error:
            case None:
                return ""
            case ValueError():
                return f"{FAILED}{error}."
            case MemoryError():
                return "The run needs more memory than is available: choose fewer dialogs."
        return f"Internal error: {type(error).__name__}, {error}."

    @property
    def result(self) -> Any:
        """Its result; None while it runs, if it failed, or if it never started."""
        if not self.finished or self.future.cancelled() or self.future.exception() is not None:
            return None
        return self.future.result()


class Held:
    """The jobs for which one session waits, by key; another session may wait for the same ones."""

    def __init__(self) -> None:
        # Weak: results that leave for lack of room leave here, too.
        self._jobs: WeakValueDictionary[str, Job] = WeakValueDictionary()

    def hold(self, key: str, job: Job) -> bool:
        """Wait for this job instead of the previous one; return whether it can be waited for."""
        if not job.join(self):
            return False
        previous_job = self._jobs.pop(key, None)
        self._jobs[key] = job
        if previous_job is not None and previous_job is not job:
            previous_job.leave(self)
        return True

    def let_go(self, key: str) -> None:
        """Wait for no job, and cancel the previous one if no other session waits for it."""
        job = self._jobs.pop(key, None)
        if job is not None:
            job.leave(self)

    def hold_job_of(self, key: str, jobs: "Jobs", work: Work, content: Hashable) -> Job:
        """Wait for the job of this content, which is started if there is none, and return it.

        One that was stopped while this session waited stays, with what had finished.
        """
        own_job = self._jobs.get(key)
        if own_job is not None and own_job.content == content and jobs.find(own_job.name):
            return own_job
        job = jobs.of(content)
        # Another session may let go of a job, and so cancel it, after it was found here.
        while job is None or not self.hold(key, job):
            self.let_go(key)  # first, so that the new job need not wait for the previous one
            job = jobs.start(work, content)
        return job

    def release(self) -> None:
        """Let go of all."""
        for key in [*self._jobs]:
            self.let_go(key)


class Jobs:
    """All jobs of this process: `running` at once, others wait.

    Results take at most `max_bytes` together: the oldest are dropped first, the latest stays with
    those that its session holds.
    """

    def __init__(
        self,
        running: int = MAX_RUNNING_JOBS,
        max_bytes: int = MAX_RESULTS_MEGABYTES * 1_000_000,
    ) -> None:
        self.max_bytes = max_bytes
        self._threads = DaemonThreads(running)  # they do not keep a server from stopping
        self._jobs: dict[str, Job] = {}
        self._lock = threading.Lock()
        # Many short steps of NumPy and pandas each wait that long while a job computes.
        sys.setswitchinterval(SWITCH_SECONDS)

    def start(self, work: Work, content: Hashable = None, browser: str = "") -> Job:
        """Start a job, or queue it."""
        with self._lock:
            job = Job(uuid4().hex, content, browser)
            job.future = self._threads.submit(self._run, work, job)
            self._jobs[job.name] = job
            # Jobs without a result: only their number is bounded, as they take few bytes.
            ended = [name for name, row in self._jobs.items() if row.finished and not row.size]
            for name in ended[:-MAX_ENDED_JOBS]:
                del self._jobs[name]
            return job

    def find(self, name: str | None) -> Job | None:
        """Return the job of this name, or None if it is no longer kept."""
        # Without the lock: a single look-up is whole anyway.
        return self._jobs.get(name or "")

    def results(self, kind: type) -> list[Job]:
        """Return the jobs that have a result, of contents of this type, oldest first."""
        return [job for job in self._of_type(kind) if job.result is not None]

    def going_on(self, kind: type, browser: str) -> Job | None:
        """Return the last job of a browser that has not ended, of contents of this type."""
        jobs = reversed(self._of_type(kind))
        return next((job for job in jobs if job.browser == browser and not job.finished), None)

    def _of_type(self, kind: type) -> list[Job]:
        with self._lock:
            return [job for job in self._jobs.values() if isinstance(job.content, kind)]

    def of(self, content: Hashable) -> Job | None:
        """Return the last job of this content that was not cancelled, or None."""
        jobs = reversed(self._of_type(type(content)))
        equal = (job for job in jobs if job.content == content and not job.cancelled.is_set())
        return next(equal, None)

    def _run(self, work: Work, job: Job) -> Any:
        began = perf_counter()
        result = work(on_progress=job.report, cancelled=job.cancelled)
        job.seconds = perf_counter() - began
        job.size = size_of(result)
        room = self.max_bytes - job.size  # bytes left for the results of other jobs
        with self._lock:
            # Not this one, which ends when its result is returned.
            ended_jobs = [row for row in self._jobs.values() if row.finished]
            for older_job in reversed(ended_jobs):
                room -= older_job.size
                # What one session shows together stays: each would start the other again.
                if room < 0 and not older_job.holders & job.holders:
                    del self._jobs[older_job.name]
        return result
