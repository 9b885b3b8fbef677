"""Measure the paper's run anew, and put it where the app opens on it.

python -m benchmarks.ship
"""

from __future__ import annotations

from datetime import UTC, datetime

from fdkvc.files.shipped import BENCHMARK, FOLDER, SWEEPS, packed
from fdkvc.files.write import write_files
from fdkvc.measured.benchmark import run_benchmark
from fdkvc.measured.study import run_study


def main() -> None:
    """Run it all and write the files."""
    study = run_study(BENCHMARK)
    sweeps = {sweep: run_benchmark(sweep.benchmark) for sweep in SWEEPS}
    write_files(FOLDER, packed(study, sweeps, datetime.now(UTC).date().isoformat()))
    print(f"Written to {FOLDER}")


if __name__ == "__main__":
    main()
