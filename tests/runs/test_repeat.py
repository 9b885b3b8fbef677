"""A run.json is read with care, and says whether the same run gives the same numbers."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import os
from collections.abc import Iterator
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
from fdkvc.runs.record import INFORMATIVE, Record, digest, run_json
from fdkvc.runs.repeat import MAX_GROWTH, Comparison, compare, comparison_sentence, difference
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from fdkvc.verdict.model_shape import ModelShape
from tests.refusals import any_json
from tests.studies import few_dialogs


def written(benchmark: Benchmark) -> str:
    baseline = baseline_of(benchmark.policies)
    return run_json("benchmark", benchmark, {}, 1.0, baseline=baseline)


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


def test_the_same_numbers_are_the_same_byte_for_byte_and_others_are_not(tmp_path: Path) -> None:
    study = few_dialogs()
    files = StudyRun(study).files
    assert len(files["run.json"]) < MAX_RUN_JSON_BYTES
    record = read_run(files["run.json"])
    assert record.versions["fdkvc-lab"]
    assert record.processor["blas"]
    assert record.kind == "study"
    both = compare(record, files)
    assert (set(both.identical), both.close, both.apart, both.unknown) == (
        *(set(record.digests), {}, {}, ()),
    )
    other = {**files, "paired.csv": files["paired.csv"] + "\n"}
    (tmp_path / "paired.csv").write_text(files["paired.csv"])
    assert compare(record, other, tmp_path).apart == {"paired.csv": math.inf}
    few = compare(record, BenchmarkRun(Study(study.results)).files)
    assert few.identical == ("summary.csv", "adaptation.csv", "paired.csv")
    assert set(few.other) == set(record.digests) - set(few.identical)
    assert not few.repeated


def test_a_run_that_was_cut_short_says_what_was_finished() -> None:
    whole = few_dialogs().results
    asked = dataclasses.replace(whole.benchmark, dialogs=500)
    part = dataclasses.replace(whole, benchmark=asked, measured={**whole.measured, "mixed": {}})
    files = BenchmarkRun(Study(part), "fifo").files

    parameters = json.loads(files["run.json"])["parameters"]
    done = whole.benchmark.dialogs
    finished = {scenario: 0 if scenario == "mixed" else done for scenario in whole.measured}
    assert (parameters["dialogs"], parameters["finished"]) == (500, finished)
    assert (
        "finished"
        not in json.loads(BenchmarkRun(Study(whole), "fifo").files["run.json"])["parameters"]
    )

    record = read_run(files["run.json"])
    assert (record.benchmark, record.finished) == (asked, finished)
    words = comparison_sentence(record, compare(record, BenchmarkRun(Study(whole), "fifo").files))
    assert words.startswith("the run differs from the file at parameters.d")
    assert f"cancelled after 0 to {done} of 500 dialogs" in words


def test_differences_from_another_baseline_are_the_same_again() -> None:
    results = few_dialogs().results
    record = read_run(BenchmarkRun(Study(results), "fifo").files["run.json"])
    assert record.kind == "benchmark"
    assert compare(record, BenchmarkRun(Study(results), record.baseline).files).repeated
    others = compare(record, BenchmarkRun(Study(results), "h2o").files)
    assert (others.other, others.unknown) == (("parameters.baseline",), ("paired.csv",))


def rounded(folder: Path, change: float, **parts: Any) -> tuple[Record, dict[str, str]]:
    """Return the record of a run whose every mean is off by so much, and the files of the run.

    The table with these means is written to a folder.
    """
    files = BenchmarkRun(Study(few_dialogs().results), "fifo").files
    table = pd.read_csv(io.StringIO(files["summary.csv"]))
    table["mean"] += change
    summary = csv_text(table)
    run = json.loads(files["run.json"])
    run["digests"]["summary.csv"] = digest(summary)
    record = read_run(json.dumps({**run, **parts}))
    (folder / "summary.csv").write_text(summary)
    return record, files


def test_what_rounding_changes_is_the_same_to_so_much(tmp_path: Path) -> None:
    record, files = rounded(tmp_path, 3e-9)

    comparison = compare(record, files, tmp_path)

    assert comparison.repeated
    assert comparison_sentence(record, comparison) == (
        "the numbers are the same to 3e-09 in summary.csv; the numbers are the same, byte for "
        "byte, in adaptation.csv, paired.csv; versions are the same"
    )
    record, files = rounded(tmp_path, 3e-9, versions={"numpy": "1.0"})
    assert comparison_sentence(record, compare(record, files, tmp_path)).endswith("numpy differs")


def test_what_differs_by_more_is_not_the_same(tmp_path: Path) -> None:
    record, files = rounded(tmp_path, 0.01)

    comparison = compare(record, files, tmp_path)

    assert not comparison.repeated
    sentence = comparison_sentence(record, comparison)
    assert "summary.csv, where they differ by up to 1e-02" in sentence


def test_other_rows_words_or_missing_numbers_are_no_rounding() -> None:
    assert difference("a,b\nx,1\n", "a,b\ny,1\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,nan\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,1\nx,1\n") == (math.inf, False)
    assert difference("a\n1\n", "b\n1\n") == (math.inf, False)
    assert difference("t,words\n100,by 1\n", "t,words\n100.05,by 2\n") == (0, True)
    assert difference("t\n100\n", "t\n101\n") == (0, False)


def test_tables_are_read_beside_run_json(tmp_path: Path) -> None:
    record, files = rounded(tmp_path, 3e-9)
    comparison = compare(record, files)
    assert comparison.unknown == ("summary.csv",)
    assert "not identical: summary.csv (the original" in comparison_sentence(record, comparison)

    assert list(compare(record, files, tmp_path).close) == ["summary.csv"]
    (tmp_path / "summary.csv").write_text("another run's")
    assert compare(record, files, tmp_path).unknown == ("summary.csv",)


def test_no_more_is_read_beside_run_json_than_the_run_wrote_or_a_few_times_as_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, files = rounded(tmp_path, 3e-9)
    huge = "1\n" * MAX_GROWTH * len(files["summary.csv"])
    names = {"summary.csv": huge, "../../etc/other.csv": "2", "b" * 300: "3", "a\0b": "4"}
    digests = {name: digest(text) for name, text in names.items()}
    bare = dataclasses.replace(record, digests=digests)
    for name in ("summary.csv", "other.csv"):
        (tmp_path / name).write_text(names["summary.csv"])
    read: list[int] = []

    def counting(path: Path, most: int) -> bytes:
        content = read_bytes(path, most)
        read.append(len(content))
        return content

    monkeypatch.setattr(repeat_module, "read_bytes", counting)
    comparison = compare(bare, files, tmp_path)

    assert comparison.unknown == ("summary.csv",)
    assert set(comparison.other) == digests.keys() - {"summary.csv"}
    assert read == [MAX_GROWTH * len(files["summary.csv"].encode()) + 1]
    (tmp_path / "summary.csv").unlink()
    os.mkfifo(tmp_path / "summary.csv")
    assert compare(bare, files, tmp_path).unknown == ("summary.csv",)


def test_without_digests_nothing_was_compared() -> None:
    record = read_run(written(Benchmark()))

    nothing = compare(record, {"run.json": written(Benchmark()), "summary.csv": ""})

    assert nothing == Comparison((), {}, {}, ())
    assert not nothing.repeated


@pytest.mark.parametrize(
    "sweep",
    [
        Sweep(dialogs=2),
        Sweep("h2o", (("window", (0.2, 0.5)),), SCENARIOS["shift"], 2, 3, 40, ("retention",)),
        Sweep(axes=(("gamma", (0.8,)), ("w_c", (0.1, 0.5))), dialogs=2),
    ],
)
def test_a_sweep_is_read_again_and_gives_the_same_numbers(sweep: Sweep) -> None:
    files = SweepRun(sweep, run_benchmark(sweep.benchmark)).files
    record = read_run(files["run.json"])
    assert (record.settings, record.benchmark) == (sweep, sweep.benchmark)
    again = SweepRun(sweep, run_benchmark(record.benchmark, workers=1, chunk=1)).files
    assert list(compare(record, again).identical) == [name for name in files if name != "run.json"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"axes": 3}, "at parameters.axes: it is not a list"),
        ({"axes": [["gamma", 0.8]]}, r"axes\[0\]\[1\]: it is not a list"),
        ({"axes": [["gamma"]]}, r"axes\[0\]: it has 1 parts, but must have 2"),
        ({"axes": [["gamma", [2]]]}, "gamma is 2, but must be"),
        ({"axes": [["gamma", ["2"]]]}, r"axes\[0\]\[1\]\[0\]: it is not a number"),
        ({"policy": "fifo"}, "'gamma' is unknown to fifo"),
        ({"axes": [["gamma", [0.8] * 999]]}, "is given twice|settings, but at most"),
        ({"axes": []}, "must be one or two"),
        ({"world": {"noise": 1}}, "at parameters.world: it is unknown"),
    ],
)
def test_a_sweep_that_is_not_right_gets_a_sentence(
    changes: dict[str, object], sentence: str
) -> None:
    sweep = Sweep(dialogs=2)
    run = json.loads(SweepRun(sweep, run_benchmark(sweep.benchmark)).files["run.json"])
    run["parameters"] |= changes
    with pytest.raises(ValueError, match=sentence):
        read_run(json.dumps(run))


def changed(**parts: Any) -> str:
    run = json.loads(written(Benchmark()))
    for name, value in parts.items():
        (run if name in run else run["parameters"])[name] = value
    return json.dumps(run)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "the file is not a run.json: it is not JSON"),
        (b"\xff\xfe\x00", "a run.json: it is not text in UTF-8"),
        (b"\x89PNG\r\n\x1a\n", "a run.json: it is not text in UTF-8"),
        ("[" * 100_000, "the file is not a run.json: it is not JSON"),
        ("[]", "a run.json: it has no parameters"),
        ("{}", "a run.json: it has no parameters"),
        (" " * (MAX_RUN_JSON_BYTES + 1), "but a run.json has at most 1,000,000"),
        (changed(seed="0"), "at parameters.seed: it is not a whole number"),
        (changed(seed=-1), "seed is -1, but must be a whole number from 0 to 2,147,483,648"),
        (changed(dialogs=0), "dialogs is 0"),
        (changed(dialogs=True), "parameters.dialogs: it is not a whole number"),
        (changed(policies={}), "at parameters.policies: it is not a list"),
        (changed(policies=[1]), "parameters.policies[0]: it is not an object"),
        (changed(policies=[{"key": "lru"}]), "policies[0]: policy 'lru' is unknown"),
        (changed(policies=[{}]), "policies[0]: something is missing"),
        (changed(policies=[{"key": "fd-kvc", "gamma": "x"}]), "policies[0]: gamma is 'x'"),
        (changed(scenarios=[{"key": "x"}]), "scenarios[0]: something is missing"),
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
        (changed(dialogs=10**12), "dialogs is 1000000000000, but must be"),
        (changed(seed=10**400), "a whole number from 0 to 2,147,483,648"),
        (changed(budget=10**9), "budget is 1000000000, but must be a whole number from 1 to 8,192"),
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
    ],
)
def test_an_invalid_file_gets_one_sentence(content: str | bytes, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011, the sentence is compared below
        read_run(content)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


JSON = any_json("seed", "parameters", "policies", "scenarios", "world", "key", "blend")


def read_or_refused(content: str) -> str:
    """Read a run.json; return the sentence if it is refused."""
    try:
        record = read_run(content)
    except ValueError as error:
        return str(error)
    assert isinstance(record.benchmark, Benchmark)
    return "read"


@given(JSON, st.sampled_from(["kind", "parameters", "versions", "digests", "seconds", "processor"]))
def test_any_other_content_is_refused_in_a_sentence_or_read(value: Any, name: str) -> None:
    run = json.loads(written(Benchmark()))
    run[name] = value
    assert read_or_refused(json.dumps(run))


@given(JSON, st.sampled_from(["dialogs", "budget", "metrics", "scenarios", "policies", "world"]))
def test_any_other_parameter_is_refused_in_a_sentence_or_read(value: Any, name: str) -> None:
    assert read_or_refused(changed(**{name: value}))


# ------------------------------------------------------------------------------- every leaf

SMALL = Benchmark(
    scenarios=(SCENARIOS["shift"], SCENARIOS["gradual"]),
    policies=(policy_named("fifo"), read_policy("recall(fd-kvc, tier=2)")),
    dialogs=2,
)
SWEEP = Sweep(axes=(("gamma", (0.8, 0.9)),), dialogs=2, metrics=("retention",))


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
                {},
                baseline="full",
                model={"name": "x", "digest": "y"},
                file="z",
                dialogs=2,
            )
        },
        "replay": {
            "run.json": run_json(
                "replay",
                Replay(heads=("each", "kv")),
                {},
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
        if place[0] in INFORMATIVE:
            continue
        for other in others(at(run, place)):
            changed = json.loads(json.dumps(run))
            at(changed, place[:-1])[place[-1]] = other
            try:
                record = read_run(json.dumps(changed))
            except ValueError:
                refused += 1
                continue
            again = json.loads(run_json(record.kind, record.settings, {}, **record.about))
            runs = at({**again, "digests": record.digests}, place)
            assert runs == other, place
            ran += 1
    assert min(ran, refused) > 10


@pytest.mark.long
def test_a_changed_file_is_not_repeated_byte_for_byte(tmp_path: Path) -> None:
    for kind in ("benchmark", "sweep"):
        run = json.loads(small_runs()[kind]["run.json"])
        for place in leaves(run):
            if place[0] in INFORMATIVE or place[-1] in ("label", "series"):
                continue  # these two run, but no table holds what comes of them
            other = others(at(run, place))[0]
            changed = json.loads(json.dumps(run))
            at(changed, place[:-1])[place[-1]] = other
            (tmp_path / "run.json").write_text(json.dumps(changed))
            assert main(["repeat", str(tmp_path / "run.json"), "--workers", "1"]) == 2, place
