"""A Dask cluster gives the bytes that this machine gives, also when one of its workers dies."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from threadpoolctl import threadpool_info

from fdkvc.commands.main import main
from fdkvc.paper.benchmark import Benchmark, Results, run_benchmark
from fdkvc.paper.results import BenchmarkRun
from fdkvc.paper.study import Study
from fdkvc.runs import cluster as cluster_module
from fdkvc.runs.cluster import dask_cluster
from fdkvc.runs.jobs import Progress
from tests.refusals import assert_one_sentence

NO_DASK = "Dask is not installed: get it with `pip install -r requirements-dask.txt`"

if os.environ.get("FDKVC_REQUIRE_DASK") == "1":
    import dask
    import distributed
else:
    dask = pytest.importorskip("dask", reason=NO_DASK)
    distributed = pytest.importorskip("distributed", reason=NO_DASK)

ROOT = Path(__file__).parents[2]

BENCHMARK = Benchmark(dialogs=24, seed=2)
CHUNK = 4

SCHEDULER, WORKER = "python -m dask scheduler", "python -m dask worker"
"""As a person starts them, in the project's folder: `dask worker` alone does not import from it."""


def numbers(results: Results) -> dict[str, bytes]:
    """Return the files of a run that do not depend on its time."""
    files = BenchmarkRun(Study(results)).files
    return {name: text.encode() for name, text in files.items() if name.endswith(".csv")}


@pytest.fixture(scope="module")
def expected() -> dict[str, bytes]:
    return numbers(run_benchmark(BENCHMARK))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Start two worker processes, whose BLAS may use as many threads as it likes."""
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": {}}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=":0",
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as started,
    ):
        yield started


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    with distributed.Client(cluster, set_as_default=False) as connected:
        yield connected


def test_two_processes_give_the_same_bytes(client: Any, expected: dict[str, bytes]) -> None:
    ran = run_benchmark(BENCHMARK, executor=client.get_executor(), workers=2, chunk=CHUNK)

    assert numbers(ran) == expected
    pools = client.run(threadpool_info).values()
    assert len(pools) == 2
    assert {library["num_threads"] for pool in pools for library in pool} == {1}


@pytest.mark.long
@pytest.mark.parametrize("others_may_try", [3, 0])
def test_a_worker_that_dies_costs_no_result(
    cluster: Any, client: Any, expected: dict[str, bytes], others_may_try: int
) -> None:
    """Whether the scheduler gives its chunks to the other worker, or gives them up."""
    client.wait_for_workers(2)
    cluster.scheduler.allowed_failures = others_may_try
    processes = client.run(os.getpid)
    killed: list[int] = []

    def kill(_: Progress) -> None:
        busy = [worker for worker, chunks in client.processing().items() if chunks]
        if busy and not killed:
            killed.append(processes[busy[0]])
            os.kill(killed[0], signal.SIGKILL)

    ran = run_benchmark(
        BENCHMARK, executor=client.get_executor(), workers=2, chunk=CHUNK, on_progress=kill
    )

    assert killed
    assert killed[0] not in client.run(os.getpid).values()
    assert numbers(ran) == expected


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("benchmark", "--scenarios", "mixed", "adaptation"),
        ("benchmark", "--all", "--scenarios", "shift", "--policies", "h2o", "fifo"),
        ("sweep", "--parameter", "gamma", "--values", "0.7", "0.8"),
    ],
)
def test_the_command_line_writes_the_same_bytes(
    cluster: Any, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for out, place in (("here", ()), ("there", ("--dask", cluster.scheduler_address))):
        folder = str(tmp_path / out)
        assert main([*command, "--dialogs", "5", *place, "--out", folder]) == 0
    here, there = (
        {
            file.name: file.read_bytes()
            for file in (tmp_path / out).glob("*.csv")
            if file.name not in ("latency.csv", "cost.csv", "cells.csv", "claims.csv")
        }
        for out in ("here", "there")
    )
    assert here
    assert there == here


def refusal(address: str) -> str:
    with pytest.raises(ValueError, match=r"^") as caught, dask_cluster(address):
        pass
    assert_one_sentence(caught.value)
    return str(caught.value)


def test_where_no_scheduler_answers_a_sentence_says_so(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "TIMEOUT", 0.2)
    (worker, *_) = cluster.scheduler.workers
    with socket.create_server(("localhost", 0)) as silent:
        port = silent.getsockname()[1]
        for address in (f"localhost:{port}", "localhost:1", "nowhere", "tls://a:1", worker):
            assert refusal(address).startswith(f"no Dask scheduler answers at {address!r}: give ")


def test_a_cluster_that_cannot_run_a_dialog_is_told_so(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ModuleNotFoundError("No module named 'fdkvc'\nand more")

    monkeypatch.setattr(cluster_module, "_run_a_dialog", broken)

    address = cluster.scheduler_address
    told = refusal(address)
    assert told.endswith("(No module named 'fdkvc')")
    assert re.findall(r"`(.+?)`", told) == [SCHEDULER, f"{WORKER} {address}"]
    guide = (ROOT / "fdkvc" / "commands" / "README.md").read_text("utf-8")
    assert f"\n{SCHEDULER}\n{WORKER} tcp://" in guide


def test_a_scheduler_without_workers_or_gone_is_named() -> None:
    settings = {"processes": False, "protocol": "tcp", "dashboard_address": ":0"}
    with distributed.LocalCluster(n_workers=0, **settings) as small:
        address = small.scheduler_address
        assert f"has no workers: start one first, with `{WORKER} {address}`" in refusal(address)
        small.scale(1)
        small.wait_for_workers(1)

        with pytest.raises(ValueError, match="went away during the run"):
            run_on(address, lambda _: small.close())


def begun(command: str) -> list[str]:
    """Return the words of a command, with this Python."""
    return [sys.executable, *command.split()[1:]]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str], subprocess.Popen[str]]]:
    """Start a scheduler and a worker as a person does: its address, and both processes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    port, quiet = address.rpartition(":")[2], "--no-dashboard"
    where: dict[str, Any] = {"cwd": ROOT, "stderr": subprocess.DEVNULL, "text": True}
    one = ("--nworkers", "1", "--nthreads", "2", "--no-nanny", "--local-directory", str(tmp_path))
    with (
        subprocess.Popen([*begun(SCHEDULER), "--port", port, quiet], **where) as first,
        subprocess.Popen([*begun(WORKER), address, *one, quiet], **where) as second,
    ):
        yield address, first, second
        second.kill()
        first.kill()


