"""Workers: processes of this machine that run the chunks of a benchmark, one run after the other.

A turn is many short array operations, and Python lets one thread at a time begin one: two threads
mostly wait for each other. Processes do not.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
from loky import cpu_count, get_reusable_executor
from threadpoolctl import threadpool_info

IDLE_SECONDS = 300.0
"""How long a worker waits for work before it ends."""

Submit = Callable[..., Future[Any]]
"""A function of (function, arguments …) that gives the future of its result."""


def cores() -> int:
    """Count the cores that this process may use: a container's share, and not its host's."""
    return int(cpu_count())


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
    files = Path(__file__).parents[1].rglob("*.py")
    return str(hash(frozenset((file, file.stat().st_mtime_ns) for file in files)))
