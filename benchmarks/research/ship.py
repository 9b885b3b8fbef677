"""Measure the paper's run for the app.

python -m benchmarks.research.ship
"""

from datetime import UTC, datetime

from fdkvc.experiments.benchmark import run_benchmark
from fdkvc.experiments.study import run_study
from fdkvc.files.shipped import BENCHMARK, FOLDER, SWEEPS, packed
from fdkvc.files.write import write_files


def main() -> None:
    """Run it all and write the files."""
    study = run_study(BENCHMARK)
    sweeps = {sweep: run_benchmark(sweep.benchmark) for sweep in SWEEPS}
    write_files(FOLDER, packed(study, sweeps, datetime.now(UTC).date().isoformat()))
    print(f"Written to {FOLDER}")


if __name__ == "__main__":
    main()
