"""Measure the paper's run for the app.

python -m benchmarks.research.ship
"""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import numpy as np

import fdkvc
from fdkvc.paper.benchmark import Results, Values
from fdkvc.paper.shipped import (
    BENCHMARK,
    FOLDER,
    HEAD,
    NUMBERS,
    PROBE,
    STUDY,
    ablation_name,
)
from fdkvc.paper.study import Study, run_study
from fdkvc.runs.write import write_files


def main() -> None:
    """Run it all and write the files."""
    study = run_study(BENCHMARK)
    write_files(FOLDER, packed(study, datetime.now(UTC).date().isoformat()))
    print(f"Written to {FOLDER}")


def packed(study: Study, made: str) -> dict[str, bytes]:
    """Return the paper's run as files.

    The study is complete, of `BENCHMARK`; `made` is the date.
    """
    if not study.probes:
        raise ValueError("the study has no probes, so it is not the paper's, or not complete")
    parts = {STUDY: study.results}
    parts |= {ablation_name(parameter): results for parameter, results in study.sweeps.items()}
    numbers = {name: row for part, results in parts.items() for name, row in _rows(part, results)}
    numbers |= {f"{PROBE}|{name}": values for name, values in study.probes.items()}
    head = {
        "version": fdkvc.__version__,
        "made": made,
        "seconds": {part: results.seconds for part, results in parts.items()},
        "latencies": [
            {"policy": policy, "milliseconds": milliseconds}
            for policy, milliseconds in study.latencies.items()
        ],
        "memories": {name: asdict(memory) for name, memory in study.memories.items()},
    }
    text = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return {NUMBERS: _compressed(numbers), HEAD: text.encode()}


def _compressed(numbers: Mapping[str, Values]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **numbers)
    return file.getvalue()


def _rows(part: str, results: Results) -> Iterator[tuple[str, Values]]:
    for scenario, by_policy in results.measured.items():
        for policy, measured in by_policy.items():
            for kind in ("values", "series"):
                for name, values in getattr(measured, kind).items():
                    yield "|".join((part, scenario, policy, kind, name)), values


if __name__ == "__main__":
    main()
