"""Worker processes: used again, replaced when one dies or the code changes, and never in doubt."""

import os
import signal
import subprocess
import sys
import threading
from functools import partial
from itertools import chain, pairwise
from pathlib import Path
from time import sleep

import pytest

from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.results import BenchmarkRun
from fdkvc.paper.study import Study
from fdkvc.runs import workers
from fdkvc.runs.jobs import Progress, run_jobs

ROOT = Path(__file__).parents[2]
BENCHMARK = Benchmark(dialogs=12, seed=2)


def processes(count: int = 2) -> set[int]:
    return {submit(os.getpid).result() for submit in workers.shared_workers(count)}


def files(**how: object) -> dict[str, str]:
    """Return the files of a run that do not depend on its time."""
    written = BenchmarkRun(Study(run_benchmark(BENCHMARK, **how))).files  # type: ignore[arg-type]
    return {name: text for name, text in written.items() if name.endswith(".csv")}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one priority a process")
@pytest.mark.parametrize("before", [0, 15])
def test_a_thread_gives_way_with_those_that_it_starts_and_no_other(before: int) -> None:
    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    def give_way() -> tuple[int, int]:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(before, first))
        workers.give_way()
        return niceness(), workers.DaemonThreads(1).submit(niceness).result()

    first = niceness()
    assert workers.DaemonThreads(1).submit(give_way).result() == (max(first, before, 10),) * 2
    assert niceness() == first


def test_a_later_run_finds_the_workers_of_an_earlier_one() -> None:
    first, later = processes(), processes()

    assert len(first | later) <= 2
    assert os.getpid() not in first


@pytest.mark.long
def test_a_worker_gets_the_same_jobs_in_a_later_run_and_those_of_others_once_it_has_none() -> None:
    """It may have kept what they need."""
    started = processes()
    runs = [run_jobs(_process, [[0]] * 12, workers=2) for _ in range(6)]
    assert {*chain.from_iterable(runs)} == started
    # One that waited for a core for long has lost jobs to the other.
    assert any(first == again for first, again in pairwise(runs))

    uneven = [[1], *([0] for _ in range(3))] * 4  # those of every other job take long
    slow = run_jobs(_process, uneven, workers=2)
    assert len({*slow[::4]}) == 2


def _process(job: list[int]) -> int:
    sleep(0.2 if job[0] else 0.02)
    return os.getpid()


def test_other_code_gets_other_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Or a policy that somebody has just changed would run as it was before."""
    before = processes(1)
    package = tmp_path / "fdkvc"
    package.mkdir()
    monkeypatch.setattr(workers, "__file__", str(package / "workers.py"))
    (package / "policy.py").write_text("gamma = 0.88")
    changed = processes(1)
    os.utime(package / "policy.py", ns=(1, 1))

    assert not before & changed
    assert not changed & processes(1)


@pytest.mark.long
def test_a_worker_that_dies_costs_no_result() -> None:
    killed: list[int] = []

    def kill(_: Progress) -> None:
        if not killed:
            killed.append(min(processes()))
            os.kill(killed[0], signal.SIGKILL)

    assert files(workers=2, chunk=2, on_progress=kill) == files(workers=1)
    assert killed
    assert killed[0] not in processes()


def _killed_elsewhere(here: int, job: list[int]) -> int:
    if os.getpid() != here:
        os.kill(os.getpid(), signal.SIGKILL)
    return sum(job)


@pytest.mark.long
def test_a_worker_that_is_killed_is_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    run = partial(_killed_elsewhere, os.getpid())

    assert run_jobs(run, [[1, 2], [3]], workers=2) == [3, 3]
    assert caplog.messages == 2 * [
        "A worker failed or was killed: its part of the run was run again here, with the same "
        "numbers."
    ]


def test_a_function_that_fails_says_what_failed_and_spares_the_next() -> None:
    submit, _ = workers.shared_workers(2)
    failing = submit(int, "many")

    with pytest.raises(RuntimeError, match="ValueError: invalid literal for int"):
        failing.result()
    assert submit(int, "3").result() == 3


def test_what_a_function_prints_is_not_taken_for_its_result(
    capfd: pytest.CaptureFixture[str],
) -> None:
    # A worker that starts while standard error is captured here.
    assert workers._Worker().call(print, ("told",)) is None
    assert capfd.readouterr() == ("", "told\n")


def test_a_process_does_not_wait_for_calls_that_threads_of_it_make() -> None:
    """Such as a server that is told to stop while a run goes on."""
    code = (
        "from time import sleep; from fdkvc.runs.workers import DaemonThreads;"
        "DaemonThreads(1).submit(sleep, 300)"
    )
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=60)


@pytest.mark.parametrize(
    ("told", "share"),
    [
        ({"cpu.max": "150000 100000"}, 1.5),
        ({"cpu.max": "max 100000"}, sys.maxsize),
        ({"cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000"}, 0.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, sys.maxsize),
        ({}, sys.maxsize),
    ],
)
def test_a_containers_share_of_the_cores_is_read(
    told: dict[str, str], share: float, tmp_path: Path
) -> None:
    for name, text in told.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")

    assert workers._quota(tmp_path) == share
