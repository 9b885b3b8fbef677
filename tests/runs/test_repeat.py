"""A run.json is read with care, and says whether the same run gives the same numbers."""

import dataclasses
import io
import json
import math
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.commands.kinds import KINDS, read_run
from fdkvc.commands.main import main
from fdkvc.conversations.replay import Replay
from fdkvc.core.json_input import read_bytes
from fdkvc.core.limits import MAX_RUN_JSON_BYTES
from fdkvc.models.answers import Answers
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.results import BenchmarkRun, StudyRun, SweepRun
from fdkvc.paper.study import Study
from fdkvc.paper.sweep import Sweep
from fdkvc.policies import baseline_of, policy_named, read_policy
from fdkvc.runs import repeat as repeat_module
from fdkvc.runs.export import csv_text
from fdkvc.runs.record import INFORMATIVE, Record, run_json
from fdkvc.runs.repeat import (
    MAX_GROWTH,
    ROWS,
    Comparison,
    column_differences,
    compare,
    comparison_sentence,
)
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from fdkvc.verdict.model_shape import ModelShape
from tests.refusals import any_json
from tests.studies import few_dialogs


@cache
def written(benchmark: Benchmark) -> str:
    baseline = baseline_of(benchmark.policies)
    return run_json("benchmark", benchmark, (), 1.0, baseline=baseline)


@pytest.mark.parametrize(
    "benchmark",
    [
        Benchmark(),
        Benchmark(
            scenarios=(custom_scenario("AABBC"),),
            policies=(policy_named("fd-kvc", gamma=0.7), policy_named("sink", sinks=2)),
            dialogs=7,
            seed=3,
            budget=12,
            world=World(noise=0.2),
            metrics=("retention",),
        ),
    ],
)
def test_what_was_written_is_read_again(benchmark: Benchmark) -> None:
    assert read_run(written(benchmark)).benchmark == benchmark
    assert read_run(written(benchmark).encode()).benchmark == benchmark


def saved(folder: Path, files: dict[str, str]) -> Record:
    """Write the files of a run into a folder, and return its record."""
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return read_run(files["run.json"])


def test_a_run_is_the_same_as_itself_and_another_kind_lacks_tables(tmp_path: Path) -> None:
    study = few_dialogs()
    files = StudyRun(study).files
    record = saved(tmp_path, files)
    assert len(files["run.json"]) < MAX_RUN_JSON_BYTES
    assert record.versions["fdkvc-lab"]
    assert record.kind == "study"
    assert set(record.files) == set(files) - {*StudyRun(study).timed, "run.json"}
    assert compare(record, files, tmp_path) == Comparison(0.0, ())

    few = compare(record, BenchmarkRun(Study(study.results)).files, tmp_path)
    missing = set(record.files) - {"summary.csv", "adaptation.csv", "paired.csv"}
    assert set(few.differences) == {f"{name}, which the run does not write" for name in missing}


def test_a_run_that_was_cut_short_says_what_was_finished(tmp_path: Path) -> None:
    whole = few_dialogs().results
    asked = dataclasses.replace(whole.benchmark, dialogs=500)
    part = dataclasses.replace(whole, benchmark=asked, measured={**whole.measured, "mixed": {}})
    record = saved(tmp_path, BenchmarkRun(Study(part), "fifo").files)

    finished_dialogs = whole.benchmark.dialogs
    finished = {name: 0 if name == "mixed" else finished_dialogs for name in whole.measured}
    assert (record.benchmark, record.finished) == (asked, finished)
    assert (record.parameters["dialogs"], record.parameters["finished"]) == (500, finished)
    files = BenchmarkRun(Study(whole), "fifo").files
    assert not read_run(files["run.json"]).finished
    words = comparison_sentence(record, compare(record, files, tmp_path))
    assert words.startswith("the run differs from its record in parameters.d")
    assert f"cancelled after 0 to {finished_dialogs} of 500 dialogs" in words


def test_differences_from_another_baseline_are_the_same_again(tmp_path: Path) -> None:
    results = few_dialogs().results
    record = saved(tmp_path, BenchmarkRun(Study(results), "fifo").files)
    assert record.kind == "benchmark"
    same = BenchmarkRun(Study(results), record.baseline).files
    assert not compare(record, same, tmp_path).differences
    parameter, table = compare(
        record, BenchmarkRun(Study(results), "h2o").files, tmp_path
    ).differences
    assert parameter == "parameters.baseline"
    assert table.startswith("paired.csv: ")


