"""Worker processes: used again, replaced when one dies or the code changes, and never in doubt."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from fdkvc.files.export import benchmark_files
from fdkvc.measured import workers
from fdkvc.measured.benchmark import Benchmark, Progress, run_benchmark

BENCHMARK = Benchmark(dialogs=30, seed=2)


def processes() -> set[int]:
    submit = workers.shared_workers(2)
    return {future.result() for future in [submit(os.getpid) for _ in range(20)]}


def files(**how: object) -> dict[str, str]:
    """Return the files of a run that do not depend on its time."""
    written = benchmark_files(run_benchmark(BENCHMARK, **how), [])  # type: ignore[arg-type]
    return {name: text for name, text in written.items() if name.endswith(".csv")}


def test_a_later_run_finds_the_workers_of_an_earlier_one() -> None:
    first, later = processes(), processes()

    assert len(first | later) <= 2
    assert os.getpid() not in first


def test_other_code_gets_other_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Or a policy that somebody has just changed would run as it was before."""
    before = processes()
    package = tmp_path / "fdkvc"
    package.mkdir()
    monkeypatch.setattr(workers, "__file__", str(package / "workers.py"))
    (package / "policy.py").write_text("gamma = 0.88")
    changed = processes()
    os.utime(package / "policy.py", ns=(1, 1))

    assert not before & changed
    assert not changed & processes()


def test_a_worker_that_dies_costs_no_result() -> None:
    killed: list[int] = []

    def kill(_: Progress) -> None:
        if not killed:
            killed.append(min(processes()))
            os.kill(killed[0], signal.SIGKILL)

    assert files(workers=2, chunk=2, on_progress=kill) == files(workers=1)
    assert killed
    assert killed[0] not in processes()
