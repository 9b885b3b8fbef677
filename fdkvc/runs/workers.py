"""Worker processes of this machine, shared by all runs.

A turn is many short array operations: threads would mostly wait for the interpreter lock.

A worker reads calls from standard input and writes results to standard output. When the process
that started it ends, in whatever way, its input closes and the worker exits.

*loky* and `concurrent.futures.ProcessPoolExecutor` were tried and do less. Workers of loky outlive
a killed parent; those of the executor never end when idle. With both, Ctrl-C during start-up prints
tracebacks, one dead worker fails all calls, and a small run takes a second longer.
"""

import math
import os
import pickle
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

IDLE_SECONDS = 300.0
"""A worker without work exits after this time."""

GIVING_WAY = 10
"""The niceness of a thread that gives way: on a busy core it gets a tenth of the time."""

Submit = Callable[..., Future[Any]]
"""A function of (function, arguments …) that gives the future of its result."""

_Calls = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[object, ...]] | None]


def cores() -> int:
    """Count the cores that this process may use: a container's share, not its host's."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, math.ceil(_quota(Path("/sys/fs/cgroup")))))


def _quota(groups: Path) -> int | float:
    """Return the CPU quota of a container's cgroups, in cores; `sys.maxsize` if unlimited."""
    with suppress(OSError, ValueError):  # cgroup v2; "max 100000" is unlimited
        quota, period = map(int, (groups / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):  # cgroup v1, of an older Linux; −1 is unlimited
        group = groups / "cpu"
        quota = int((group / "cpu.cfs_quota_us").read_text())
        period = int((group / "cpu.cfs_period_us").read_text())
        if quota > 0:
            return quota / period
    return sys.maxsize


class DaemonThreads:
    """A pool of `count` daemon threads, which end when it is garbage-collected.

    Unlike those of `ThreadPoolExecutor`, they do not delay the exit of the process.
    """

    def __init__(self, count: int) -> None:
        self._calls: _Calls = SimpleQueue()
        for _ in range(count):
            threading.Thread(target=_make_calls, args=(self._calls,), daemon=True).start()
        weakref.finalize(self, _stop, self._calls, count).atexit = False

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Return the future of a function's result, as `Executor.submit`."""
        future: Future[Any] = Future()
        self._calls.put((future, function, arguments))
        return future


def give_way() -> None:
    """Let other threads go before this one, and before those that it starts. Linux alone can."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        previous_niceness = os.getpriority(os.PRIO_PROCESS, thread)
        niceness = max(GIVING_WAY, previous_niceness)  # never back: not allowed
        os.setpriority(os.PRIO_PROCESS, thread, niceness)


def _make_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, function, arguments = call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
        del call, future, function, arguments  # otherwise kept in memory until the next call


def _stop(calls: _Calls, count: int) -> None:
    for _ in range(count):
        calls.put(None)


# ------------------------------------------------------------------------------- caller's side


def shared_workers(count: int) -> list[Submit]:
    """Return functions that submit calls, each to one of `count` worker processes of this machine.

    A worker starts at its first call, within a few tenths of a second, and serves later runs. If
    one dies, the future of its call raises, and the next call starts another. Workers import the
    function; its arguments must be picklable.

    Examples
    --------
    >>> [submit(abs, -3).result() for submit in shared_workers(2)]
    [3, 3]
    """
    # A worker with other code than this process could return other numbers.
    files = Path(__file__).parents[1].rglob("*.py")
    key = count, frozenset((file, file.stat().st_mtime_ns) for file in files)
    with _LOCK:
        if key not in _SHARED:
            _SHARED.clear()  # runs in progress keep theirs
            _SHARED[key] = [DaemonThreads(1) for _ in range(count)]
        return [partial(thread.submit, _in_worker) for thread in _SHARED[key]]


_SHARED: dict[object, list[DaemonThreads]] = {}
_LOCK = threading.Lock()
_THREAD = threading.local()


def _in_worker(function: Callable[..., Any], *arguments: object) -> Any:
    # Each thread has a worker of its own, and replaces it once it is dead.
    worker: _Worker | None = getattr(_THREAD, "worker", None)
    if worker is None or worker.process.poll() is not None:
        worker = _THREAD.worker = _Worker()
    try:
        return worker.call(function, arguments)
    except BaseException:
        worker.end()
        raise


class _Worker:
    """A worker process, seen from its caller."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path}; from {__name__} import serve; serve()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # the caller handles Ctrl-C
        )
        self.end = weakref.finalize(self, _end, self.process)
        self.end.atexit = False  # it exits with its input

    def call(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        # Pickled twice: if the worker cannot unpickle the call itself, that is the call's error.
        pickle.dump(pickle.dumps((function, arguments)), self.process.stdin)
        self.process.stdin.flush()
        result, failure = pickle.loads(pickle.load(self.process.stdout))
        if failure is not None:
            raise RuntimeError(f"a worker failed:\n{failure}")
        return result


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError), process:  # closes the pipes, whose other end may be gone
        pass


# ------------------------------------------------------------------------------- worker's side


def serve() -> None:
    """Run as a worker until the input closes or no call comes for `IDLE_SECONDS`."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a function prints goes to stderr
    sys.stdout = sys.stderr  # which is line-buffered
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    with suppress(Empty, OSError):
        while True:
            pickle.dump(_answer(calls.get(timeout=IDLE_SECONDS)), answers)
            answers.flush()
    os._exit(0)  # a normal exit would wait for the reading thread


def _listen(calls: SimpleQueue[bytes]) -> None:
    """Read calls during a call, so that the end of the input is noticed at once."""
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _answer(call: bytes) -> bytes:
    """Return a result and None, or None and the text of an error."""
    try:
        function, arguments = pickle.loads(call)
        return pickle.dumps((function(*arguments), None))
    except BaseException:
        return pickle.dumps((None, traceback.format_exc()))