@pytest.mark.parametrize(
    ("change", "versions", "sentence"),
    [
        (0.0, {}, "the numbers are the same in summary.csv, adaptation.csv, paired.csv"),
        (3e-9, {}, "the numbers are the same to 3e-09 in summary.csv"),
        (0.01, {}, "in summary.csv: mean (by up to 1e-02); versions are the same"),
        (0.01, {"numpy": "1.0"}, "summary.csv: mean (by up to 1e-02); numpy differs"),
    ],
)
def test_rounding_is_the_same_and_what_differs_by_more_is_named(
    tmp_path: Path, change: float, versions: dict[str, str], sentence: str
) -> None:
    files = BenchmarkRun(Study(few_dialogs().results), "fifo").files
    record = dataclasses.replace(saved(tmp_path, files), versions=versions)
    table = pd.read_csv(io.StringIO(files["summary.csv"]))
    table["mean"] += change
    (tmp_path / "summary.csv").write_text(csv_text(table))

    comparison = compare(record, files, tmp_path)

    assert sentence in comparison_sentence(record, comparison)
    assert bool(comparison.differences) == (change == 0.01)


def test_what_is_divided_by_a_spread_has_a_tolerance_of_its_own(tmp_path: Path) -> None:
    files = BenchmarkRun(Study(few_dialogs().results), "fifo").files
    record = saved(tmp_path, files)
    table = pd.read_csv(io.StringIO(files["paired.csv"]))
    for factor, differences in ((1.0005, ()), (1.5, ("paired.csv: t (by up to 3e-01)",))):
        (tmp_path / "paired.csv").write_text(csv_text(table.assign(t=factor * table.t)))
        comparison = compare(record, files, tmp_path)
        assert comparison == Comparison(0.0, differences)


@pytest.mark.parametrize(
    ("recorded", "repeated", "differences"),
    [
        ("a,b\nx,1\n", "a,b\ny,1\n", {"a": math.inf, "b": 0}),
        ("a,b\nx,1\n", "a,b\nx,\n", {"a": 0, "b": math.inf}),
        ("a,b\nx,1\n", "a,b\nx,nan\n", {"a": 0, "b": math.inf}),
        ("a\ninf\n", "a\n1\n", {"a": math.inf}),
        ("a\nnan\n", "a\nnan\n", {"a": 0}),
        ("a\n0.5\n", "a\n0.50000001\n", {"a": pytest.approx(1e-8)}),
        ("t\n100\n", "t\n101\n", {"t": 0.01}),
        ("a,b\nx,1\n", "a,b\nx,1\nx,1\n", {ROWS: math.inf}),
        ("a\n1\n", "b\n1\n", {ROWS: math.inf}),
        ("a\n1,2,3\n1\n1,2,3,4\n", "a\n1\n", {ROWS: math.inf}),
        ("", "a\n1\n", {ROWS: math.inf}),
    ],
)
def test_other_rows_words_or_missing_numbers_are_no_rounding(
    recorded: str, repeated: str, differences: dict[str, float]
) -> None:
    assert column_differences(recorded, repeated) == differences


def test_no_more_is_read_beside_run_json_than_the_run_wrote_or_a_few_times_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = BenchmarkRun(Study(few_dialogs().results), "fifo").files
    names = ("summary.csv", "../../etc/other.csv", "b" * 300, "a\0b")
    record = dataclasses.replace(read_run(files["run.json"]), files=names)
    (tmp_path / "other.csv").write_text("1")
    (tmp_path / "summary.csv").write_text("1\n" * MAX_GROWTH * len(files["summary.csv"]))
    read: list[int] = []

    def counting(path: Path, size: int) -> bytes:
        content = read_bytes(path, size)
        read.append(len(content))
        return content

    monkeypatch.setattr(repeat_module, "read_bytes", counting)
    assert len(compare(record, files, tmp_path).differences) == len(names)
    assert read == [MAX_GROWTH * len(files["summary.csv"].encode()) + 1]
    (tmp_path / "summary.csv").unlink()
    os.mkfifo(tmp_path / "summary.csv")
    assert "not beside run.json" in compare(record, files, tmp_path).differences[0]


