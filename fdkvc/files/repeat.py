"""A run again from its ``run.json``: read with care, and compared with what it was."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from io import StringIO
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from fdkvc.attention import TOLERANCE
from fdkvc.corpora.json_input import an_object, part
from fdkvc.experiments.answers import Answers
from fdkvc.experiments.benchmark import Benchmark, check_baseline
from fdkvc.experiments.sweep import Sweep, check_sweepable
from fdkvc.experiments.tuning import FRONT, GAINS, Tuned, Tuning
from fdkvc.experiments.workers import processor
from fdkvc.files.export import NUMBERS, digest, versions
from fdkvc.limits import MAX_RUN_JSON_BYTES
from fdkvc.parameters import read_number
from fdkvc.policies import Policy, read_policy, recorded_policy
from fdkvc.synthetic.scenarios import Scenario, World
from fdkvc.words import count, listed

QUOTIENTS = {"t": 1e-3, "p": 1e-3, "p_holm": 1e-3, "effect_size": 1e-3}
"""How far these may differ: they divide by a spread, which may be hardly more than rounding."""

WORDS = ("words",)
"""Columns that only say what the numbers beside them say."""

NOTHING_COMPARED = "nothing was compared, because the file keeps no digests of the run's numbers"

_part = partial(part, place="the file is not a run.json")


@dataclass(frozen=True)
class RunInfo:
    """What a ``run.json`` says of any run.

    Attributes
    ----------
    versions : mapping of str to str
        Of the packages and of the code that ran.
    digests : mapping of file name to str
        SHA-256 of the files that the same run gives again.
    numbers : mapping of file name to text
        Those of the files that are known whole, and not only by their digest.
    processor : mapping of str to str
        What it ran on, as `workers.processor` says it; empty in a file that does not tell.
    """

    versions: Mapping[str, str]
    digests: Mapping[str, str]
    numbers: Mapping[str, str] = field(default_factory=dict)
    processor: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Record(RunInfo):
    """What the ``run.json`` of a benchmark or a sweep says.

    Attributes
    ----------
    benchmark : Benchmark
        What ran.
    baseline : str
        The policy that the paired differences are from.
    sweep : Sweep, optional
    tuning : Tuning, optional
        If it was one.
    finished : mapping of scenario key to int
        The dialogs that were finished, if it was cut short.
    """

    benchmark: Benchmark
    baseline: str
    sweep: Sweep | None = None
    tuning: Tuning | None = None
    finished: Mapping[str, int] = field(default_factory=dict)

    @property
    def needs_study(self) -> bool:
        """Whether it knows of files that a benchmark alone does not give again."""
        return self.sweep is None and self.tuning is None and not set(self.digests) <= set(NUMBERS)


@dataclass(frozen=True, kw_only=True)
class AnswersRecord(RunInfo):
    """What the ``run.json`` of answers says.

    Attributes
    ----------
    answers : Answers
        What ran.
    model, file : str
        Digests of the model and of the file of dialogs.
    baseline : str
        The policy or control that the paired differences are from.
    """

    answers: Answers
    model: str
    file: str
    baseline: str


def read_run(content: bytes | str) -> Record:
    """Read the ``run.json`` of a benchmark or a sweep.

    Raises
    ------
    ValueError
        In a sentence that says what is wrong with it, and where.
    """
    record = read_any_run(content)
    if isinstance(record, AnswersRecord):
        raise ValueError(
            "the file is of answers of a language model: run `python -m fdkvc repeat run.json`"
        )
    return record


def read_any_run(content: bytes | str) -> Record | AnswersRecord:
    """Read the ``run.json`` of any run.

    Raises
    ------
    ValueError
        In a sentence that says what is wrong with it, and where.
    """
    if len(content) > MAX_RUN_JSON_BYTES:
        raise ValueError(
            f"the file has {len(content):,} bytes, but a run.json has at most "
            f"{MAX_RUN_JSON_BYTES:,}"
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
            recorded_policy,
            f"policy {number}",
            an_object(policy, f"the file is not a run.json: policy {number}"),
        )
        for number, policy in enumerate(_part(parameters, "policies", list))
    ]
    versions = {str(name): str(text) for name, text in _part(run, "versions", dict).items()}
    digests = _texts(run, "digests")
    ran = (versions, digests, _numbers(run, digests), _texts(run, "processor"))
    if "model" in parameters:
        return _answers(RunInfo(*ran), run, parameters, policies)
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
        *ran,
        benchmark=benchmark if sweep is None else sweep.benchmark,
        baseline=baseline,
        sweep=sweep,
        tuning=_tuning(benchmark, parameters),
        finished=_finished(benchmark, parameters),
    )


def found_by(record: Record) -> Tuned:
    """Return what a search came to, from the tables that its ``run.json`` keeps.

    Its trials are empty where they were too many to be kept.

    Raises
    ------
    ValueError
        In a sentence, if it is of no search, or its tables are not those of one.
    """
    tuning = record.tuning
    if tuning is None:
        raise ValueError("the file is not of a search")
    front, gains = _kept(record, "front.csv", FRONT), _kept(record, "gains.csv", GAINS)
    settings, start = list(dict.fromkeys(front["setting"])), tuning.policy.name
    searched = set(tuning.searched)
    for table, name, known in (
        (front, "front.csv", settings),
        (gains, "gains.csv", [each for each in settings if each != start]),
    ):
        numbers = table.drop(columns=["setting", "goal", "searched"], errors="ignore")
        rows = sorted(zip(table["setting"], table["goal"], strict=True))
        if (
            rows != sorted(product(known, tuning.metrics))
            or not all(map(is_numeric_dtype, numbers.dtypes))
            or not np.isfinite(numbers.to_numpy(float)).all()
        ):
            raise ValueError(f"the file is not right at numbers: {name} is not of this search")
    if start not in settings or any(
        read_policy(name).key != tuning.policy.key
        or not searched <= set(read_policy(name).settings)
        for name in settings
    ):
        raise ValueError("the file is not right at numbers: front.csv is of another policy")
    columns = ("trial", "setting", *tuning.metrics, "front")
    kept = "trials.csv" in record.numbers
    trials = _kept(record, "trials.csv", columns) if kept else pd.DataFrame(columns=list(columns))
    return Tuned(trials, front, gains)


NO_FRACTIONS = {"trial", "setting", "goal", "n", "front"}
"""Of the columns of a search's tables, those that hold words, counts or whether."""


