"""A shipped run with the paper's settings.

`python -m benchmarks.research.ship` measures it; a test repeats some of its dialogs.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from fdkvc.engine.metrics import CacheBytes
from fdkvc.paper.benchmark import Benchmark, PolicyScores, Results, Values
from fdkvc.paper.published import ABLATIONS, DIALOGS
from fdkvc.paper.study import Study, ablation
from fdkvc.policies import read_policy

FOLDER = Path(__file__).parent / "papers_run"
NUMBERS = "numbers.npz"
HEAD = "head.json"

BENCHMARK = Benchmark(dialogs=DIALOGS, seed=0)
"""The paper's benchmark."""


@dataclass(frozen=True, eq=False)
class PapersRun:
    """The shipped run."""

    study: Study
    """Of `BENCHMARK`."""
    version: str
    """The project's version that measured it."""
    date: str
    """The date, as 2026-01-31."""


@cache
def papers_run() -> PapersRun:
    """Return the shipped run, which is read once."""
    return unpacked({name: (FOLDER / name).read_bytes() for name in (NUMBERS, HEAD)})


def unpacked(files: Mapping[str, bytes]) -> PapersRun:
    """Return the paper's run from its files."""
    head = json.loads(files[HEAD])
    seconds = head["seconds"]
    with np.load(io.BytesIO(files[NUMBERS]), allow_pickle=False) as numbers:
        rows = {tuple(name.split("|")): numbers[name] for name in numbers.files}

    def results(part: str, benchmark: Benchmark) -> Results:
        return _results(part, rows, benchmark, seconds[part])

    study = Study(
        results(STUDY, BENCHMARK),
        {key: results(ablation_name(key), ablation(key, BENCHMARK)) for key in ABLATIONS},
        {latency["policy"]: latency["milliseconds"] for latency in head["latencies"]},
        {name: CacheBytes(**size) for name, size in head["memories"].items()},
        {place[1]: values for place, values in rows.items() if place[0] == PROBE},
    )
    return PapersRun(study, head["version"], head["made"])


# ------------------------------------------------------------------------------- names of arrays

STUDY = "study"
PROBE = "probe"


def ablation_name(parameter: str) -> str:
    """Return the first part of the names of an ablation's arrays."""
    return f"ablation of {parameter}"


def _results(
    part: str, rows: Mapping[tuple[str, ...], Values], benchmark: Benchmark, seconds: float
) -> Results:
    # An array's name: part, scenario, policy, field of `PolicyScores`, metric.
    measured: dict[str, dict[str, PolicyScores]] = {}
    for place, values in rows.items():
        if place[0] == part and len(place) == 5:  # probes have shorter names
            _, scenario, policy, kind, name = place
            by_policy = measured.setdefault(scenario, {})
            scores = by_policy.setdefault(policy, PolicyScores({}, {}))
            getattr(scores, kind)[name] = values
    names = next(iter(measured.values()))  # every scenario has the same policies
    return Results(
        replace(benchmark, policies=tuple(map(read_policy, names))), measured, seconds
    )