@pytest.mark.parametrize(
    "sweep",
    [
        Sweep(dialogs=2),
        Sweep("h2o", "window", (0.2, 0.5), SCENARIOS["shift"], 2, 3, 40, ("retention",)),
    ],
)
def test_a_sweep_is_read_again_and_gives_the_same_numbers(sweep: Sweep) -> None:
    files = SweepRun(sweep, run_benchmark(sweep.benchmark)).files
    record = read_run(files["run.json"])
    assert (record.settings, record.benchmark) == (sweep, sweep.benchmark)
    again = SweepRun(sweep, run_benchmark(record.benchmark, workers=1, chunk=1)).files
    assert {**again, "run.json": ""} == {**files, "run.json": ""}


def test_a_sweep_of_an_earlier_version_is_read() -> None:
    sweep = Sweep(values=(0.8, 0.9), dialogs=2)
    run = json.loads(run_json("sweep", sweep, ()))
    parameters = run["parameters"]
    parameters["axes"] = [[parameters.pop("parameter"), parameters.pop("values")]]
    assert read_run(json.dumps(run)).settings == sweep


SWEPT = run_json("sweep", Sweep(dialogs=2), ())


def changed(record: str = "", **parts: Any) -> str:
    run = json.loads(record or written(Benchmark()))
    for name, value in parts.items():
        (run if name in run else run["parameters"])[name] = value
    return json.dumps(run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "the file is not a run.json: it is not JSON"),
        (b"\xff\xfe\x00", "a run.json: it is not text in UTF-8"),
        ("[" * 100_000, "the file is not a run.json: it is not JSON"),
        ("[]", "a run.json: it has no parameters"),
        (" " * (MAX_RUN_JSON_BYTES + 1), "but a run.json has at most 1,000,000"),
        (changed(seed="0"), "at parameters.seed: it is not a whole number"),
        (changed(dialogs=True), "parameters.dialogs: it is not a whole number"),
        (changed(policies={}), "at parameters.policies: it is not a list"),
        (changed(policies=[1]), "parameters.policies[0]: it is not an object"),
        (changed(policies=[{"key": "lru"}]), "policies[0]: policy 'lru' is unknown"),
        (changed(policies=[{}]), "policies[0]: something is missing"),
        (changed(policies=[{"key": "fd-kvc", "gamma": "x"}]), "policies[0]: gamma is 'x'"),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "aß"}]),
            "scenarios[0]: the schedule is 'aß'",
        ),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "AB", "blend": 3}]),
            "scenarios[0].blend: it is not a list",
        ),
        (changed(world={"noise": -1}), "invalid at parameters.world: noise is -1"),
        (changed(world={"size": 1}), "at parameters.world.size: it is unknown"),
        (changed(metrics=["beauty"]), "metric 'beauty' is unknown"),
        (changed(extra=1), "at parameters.extra: it is unknown"),
        (changed(seed=10**400), "a whole number from 0 to 2,147,483,648"),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "A" * 900_000}]),
            "the schedule has 900,000 turns, but at most",
        ),
        (
            changed(world={"tokens_per_turn": 4096, "dimension": 4096}),
            "takes 677,186,848 numbers while it runs",
        ),
        (
            changed(policies=[{"key": "fd-kvc", "mu": at / 1000} for at in range(1, 999)]),
            "policy has 998 values, but at most",
        ),
        (changed(metrics=["retention"] * 2), "metric 'retention' is given twice"),
        (changed(baseline="tova"), "parameters.baseline: 'tova' is not one of its"),
        (changed(scenarios=[]), "needs at least one scenario"),
        (changed(SWEPT, values=0.8), "values: it is not a list"),
        (changed(SWEPT, values=["2"]), "values[0]: it is not a number"),
        (changed(SWEPT, values=[0.8] * 999), "is given twice"),
        (changed(SWEPT, axes=[["gamma", 0.8]]), "values: it is not a list"),
        (changed(SWEPT, axes=[["gamma"]]), "axes: it is unknown"),
        (changed(SWEPT, axes=[["gamma", [0.8]], ["w_c", [0.5]]]), "two hyperparameters at once is"),
    ],
)
def test_an_invalid_file_gets_one_sentence(content: str | bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)) as caught:
        read_run(content)
    assert "\n" not in str(caught.value)