def _kept(record: Record, name: str, columns: Sequence[str]) -> pd.DataFrame:
    """Read a table that a ``run.json`` keeps whole."""
    try:
        table = pd.read_csv(
            StringIO(record.numbers.get(name, "")),
            dtype={"setting": str},
            converters=dict.fromkeys(set(columns) - NO_FRACTIONS, _number),
        )
    except ValueError:  # pandas' own mistakes are of this kind
        table = pd.DataFrame()
    if list(table.columns) != list(columns):
        raise ValueError(f"the file is not right at numbers: it does not keep {name}")
    return table.astype({"setting": str} | ({"goal": str} if "goal" in columns else {}))


def _number(text: str) -> float:
    """Read a number to the last bit, which not every pandas does by itself; NaN if it is none."""
    number = read_number(text)
    return math.nan if isinstance(number, str) else number


def _answers(
    ran: RunInfo, run: dict[str, Any], parameters: dict[str, Any], policies: list[Policy]
) -> AnswersRecord:
    every = parameters.get("every")
    if every is not None and type(every) is not int:
        raise ValueError("the file is not right at every: it is no whole number")
    budgets = _part(parameters, "budgets", list)
    if not all(type(budget) is int for budget in budgets):
        raise ValueError("the file is not right at budgets: it has no list of whole numbers")
    cut_text = parameters.get("cut_text")
    if not isinstance(cut_text, bool):
        raise ValueError("the file is not right at cut_text: it is neither true nor false")
    answers = _checked(
        Answers,
        "parameters",
        {
            "policies": tuple(policies),
            "budgets": tuple(budgets),
            "cut_text": cut_text,
            "decides": _part(parameters, "decides", str),
            "every": every,
        },
    )
    baseline = _part(parameters, "baseline", str)
    if baseline not in answers.names:
        raise ValueError(f"the file is not right at baseline: {baseline!r} is none of its policies")
    return AnswersRecord(
        ran.versions,
        ran.digests,
        ran.numbers,
        ran.processor,
        answers=answers,
        model=_part(_part(parameters, "model", dict), "digest", str),
        file=_part(parameters, "file", str),
        baseline=baseline,
    )


