"""What is measured and pictured of the running project; run with ``python -m benchmarks.NAME``."""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter

from fdkvc.runs.workers import cores, shared_workers

ROOT = Path(__file__).parents[1]


def options(description: str | None, *files: str, **numbers: int | None) -> argparse.Namespace:
    """Read the options of a script: paths by position, and whole numbers by name."""
    parser = argparse.ArgumentParser(description=description)
    for name in files:
        parser.add_argument(name, type=Path)
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    return parser.parse_args()


def medians(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each way; they alternate, and a first round does not count."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            began = clock()
            call()
            times[name].append(clock() - began)
    return {name: statistics.median(seconds[1:]) for name, seconds in times.items()}


def run_alone(code: str) -> str:
    """Run Python code in a new process, whose memory nothing else has used; return its output."""
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return process.stdout


def memory(name: str, process: int | str = "self") -> int:
    """Return a process's memory in bytes by Linux's name: VmRSS is resident, VmHWM its peak."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.partition(f"{name}:")[2].split()[0]) * 1024


def own_peak() -> tuple[int, float]:
    """Return the process id and the peak memory in MB; `getrusage` would count the parent's."""
    return os.getpid(), memory("VmHWM") / 2**20


def peak_with_workers() -> float:
    """Return the sum of the peaks of this process and its workers in MB, as if all came at once."""
    of_workers = [submit(own_peak) for submit in shared_workers(cores())]
    peaks: dict[int, float] = dict([own_peak(), *(future.result() for future in of_workers)])
    return sum(peaks.values())
