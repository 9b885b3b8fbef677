"""A run again from its ``run.json``: read with care, and compared with what it was."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fdkvc.benchmark import Benchmark
from fdkvc.dialogs import Scenario, World
from fdkvc.export import NUMBERS, digest
from fdkvc.json_input import an_object, part
from fdkvc.policies import policy_named
from fdkvc.sweep import Sweep, check_sweepable
from fdkvc.tables import check_baseline

MOST_BYTES = 1_000_000
"""A run.json is smaller than this by far."""

_part = partial(part, place="the file is not a run.json")


@dataclass(frozen=True)
class Record:
    """What a ``run.json`` says.

    Attributes
    ----------
    benchmark : Benchmark
        What ran.
    versions : mapping of str to str
        Of the packages and of the code that ran.
    digests : mapping of file name to str
        SHA-256 of the files that the same run gives again.
    baseline : str
        The policy that the paired differences are from.
    sweep : Sweep, optional
        If it was one.
    """

    benchmark: Benchmark
    versions: Mapping[str, str]
    digests: Mapping[str, str]
    baseline: str
    sweep: Sweep | None = None

    @property
    def needs_study(self) -> bool:
        """Whether it knows of files that a benchmark alone does not give again."""
        return self.sweep is None and not set(self.digests) <= set(NUMBERS)


def read_run(content: bytes | str) -> Record:
    """Read a ``run.json``.

    Parameters
    ----------
    content : bytes or str

    Raises
    ------
    ValueError
        In a sentence that says what is wrong with it, and where.
    """
    if len(content) > MOST_BYTES:
        raise ValueError(
            f"the file has {len(content):,} bytes, but a run.json has at most {MOST_BYTES:,}"
        )
    try:
        run = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the file is not a run.json: it is no JSON ({error})") from None
    if not isinstance(run, dict):
        raise ValueError("the file is not a run.json: it holds no object")
    parameters = _part(run, "parameters", dict)
    policies = [
        _checked(
            lambda key, **values: policy_named(key, **values),
            f"policy {number}",
            an_object(policy, f"the file is not a run.json: policy {number}"),
        )
        for number, policy in enumerate(_part(parameters, "policies", list))
    ]
    scenarios = [
        _scenario(an_object(scenario, f"the file is not a run.json: scenario {number}"), number)
        for number, scenario in enumerate(_part(parameters, "scenarios", list))
    ]
    world = _checked(World, "world", _part(parameters, "world", dict))
    benchmark = Benchmark(
        scenarios=tuple(scenarios),
        policies=tuple(policies),
        dialogs=_part(parameters, "dialogs", int),
        seed=_part(run, "seed", int),
        budget=_part(parameters, "budget", int),
        world=world,
        metrics=tuple(str(key) for key in _part(parameters, "metrics", list)),
    )
    if not benchmark.metrics:
        raise ValueError("the file is not a run.json: it names no metrics")
    baseline = _part(parameters, "baseline", str)
    check_baseline(baseline, benchmark.policies)
    sweep = _sweep(benchmark, parameters)
    return Record(
        benchmark if sweep is None else sweep.benchmark,
        {str(name): str(text) for name, text in _part(run, "versions", dict).items()},
        {str(name): str(text) for name, text in run.get("digests", {}).items()}
        if isinstance(run.get("digests", {}), dict)
        else {},
        baseline,
        sweep,
    )


def _sweep(benchmark: Benchmark, parameters: dict[str, Any]) -> Sweep | None:
    """Read what was swept; None if nothing was."""
    if "sweep" not in parameters:
        return None
    swept = _part(parameters, "sweep", dict)
    policy, axes = _part(swept, "policy", str), _part(swept, "axes", dict)
    if len(benchmark.scenarios) != 1:
        raise ValueError("the file is not right at sweep: it needs one scenario")
    for name, values in axes.items():
        check_sweepable(policy, name)
        if not isinstance(values, list) or not all(isinstance(x, int | float) for x in values):
            raise ValueError(f"the file is not right at sweep: {name} has no list of numbers")
    if math.prod(map(len, axes.values())) > len(benchmark.policies):
        raise ValueError("the file is not right at sweep: it has more settings than policies")
    return Sweep(
        policy=policy,
        axes=tuple((name, tuple(values)) for name, values in axes.items()),
        scenario=benchmark.scenarios[0],
        dialogs=benchmark.dialogs,
        seed=benchmark.seed,
        budget=benchmark.budget,
        metrics=benchmark.metrics,
    )


def differing(record: Record, files: Mapping[str, str]) -> list[str]:
    """Return the names of files that are not what they were, of those that the record knows."""
    return [
        name
        for name, known in record.digests.items()
        if name in files and digest(files[name]) != known
    ]


def compared(record: Record, files: Mapping[str, str]) -> list[str]:
    """Return the names of files that a record and a run have in common."""
    return [name for name in record.digests if name in files]


def _checked(make: Any, place: str, values: Mapping[str, Any]) -> Any:
    """Make something of the file's values, and say where they are not right."""
    try:
        return make(**values)
    except TypeError:
        known = ", ".join(values) or "nothing"
        raise ValueError(f"the file is not a run.json: {place} has the parts {known}") from None
    except ValueError as error:
        raise ValueError(f"the file is not right at {place}: {error}") from None


def _scenario(values: dict[str, Any], number: int) -> Scenario:
    place = f"scenario {number}"
    if not all(isinstance(values.get(name), str) for name in ("key", "label", "schedule")):
        raise ValueError(f"the file is not right at {place}: it needs key, label and schedule")
    blend = values.get("blend")
    if blend is not None and not isinstance(blend, list):
        raise ValueError(f"the file is not right at {place}: its blend is not a list")
    made = {**values, "blend": None if blend is None else tuple(blend)}
    scenario: Scenario = _checked(Scenario, place, made)
    return scenario