def _finished(benchmark: Benchmark, parameters: dict[str, Any]) -> dict[str, int]:
    """Read how many dialogs of each scenario were finished; nothing if all were."""
    if "finished" not in parameters:
        return {}
    known = _part(parameters, "finished", dict)
    return {each.key: _part(known, each.key, int) for each in benchmark.scenarios}


def _texts(run: dict[str, Any], name: str) -> dict[str, str]:
    """Read names and texts; older files have none."""
    texts = run.get(name, {})
    return {str(key): str(text) for key, text in texts.items()} if isinstance(texts, dict) else {}


def _numbers(run: dict[str, Any], digests: Mapping[str, str]) -> dict[str, str]:
    """Read the files that are kept whole; older run.json keep none."""
    kept = run.get("numbers", {})
    if not isinstance(kept, dict) or not all(isinstance(lines, list) for lines in kept.values()):
        raise ValueError("the file is not right at numbers: it needs the lines of each file")
    texts = {name: "".join(f"{line}\n" for line in lines) for name, lines in kept.items()}
    for name, text in texts.items():
        if digest(text) != digests.get(name):
            raise ValueError(f"the file is not right at numbers: {name} does not fit its digest")
    return texts


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


def _tuning(benchmark: Benchmark, parameters: dict[str, Any]) -> Tuning | None:
    """Read what was searched; None if nothing was."""
    if "tuning" not in parameters:
        return None
    searched = _part(parameters, "tuning", dict)
    if len(benchmark.policies) != 1:
        raise ValueError("the file is not right at tuning: it needs one policy")
    return Tuning(
        policy=benchmark.policies[0],
        names=tuple(str(name) for name in _part(searched, "names", list)),
        metrics=benchmark.metrics,
        scenarios=tuple(scenario.key for scenario in benchmark.scenarios),
        trials=_part(searched, "trials", int),
        dialogs=benchmark.dialogs,
        fresh=_part(searched, "fresh", int),
        seed=benchmark.seed,
        budget=benchmark.budget,
    )


# ------------------------------------------------------------------------------- compared


@dataclass(frozen=True)
class Comparison:
    """How the files of a repeated run stand to those that a record knows.

    Attributes
    ----------
    same : tuple of str
        Files that are the same byte for byte.
    close : mapping of file name to float
        Files whose numbers are the same within the tolerance, and their largest difference.
    apart : mapping of file name to float
        Files whose numbers are not, and their largest difference; infinity where rows differ.
    unknown : tuple of str
        Files that are not the same byte for byte, and of which the record has only a digest.
    """

    same: tuple[str, ...]
    close: Mapping[str, float]
    apart: Mapping[str, float]
    unknown: tuple[str, ...]

    @property
    def anything(self) -> bool:
        """Whether anything was compared."""
        return bool(self.same or self.close or self.apart or self.unknown)

    @property
    def repeated(self) -> bool:
        """Whether the numbers are the same, as far as they could be compared."""
        return bool(self.same or self.close) and not self.apart


AnyRan = TypeVar("AnyRan", bound=RunInfo)


def with_files(record: AnyRan, folder: Path, names: Mapping[str, str]) -> AnyRan:
    """Add the files of these names that lie in a folder as the run of the record wrote them."""
    found = {}
    for name in set(names) & set(record.digests) - set(record.numbers):
        path = folder / name
        if (
            path.is_file()
            and digest(text := path.read_text("utf-8", "replace")) == (record.digests[name])
        ):
            found[name] = text
    return replace(record, numbers={**record.numbers, **found})