JSON = any_json("seed", "parameters", "policies", "scenarios", "world", "key", "blend")


PLACES = "kind parameters versions files seconds format dialogs budget metrics scenarios policies"


@given(JSON, st.sampled_from([*PLACES.split(), "world"]))
def test_any_other_content_is_refused_in_a_sentence_or_read(value: Any, name: str) -> None:
    try:
        record = read_run(changed(**{name: value}))
    except ValueError:
        return
    assert isinstance(record.benchmark, Benchmark)


SMALL = Benchmark(
    scenarios=(SCENARIOS["shift"], SCENARIOS["gradual"]),
    policies=(policy_named("fifo"), read_policy("sinks(fd-kvc, n=2)")),
    dialogs=2,
)
SWEEP = Sweep(values=(0.8, 0.9), dialogs=2, metrics=("retention",))


def small_runs() -> dict[str, dict[str, str]]:
    """Return the files of a small run of each kind but answers, by kind."""
    swept = run_benchmark(SWEEP.benchmark)
    return {
        "benchmark": BenchmarkRun(Study(run_benchmark(SMALL)), "fifo").files,
        "study": StudyRun(few_dialogs()).files,
        "sweep": SweepRun(SWEEP, swept).files,
        "answers": {
            "run.json": run_json(
                "answers",
                Answers(every=3),
                (),
                baseline="full",
                model={"name": "x", "digest": "y"},
                file="z",
                dialogs=2,
            )
        },
        "replay": {
            "run.json": run_json(
                "replay",
                Replay(),
                (),
                source="lexical embedding, seed 3",
                name="own.json",
                file="z",
                dialogs=2,
                baseline="h2o",
                seed=3,
                shape=ModelShape("x", 4, 256),
            )
        },
    }


Place = tuple[str | int, ...]


def leaves(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield the places of all that is no list or object, and of each list and object itself."""
    if place:
        yield place
    if isinstance(value, dict | list):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        for name, part in parts:
            yield from leaves(part, (*place, name))


def others(value: Any) -> list[Any]:
    """Return values that may stand in place of one, but say something else."""
    if isinstance(value, dict):
        return [{**value, "more": 1}, 7]
    if isinstance(value, list):
        return [[*value, *value[-1:]], [*value, "more"], value[:-1], "more"]
    if isinstance(value, bool):
        return [not value, "more"]
    if isinstance(value, int | float):
        return [value + 1, value / 2, value + 0.125, -1, "1"]
    return [f"{value}x", "full", 1, {}]


def at(value: Any, place: Place) -> Any:
    for name in place:
        value = value[name]
    return value


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_all_that_a_file_says_runs_or_is_refused(kind: str) -> None:
    run = json.loads(small_runs()[kind]["run.json"])
    ran, refused = 0, 0
    for place in leaves(run):
        if place[0] in INFORMATIVE or place[0] == "format":
            continue
        for other in others(at(run, place)):
            changed = json.loads(json.dumps(run))
            at(changed, place[:-1])[place[-1]] = other
            try:
                record = read_run(json.dumps(changed))
            except ValueError:
                refused += 1
                continue
            again = json.loads(run_json(record.kind, record.settings, (), **record.dependencies))
            runs = at({**again, "files": [*record.files]}, place)
            assert runs == other, place
            ran += 1
    assert min(ran, refused) > 10


@pytest.mark.long
def test_a_changed_file_is_not_repeated(tmp_path: Path) -> None:
    for kind in ("benchmark", "sweep"):
        files = small_runs()[kind]
        saved(tmp_path, files)
        run = json.loads(files["run.json"])
        for place in leaves(run):
            if place[0] in INFORMATIVE or place[-1] in ("label", "series", "files"):
                continue  # the first two run, but no table holds what comes of them
            other = others(at(run, place))[0]
            changed = json.loads(json.dumps(run))
            at(changed, place[:-1])[place[-1]] = other
            (tmp_path / "run.json").write_text(json.dumps(changed))
            assert main(["repeat", str(tmp_path / "run.json"), "--workers", "1"]) == 2, place
