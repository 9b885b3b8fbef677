"""Workers: processes of this machine that run the chunks of a benchmark, one run after the other.

A turn is many short array operations, and Python lets one thread at a time begin one: two threads
mostly wait for each other. Processes do not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from loky import cpu_count, get_reusable_executor

IDLE_SECONDS = 300.0
"""How long a worker waits for work before it ends."""

Submit = Callable[..., Future[Any]]
"""A function of (function, arguments …) that gives the future of its result."""


def cores() -> int:
    """Count the cores that this process may use: a container's share, and not its host's."""
    return int(cpu_count())


def shared_workers(count: int) -> Submit:
    """Return what lets one of this machine's worker processes call a function.

    The first call starts them, which takes about half a second; every later run finds them there.
    If one dies, the futures of what they were at say so, and the next call starts others.

    Parameters
    ----------
    count : int
        Processes that share the work.

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
    # A worker that has loaded other code than this process would give other numbers. One with
    # another environment is not used again.
    environment = {"FDKVC_CODE": _code()}

    def submit(function: Callable[..., Any], *arguments: object) -> Future[Any]:
        executor = get_reusable_executor(count, timeout=IDLE_SECONDS, env=environment)
        future: Future[Any] = executor.submit(function, *arguments)
        return future

    return submit


def _code() -> str:
    """Return what changes whenever a file of this package does."""
    files = Path(__file__).parent.rglob("*.py")
    return str(hash(frozenset((file, file.stat().st_mtime_ns) for file in files)))
