"""Workers: processes of this machine that run the chunks of a benchmark, one run after the other.

A turn is many short array operations, and Python lets one thread at a time begin one: two threads
mostly wait for each other. Processes do not.

A worker reads calls from its standard input and writes answers to its standard output. Its input
ends with the process that started it, however that ends, and the worker ends with its input.
"""

from __future__ import annotations

import math
import os
import pickle
import platform
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

import numpy as np
from threadpoolctl import threadpool_info

IDLE_SECONDS = 300.0
"""How long a worker waits for work before it ends."""

Submit = Callable[..., Future[Any]]
"""A function of (function, arguments …) that gives the future of its result."""


def cores() -> int:
    """Count the cores that this process may use: a container's share, and not its host's."""
    if sys.platform == "linux":
        count = len(os.sched_getaffinity(0))
    else:
        count = os.cpu_count() or 1
    return max(1, min(count, math.ceil(_quota(Path("/sys/fs/cgroup")))))


def _quota(groups: Path) -> int | float:
    """Return how many cores the groups of a container leave it, or as many as nobody has."""
    with suppress(OSError, ValueError):  # such as "max 100000"
        quota, period = map(int, (groups / "cpu.max").read_text().split())
        return quota / period
    with suppress(OSError, ValueError):  # an older Linux
        quota, period = (
            int((groups / "cpu" / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
        )
        if quota > 0:
            return quota / period
    return sys.maxsize


class DaemonThreads:
    """Threads that make calls, one after the other, and that the end of the process leaves behind.

    They end when nobody can give them calls any more.

    Parameters
    ----------
    count : int
        Calls that are made at once.
    """

    def __init__(self, count: int) -> None:
        self._calls: _Calls = SimpleQueue()
        for _ in range(count):
            threading.Thread(target=_make_calls, args=(self._calls,), daemon=True).start()
        weakref.finalize(self, _dismiss, self._calls, count).atexit = False

    def submit(self, function: Callable[..., Any], *arguments: object) -> Future[Any]:
        """Return the future of what a function returns, as any executor does."""
        future: Future[Any] = Future()
        self._calls.put((future, function, arguments))
        return future


_Calls = SimpleQueue[tuple[Future[Any], Callable[..., Any], tuple[object, ...]] | None]


def _make_calls(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        future, function, arguments = call
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function(*arguments))
            except BaseException as error:
                future.set_exception(error)
        del call, future, function, arguments  # or they, and a result, would be kept till the next


def _dismiss(calls: _Calls, count: int) -> None:
    for _ in range(count):
        calls.put(None)


# ------------------------------------------------------------------------------- who has the work


def processor() -> dict[str, str]:
    """Return what the processor makes of arithmetic, by which the last bits of numbers differ.

    Returns
    -------
    dict of str to str
        The kind of processor; the kernels of the libraries that multiply matrices; and the
        instructions that NumPy takes beside those that every such processor has.
    """
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    kernels = {f"{pool['internal_api']} {pool.get('architecture', '')}".strip() for pool in pools}
    instructions: dict[str, list[str]] = np.show_config(mode="dicts")["SIMD Extensions"]  # type: ignore[assignment]
    return {
        "machine": platform.machine(),
        "blas": ", ".join(sorted(kernels)),
        "simd": ", ".join(instructions.get("found", [])),
    }


def shared_workers(count: int) -> Submit:
    """Return what lets one of this machine's worker processes call a function.

    A worker is started when there is work for it, which takes some tenths of a second; every
    later run finds it there. If one dies, the future of what it was at says so, and the next call
    starts another.

    Parameters
    ----------
    count : int
        Processes that share the work, at most.

    Returns
    -------
    function
        Takes a function that a worker can import, and arguments that can be pickled.

    Examples
    --------
    >>> submit = shared_workers(2)
    >>> submit(abs, -3).result()
    3
    """
    # A worker that has loaded other code than this process would give other numbers.
    key = (count, _code())
    with _LOCK:
        if key not in _SHARED:
            _SHARED.clear()  # those who use the others still keep them
            _SHARED[key] = DaemonThreads(count)
        return partial(_SHARED[key].submit, _in_worker)


_SHARED: dict[tuple[int, str], DaemonThreads] = {}
_LOCK = threading.Lock()
_THREAD = threading.local()


def _code() -> str:
    """Return what changes whenever a file of this package does."""
    files = Path(__file__).parents[1].rglob("*.py")
    return str(hash(frozenset((file, file.stat().st_mtime_ns) for file in files)))


def _in_worker(function: Callable[..., Any], *arguments: object) -> Any:
    """Let the worker of this thread call a function."""
    worker: _Worker | None = getattr(_THREAD, "worker", None)
    if worker is None or worker.ended:
        worker = _THREAD.worker = _Worker()
    try:
        return worker.call(function, arguments)
    except BaseException:
        worker.end()
        raise


class _Worker:
    """A worker process, as the one that started it sees it."""

    def __init__(self) -> None:
        code = f"import sys; sys.path[:] = {sys.path}; from {__name__} import serve; serve()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in a terminal is for whoever has the work
        )
        self.end = weakref.finalize(self, _end, self._process)
        self.end.atexit = False  # it ends by itself then

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def call(self, function: Callable[..., Any], arguments: tuple[object, ...]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        pickle.dump(pickle.dumps((function, arguments)), self._process.stdin)
        self._process.stdin.flush()
        result, failure = pickle.loads(pickle.load(self._process.stdout))
        if failure is not None:
            raise RuntimeError(f"a worker failed:\n{failure}")
        return result


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError), process:  # closes the pipes, where the other end may be gone
        pass


# ------------------------------------------------------------------------------- who does it


def serve() -> None:
    """Be a worker: make the calls that come, until none came for long or none can come."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # for what a function prints
    sys.stdout = sys.stderr  # which does not wait for more of it
    calls: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_listen, args=(calls,), daemon=True).start()
    with suppress(Empty, OSError):
        while True:
            pickle.dump(_answer(calls.get(timeout=IDLE_SECONDS)), answers)
            answers.flush()
    os._exit(0)  # an ordinary end would wait for the thread that listens


def _listen(calls: SimpleQueue[bytes]) -> None:
    """Take calls while another is at work, so that the end of the input is seen at once."""
    try:
        while True:
            calls.put(pickle.load(sys.stdin.buffer))
    finally:
        os._exit(0)


def _answer(call: bytes) -> bytes:
    """Return a result and no failure, or no result and the text of a failure."""
    try:
        function, arguments = pickle.loads(call)
        return pickle.dumps((function(*arguments), None))
    except BaseException:
        return pickle.dumps((None, traceback.format_exc()))
