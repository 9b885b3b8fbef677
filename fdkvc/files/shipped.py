"""A shipped run with the paper's settings.

`python -m benchmarks.research.ship` measures it; a test repeats some of its dialogs.
"""

import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

import fdkvc
from fdkvc.experiments.benchmark import Benchmark, Latency, PolicyScores, Results, Values
from fdkvc.experiments.study import Probes, Study, ablation
from fdkvc.experiments.sweep import Sweep
from fdkvc.experiments.workers import processor
from fdkvc.paper.tables import ABLATION_DIALOGS, ABLATIONS, DIALOGS, published_sweep
from fdkvc.policies import read_policy
from fdkvc.run.metrics import CacheBytes

FOLDER = Path(__file__).parent / "papers_run"
NUMBERS, HEAD = "numbers.npz", "head.json"

BENCHMARK = Benchmark(dialogs=DIALOGS, seed=0)
"""The paper's benchmark."""

SWEEPS = tuple(
    Sweep(axes=((parameter, published_sweep(parameter)),), dialogs=ABLATION_DIALOGS, seed=0)
    for parameter in ABLATIONS
)
"""The paper's sweeps, with all policies."""


@dataclass(frozen=True, eq=False)
class PapersRun:
    """The shipped run."""

    study: Study
    """Of `BENCHMARK`."""
    sweeps: Mapping[Sweep, Results]
    """Of `SWEEPS`, with the policies of that version."""
    version: str
    made: str
    """The project's version, and the date, as 2026-01-31."""
    processor: Mapping[str, str]


@cache
def papers_run() -> PapersRun:
    """Return the shipped run, which is read once."""
    return unpacked({name: (FOLDER / name).read_bytes() for name in (NUMBERS, HEAD)})


def packed(study: Study, sweeps: Mapping[Sweep, Results], made: str) -> dict[str, bytes]:
    """Return the paper's run as files.

    Study and sweeps are complete, of `BENCHMARK` and `SWEEPS`; `made` is the date.
    """
    if study.probes is None:
        raise ValueError("the study has no probes, so it is not the paper's, or not complete")
    parts = {_STUDY: study.results}
    parts |= {_ablation(parameter): results for parameter, results in study.sweeps.items()}
    parts |= {_sweep(sweep): results for sweep, results in sweeps.items()}
    numbers = {name: row for part, each in parts.items() for name, row in _rows(part, each)}
    numbers |= {f"{_PROBE}|{name}": getattr(study.probes, name) for name in _PROBES}
    head = {
        "version": fdkvc.__version__,
        "made": made,
        "processor": processor(),
        "seconds": {part: results.seconds for part, results in parts.items()}
        | {_PROBE: study.probes.seconds},
        "latencies": [asdict(each) for each in study.latencies],
        "memories": {name: asdict(each) for name, each in study.memories.items()},
    }
    text = json.dumps(head, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return {NUMBERS: _compressed(numbers), HEAD: text.encode()}


def _compressed(numbers: Mapping[str, Values]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **numbers)
    return file.getvalue()


def unpacked(files: Mapping[str, bytes]) -> PapersRun:
    """Return the paper's run from its files."""
    head = json.loads(files[HEAD])
    seconds, rows = head["seconds"], _read(files[NUMBERS])

    def results(part: str, benchmark: Benchmark) -> Results:
        return _results(part, rows, benchmark, seconds[part])

    study = Study(
        results(_STUDY, BENCHMARK),
        {key: results(_ablation(key), ablation(key, BENCHMARK)) for key in ABLATIONS},
        tuple(Latency(**each) for each in head["latencies"]),
        {name: CacheBytes(**each) for name, each in head["memories"].items()},
        Probes(seconds[_PROBE], **{name: rows[_PROBE, name] for name in _PROBES}),
    )
    swept = {sweep: results(_sweep(sweep), sweep.benchmark) for sweep in SWEEPS}
    return PapersRun(study, swept, head["version"], head["made"], head["processor"])


def _read(content: bytes) -> dict[tuple[str, ...], Values]:
    with np.load(io.BytesIO(content), allow_pickle=False) as numbers:
        return {tuple(name.split("|")): numbers[name] for name in numbers.files}


# ------------------------------------------------------------------------------- names of arrays

_STUDY, _PROBE = "study", "probe"
_PROBES = ("highest_score", "same_entries")


def _ablation(parameter: str) -> str:
    return f"ablation of {parameter}"


def _sweep(sweep: Sweep) -> str:
    return f"sweep of {sweep.parameters[0]}"


def _rows(part: str, results: Results) -> Iterator[tuple[str, Values]]:
    for scenario, by_policy in results.measured.items():
        for policy, measured in by_policy.items():
            for kind in ("values", "series"):
                for name, values in getattr(measured, kind).items():
                    yield "|".join((part, scenario, policy, kind, name)), values


def _results(
    part: str, rows: Mapping[tuple[str, ...], Values], benchmark: Benchmark, seconds: float
) -> Results:
    measured: dict[str, dict[str, PolicyScores]] = {}
    for place, values in rows.items():
        if place[0] == part and len(place) == 5:
            _, scenario, policy, kind, name = place
            by_policy = measured.setdefault(scenario, {})
            scores = by_policy.setdefault(policy, PolicyScores({}, {}))
            getattr(scores, kind)[name] = values
    names = next(iter(measured.values()))
    return Results(replace(benchmark, policies=tuple(map(read_policy, names))), measured, seconds)
