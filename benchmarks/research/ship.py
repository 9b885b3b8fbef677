"""Measure the paper's run and the overview of all policies for the app.

python -m benchmarks.research.ship
"""

from datetime import UTC, datetime

from fdkvc.experiments.benchmark import run_benchmark
from fdkvc.experiments.study import run_study
from fdkvc.files.shipped import BENCHMARK, FOLDER, OVERVIEW, SWEEPS, packed, packed_overview
from fdkvc.files.write import write_files


def main() -> None:
    """Run it all and write the files."""
    study = run_study(BENCHMARK)
    sweeps = {sweep: run_benchmark(sweep.benchmark) for sweep in SWEEPS}
    files = packed(study, sweeps, datetime.now(UTC).date().isoformat())
    write_files(FOLDER, files | packed_overview(run_benchmark(OVERVIEW)))
    print(f"Written to {FOLDER}")


if __name__ == "__main__":
    main()