def compare(record: RunInfo, files: Mapping[str, str]) -> Comparison:
    """Compare the files of a run with those that the record knows."""
    same, unknown = [], []
    close: dict[str, float] = {}
    apart: dict[str, float] = {}
    for name, known in record.digests.items():
        if name not in files:
            continue
        if digest(files[name]) == known:
            same.append(name)
        elif name not in record.numbers:
            unknown.append(name)
        else:
            largest, within = difference(record.numbers[name], files[name])
            (close if within else apart)[name] = largest
    return Comparison(tuple(same), close, apart, tuple(unknown))


def difference(one: str, other: str) -> tuple[float, bool]:
    r"""Return the largest difference of two CSV texts, and whether all are within the tolerance.

    A difference is a share of the number where that is above 1. It is infinite where rows, words
    or missing numbers differ. `QUOTIENTS` have a tolerance of their own and are not told.

    Examples
    --------
    >>> difference("mean,t\n0.5,9\n", "mean,t\n0.50000001,9.001\n")
    (1e-08, True)
    >>> difference("mean\n0.5\n", "mean\n0.75\n")
    (0.25, False)
    """
    rows, others = (list(csv.reader(text.splitlines())) for text in (one, other))
    if [len(row) for row in rows] != [len(row) for row in others] or rows[:1] != others[:1]:
        return math.inf, False
    largest, within = 0.0, True
    for row, again in zip(rows[1:], others[1:], strict=True):
        for name, cell, twin in zip(rows[0], row, again, strict=False):
            if name in WORDS:
                continue
            moved = _moved(cell, twin)
            within = within and moved <= QUOTIENTS.get(name, TOLERANCE)
            if name not in QUOTIENTS:
                largest = max(largest, moved)
    return float(f"{largest:.2g}"), within


def _moved(cell: str, twin: str) -> float:
    """Return by how much two cells differ."""
    if cell == twin:
        return 0.0
    try:
        before, now = float(cell), float(twin)
    except ValueError:
        return math.inf
    moved = abs(now - before) / max(1.0, abs(before))
    return math.inf if math.isnan(moved) else moved


def comparison_sentence(record: RunInfo, comparison: Comparison) -> str:
    """Say in a sentence how a repeated run stands to the record."""
    close, apart = comparison.close, comparison.apart
    same, unknown = comparison.same, comparison.unknown
    if not comparison.anything:
        return NOTHING_COMPARED
    parts = []
    if apart:
        most = max(apart.values())
        by = f"by up to {most:.0e}" if math.isfinite(most) else "in more than their size"
        parts.append(f"the numbers are not the same in {', '.join(apart)}, where they differ {by}")
    if close:
        most = max(close.values())
        parts.append(f"the numbers are the same to {most:.0e} in {', '.join(close)}")
    if same:
        parts.append(f"the numbers are the same, byte for byte, in {', '.join(same)}")
    if unknown:
        parts.append(
            f"not the same byte for byte in {', '.join(unknown)}, whose numbers the file leaves out"
        )
    if isinstance(record, Record) and record.finished:
        low, high = min(record.finished.values()), max(record.finished.values())
        done = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        asked = count(record.benchmark.dialogs, "dialog")
        parts.append(f"the run that wrote it was cut short, after {done} of {asked} a scenario")
    if apart or close or unknown:
        parts.append(_circumstances(record))
    return "; ".join(parts)


def _circumstances(record: RunInfo) -> str:
    """Say what is not as it was when the record was written."""
    now = versions()
    changed = [
        {"source": "the code", "fdkvc-lab": "the version of the lab"}.get(name, name)
        for name, version in record.versions.items()
        if now.get(name, version) != version
    ]
    if record.processor and record.processor != processor():
        changed = ["the processor", *changed]
    words = f"{listed(changed)} {'differs' if len(changed) == 1 else 'differ'}" if changed else ""
    if not record.processor:
        unsaid = "the file does not say on which processor it ran"
        return f"{words}, and {unsaid}" if words else unsaid
    return words or "processor and versions are the same"


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
