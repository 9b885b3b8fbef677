"""Runs the chunks of a benchmark on other machines, through Dask.

Needs the packages of ``requirements-dask.txt``.
"""

import asyncio
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from fdkvc.engine.simulate import simulate
from fdkvc.policies import PAPER_POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS

TIMEOUT = 5.0
"""Seconds within which the scheduler must first answer."""

PATIENCE = 60.0
"""Seconds without any worker after which a run ends."""

LOGGERS = ("distributed", "distributed.client", "tornado.application", "asyncio")
"""Loggers that print tracebacks when the scheduler goes away; one sentence says so here."""


@contextmanager
def dask_cluster(address: str) -> Iterator[tuple[Executor, int]]:
    """Connect to a Dask cluster: its executor, and how many chunks it runs at once.

    The chunks of a worker that dies go to another, or wait `PATIENCE` for one to join. `address` is
    the scheduler's, such as ``tcp://host:8786``. Raises a ValueError if optional packages are
    missing, no scheduler answers, its cluster has no workers or cannot run a dialog, or if the
    scheduler or all workers go away during the run.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise ValueError(
            f"a cluster needs {error.name}: install requirements-dask.txt, or the extra dask"
        ) from None
    # 1. Check all that can be checked before the run.
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    _check_scheduler(address)
    with Client(address, timeout=TIMEOUT, set_as_default=False) as client:
        workers = sum(client.nthreads().values())
        if not workers:
            raise ValueError(
                f"the Dask scheduler at {address!r} has no workers: start one first, with "
                f"`python -m dask worker {address}` in the project's folder"
            )
        _check_workers(client, address)
        # 2. Watch for workers while the caller runs: without any, Dask would wait for ever.
        ended = threading.Event()
        abandoned = threading.Event()
        watch = threading.Thread(target=_watch, args=(client, ended, abandoned), daemon=True)
        watch.start()
        try:
            yield client.get_executor(), workers
        except CancelledError:
            problem = f"the Dask scheduler at {address!r} went away during the run"
            if abandoned.is_set():
                problem = (
                    f"the Dask scheduler at {address!r} has had no worker for {PATIENCE:.0f} s: "
                    "start one, and run again"
                )
            raise ValueError(problem) from None
        finally:
            ended.set()


def _watch(client: Any, ended: threading.Event, abandoned: threading.Event) -> None:
    """Close a client, which cancels its chunks, after `PATIENCE` seconds without any worker."""
    last_seen = perf_counter()  # when a worker was last seen
    while not ended.wait(PATIENCE / 20):
        try:
            if client.nthreads():
                last_seen = perf_counter()
        except Exception:  # the scheduler is gone: the client itself cancels the chunks
            return
        if perf_counter() - last_seen > PATIENCE:
            abandoned.set()
            client.close()
            return


def _check_scheduler(address: str) -> None:
    """Raise a ValueError unless a scheduler answers; a `Client` without one may hang at exit."""
    from distributed import Security, rpc

    async def identity() -> Any:
        encryption = Security().get_connection_args("client")
        async with rpc(address, connection_args=encryption) as worker:
            return await worker.identity()

    try:
        answer = asyncio.run(asyncio.wait_for(identity(), TIMEOUT))
    except Exception:  # the type depends on the address and on what answers there
        answer = {}
    if answer.get("type") != "Scheduler":
        raise ValueError(
            f"no Dask scheduler answers at {address!r}: give the address that it prints when it "
            "starts, such as tcp://host:8786"
        )


def _run_a_dialog() -> None:
    """Run the paper's policies over one dialog, which imports all that a benchmark needs."""
    dialog = generate(SCENARIOS["shift"])
    for key in PAPER_POLICIES:
        simulate(policy_named(key), dialog, budget=56)


def _check_workers(client: Any, address: str) -> None:
    """Raise a ValueError unless each process of the cluster has the project and runs a dialog."""
    try:
        for run in (client.run_on_scheduler, client.run):
            run(_run_a_dialog)
    except Exception as error:
        # Only the first line, without a remote traceback; an error without text gives its type.
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ValueError(
            f"the Dask cluster at {address!r} cannot run a dialog: in the project's folder, with "
            "requirements.txt installed, start `python -m dask scheduler` and "
            f"`python -m dask worker {address}` ({reason[:200]})"
        ) from None