@pytest.mark.long
@pytest.mark.parametrize(
    ("gone", "what"),
    [(0, "went away during the run"), (1, "has had no worker for 4 s: start one, and run again")],
    ids=["scheduler", "workers"],
)
def test_a_scheduler_or_all_workers_that_are_killed_end_the_run_in_one_sentence(
    processes: tuple[str, subprocess.Popen[str], subprocess.Popen[str]], gone: int, what: str
) -> None:
    address, *both = processes
    code = (
        "import sys; from fdkvc.runs import cluster; cluster.PATIENCE = 4.0\n"
        "from fdkvc.runs import console; console.SECONDS_PER_LINE = 0.5\n"
        "from fdkvc.commands.main import main; sys.exit(main())"
    )
    line = ("benchmark", "--scenarios", "shift", "--dialogs", "100000", "--dask", address)
    with distributed.Client(address, timeout=60, set_as_default=False) as client:
        client.wait_for_workers(1, timeout=60)
    with subprocess.Popen(
        [sys.executable, "-c", code, *line], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stderr is not None
        assert any("dialogs" in line for line in command.stderr)
        both[gone].kill()
        try:
            _, said = command.communicate(timeout=40)
        finally:
            command.kill()

    assert command.returncode == 2
    lines = [text for text in said.splitlines(keepends=True) if "100000 dialogs" not in text]
    assert lines == [f"fdkvc: the Dask scheduler at {address!r} {what}\n"]


def run_on(address: str, on_progress: Callable[[Progress], None]) -> None:
    with dask_cluster(address) as (executor, workers):
        run_benchmark(
            BENCHMARK, executor=executor, workers=workers, chunk=1, on_progress=on_progress
        )
