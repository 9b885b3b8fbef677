"""Jobs of an experiment, several at once, on any `concurrent.futures.Executor`."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence, Sized
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, TypedDict, TypeVar, Unpack

from threadpoolctl import threadpool_limits

from fdkvc.core.parameters import WORKERS, check_count
from fdkvc.runs.finished import Finished
from fdkvc.runs.workers import Submit, cores, shared_workers

CHUNKS_PER_WORKER = 2
"""Chunks submitted ahead for each worker, so that none waits for its next one."""

_LOGGER = logging.getLogger(__name__)

Job = TypeVar("Job", bound=Sized)
Chunked = TypeVar("Chunked")


@dataclass(frozen=True)
class Progress:
    """The progress of a run."""

    finished_jobs: int
    """How many dialogs have run, each in every scenario under every policy."""
    total: int
    """How many dialogs there are."""
    title: str
    """The progress in words."""
    seconds: float
    """Time since the start."""
    earlier_jobs: int = 0
    """How many of `finished_jobs` an earlier, killed run did; they took no time in this one."""
    partial: Any = None
    """The results of the chunks that are done; on a page, what is shown of them so far."""

    @property
    def seconds_left(self) -> float:
        """The time left at the pace so far; infinite before anything is done."""
        new_dialogs = self.finished_jobs - self.earlier_jobs
        if not new_dialogs:
            return float("inf")
        return self.seconds * (self.total - self.finished_jobs) / new_dialogs


class Execution(TypedDict, total=False):
    """How a run is computed, which changes none of its numbers."""

    executor: Executor | None
    """Where the chunks run; processes of this machine by default, see `fdkvc.runs.workers`.
    A single chunk or worker runs in this process."""
    workers: int | None
    """Processes to start, or chunks that `executor` runs at once; the machine's cores by
    default."""
    on_progress: Callable[[Progress], None] | None
    """Called after each chunk, in the calling thread."""
    cancelled: threading.Event | None
    """Once set, no further chunk starts; finished ones are returned."""
    finished: Finished | None
    """Chunks that an earlier, killed run finished; those of this one are added."""


def worker_count(execution: Execution) -> int:
    """Return how many chunks run at once; a ValueError if below 1, or too many for a machine."""
    workers = execution.get("workers")
    workers = cores() if workers is None else workers
    if execution.get("executor") is None:  # another executor may have more
        WORKERS.check(workers, "workers")
    check_count("workers", workers)
    return workers


def run_jobs(
    run: Callable[[Job], Chunked], jobs: Sequence[Job], **execution: Unpack[Execution]
) -> list[Chunked]:
    """Run jobs of dialogs, several at once, and return their results in order.

    `run` and its results must be picklable; a result is the same on any machine. Raises a
    ValueError if `workers` is below 1.
    """
    executor = execution.get("executor")
    on_progress = execution.get("on_progress")
    workers = worker_count(execution) if len(jobs) > 1 else 1
    cancelled = execution.get("cancelled") or threading.Event()
    one_blas_thread()
    began = perf_counter()
    stored_rows = execution.get("finished")
    finished: dict[int, Chunked] = {} if stored_rows is None else dict(stored_rows.results)
    stored_dialogs = finished_dialogs = sum(len(jobs[number]) for number in finished)
    total = sum(map(len, jobs))
    submits: Sequence[Submit]
    if executor is not None:
        submits = [executor.submit]
    else:
        submits = shared_workers(workers) if workers > 1 else [_submit_here]
    # A worker is given the same jobs in each run of them, since it may have their data: every n-th,
    # and once it has none left, those of others.
    waiting: list[deque[int]] = [deque() for _ in submits]
    for number in range(len(jobs)):
        if number not in finished:
            waiting[number % len(submits)].append(number)
    ahead = CHUNKS_PER_WORKER * workers // len(submits)
    running: dict[Future[Chunked], tuple[int, int]] = {}
    while True:
        # 1. Once cancelled, drop what has not started, and wait for what has.
        if cancelled.is_set():
            # The same one for all, as nothing is added any more.
            waiting = [deque()] * len(submits)
            for future in [future for future in running if future.cancel()]:
                del running[future]
        # 2. Submit: only a few jobs ahead, so that memory does not grow with the dialogs.
        under_way = Counter(place for _, place in running.values())
        for place, submit in enumerate(submits):
            for _ in range(ahead - under_way[place]):
                numbers = waiting[place] or max(waiting, key=len)
                if not numbers:
                    break
                number = numbers.popleft()
                future = submit(run, jobs[number])
                running[future] = number, place
                if future.done():  # it ran in this thread: report it before the next one
                    break
        if not running:
            break
        # 3. Collect results in the order of their jobs.
        ended = wait(running, return_when=FIRST_COMPLETED).done
        for future in sorted(ended, key=running.__getitem__):
            number, _ = running.pop(future)
            try:
                finished[number] = future.result()
            except CancelledError:
                if not cancelled.is_set():  # the executor was closed
                    raise
                continue  # amid a dialog, which takes long
            except Exception:
                # Its worker may have died. An error in the job itself is raised again here.
                finished[number] = run(jobs[number])
                _LOGGER.warning(
                    "A worker failed or was killed: its part of the run was run again here, "
                    "with the same numbers."
                )
            if stored_rows is not None:
                stored_rows.add(number, finished[number])
            finished_dialogs += len(jobs[number])
            if on_progress is not None:
                title = f"{finished_dialogs} of {total} dialogs"
                seconds = perf_counter() - began
                partial = [*finished.values()]
                on_progress(
                    Progress(finished_dialogs, total, title, seconds, stored_dialogs, partial)
                )
    return [finished[number] for number in sorted(finished)]


def _submit_here(function: Callable[..., Any], *arguments: object) -> Future[Any]:
    """Call a function at once, and return the future of its result; an error is raised here."""
    future: Future[Any] = Future()
    try:
        future.set_result(function(*arguments))
    except CancelledError as error:
        future.set_exception(error)
    return future


@cache
def one_blas_thread() -> None:
    """Limit BLAS to one thread: matrix products here are too small for more."""
    threadpool_limits(1, user_api="blas")
