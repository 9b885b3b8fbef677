"""A run.json is read with care, and says whether the same run gives the same numbers."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.experiments.benchmark import Benchmark, default_baseline, run_benchmark
from fdkvc.experiments.sweep import Sweep
from fdkvc.files.export import benchmark_files, benchmark_parameters, csv_text, digest, run_json
from fdkvc.files.repeat import (
    Comparison,
    Record,
    compare,
    comparison_sentence,
    difference,
    read_run,
    with_files,
)
from fdkvc.files.report import study_files, sweep_files
from fdkvc.limits import MAX_RUN_JSON_BYTES
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import SCENARIOS, World, own_scenario
from tests.refusals import any_json
from tests.studies import few_dialogs


def written(benchmark: Benchmark) -> str:
    baseline = default_baseline(benchmark.policies)
    return run_json(benchmark.seed, benchmark_parameters(benchmark, baseline), 1.0)


@pytest.mark.parametrize(
    "benchmark",
    [
        Benchmark(),
        Benchmark(
            scenarios=(own_scenario("AABBC"),),
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


def test_the_same_numbers_are_the_same_byte_for_byte_and_others_are_not() -> None:
    study = few_dialogs()
    files = study_files(study)
    assert len(files["run.json"]) < MAX_RUN_JSON_BYTES
    record = read_run(files["run.json"])
    assert record.versions["fdkvc-lab"]
    assert record.processor["blas"]
    assert record.needs_study
    both = compare(record, files)
    assert (set(both.same), both.close, both.apart, both.unknown) == (
        *(set(record.digests), {}, {}, ()),
    )
    other = {**files, "paired.csv": files["paired.csv"] + "\n"}
    assert compare(record, other).apart == {"paired.csv": math.inf}
    few = benchmark_files(study.results, [])
    assert compare(record, few).same == ("summary.csv", "adaptation.csv", "paired.csv")


def test_a_run_that_was_cut_short_says_what_was_finished() -> None:
    whole = few_dialogs().results
    asked = dataclasses.replace(whole.benchmark, dialogs=500)
    part = dataclasses.replace(whole, benchmark=asked, measured={**whole.measured, "mixed": {}})
    files = benchmark_files(part, [], "fifo")

    parameters = json.loads(files["run.json"])["parameters"]
    done = whole.benchmark.dialogs
    finished = {scenario: 0 if scenario == "mixed" else done for scenario in whole.measured}
    assert (parameters["dialogs"], parameters["finished"]) == (500, finished)
    assert (
        "finished" not in json.loads(benchmark_files(whole, [], "fifo")["run.json"])["parameters"]
    )

    record = read_run(files["run.json"])
    assert (record.benchmark, record.finished) == (asked, finished)
    words = comparison_sentence(record, compare(record, benchmark_files(whole, [], "fifo")))
    assert words.startswith("the numbers are not the same in summary.csv")
    assert (
        f"the run that wrote it was cut short, after 0 to {done} of 500 dialogs a scenario" in words
    )


def test_differences_from_another_baseline_are_the_same_again() -> None:
    results = few_dialogs().results
    record = read_run(benchmark_files(results, [], "fifo")["run.json"])
    assert not record.needs_study
    assert compare(record, benchmark_files(results, [], record.baseline)).repeated
    assert list(compare(record, benchmark_files(results, [], "h2o")).apart) == ["paired.csv"]


def rounded(change: float, **parts: Any) -> tuple[Record, dict[str, str]]:
    """Return the record of a run whose every mean is off by so much, and its files."""
    files = benchmark_files(few_dialogs().results, [], "fifo")
    table = pd.read_csv(io.StringIO(files["summary.csv"]))
    table["mean"] += change
    summary = csv_text(table)
    run = json.loads(files["run.json"])
    run["digests"]["summary.csv"] = digest(summary)
    run["numbers"]["summary.csv"] = summary.splitlines()
    return read_run(json.dumps({**run, **parts})), files


def test_what_rounding_changes_is_the_same_to_so_much() -> None:
    record, files = rounded(3e-9, processor={"machine": "another", "blas": "", "simd": ""})

    comparison = compare(record, files)

    assert comparison.repeated
    assert comparison_sentence(record, comparison) == (
        "the numbers are the same to 3e-09 in summary.csv; the numbers are the same, byte for "
        "byte, in adaptation.csv, paired.csv; the processor differs"
    )
    record, files = rounded(3e-9)
    assert comparison_sentence(record, compare(record, files)).endswith(
        "; processor and versions are the same"
    )
    record, files = rounded(3e-9, processor={}, versions={"numpy": "1.0"})
    assert comparison_sentence(record, compare(record, files)).endswith(
        "; numpy differs, and the file does not say on which processor it ran"
    )


def test_what_differs_by_more_is_not_the_same() -> None:
    record, files = rounded(0.01)

    comparison = compare(record, files)

    assert not comparison.repeated
    assert comparison_sentence(record, comparison).startswith(
        "the numbers are not the same in summary.csv, where they differ by up to 1e-02; the"
    )


def test_other_rows_words_or_missing_numbers_are_no_rounding() -> None:
    assert difference("a,b\nx,1\n", "a,b\ny,1\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,nan\n") == (math.inf, False)
    assert difference("a,b\nx,1\n", "a,b\nx,1\nx,1\n") == (math.inf, False)
    assert difference("a\n1\n", "b\n1\n") == (math.inf, False)
    assert difference("t,words\n100,by 1\n", "t,words\n100.05,by 2\n") == (0, True)
    assert difference("t\n100\n", "t\n101\n") == (0, False)


def test_a_file_that_is_too_large_for_run_json_is_read_beside_it(tmp_path: Path) -> None:
    record, files = rounded(3e-9)
    summary = record.numbers["summary.csv"]
    bare = dataclasses.replace(record, numbers={})
    comparison = compare(bare, files)
    assert comparison.unknown == ("summary.csv",)
    assert "not the same byte for byte in summary.csv" in comparison_sentence(bare, comparison)

    (tmp_path / "summary.csv").write_text("another run's")
    assert compare(with_files(bare, tmp_path, files), files).unknown == ("summary.csv",)
    (tmp_path / "summary.csv").write_text(summary)
    assert list(compare(with_files(bare, tmp_path, files), files).close) == ["summary.csv"]


def test_without_digests_nothing_was_compared() -> None:
    record = read_run(written(Benchmark()))

    nothing = compare(record, {"summary.csv": ""})

    assert nothing == Comparison((), {}, {}, ())
    assert not nothing.repeated
    assert comparison_sentence(record, nothing).startswith("nothing was compared")


def test_numbers_that_do_not_fit_their_digest_are_refused() -> None:
    run = json.loads(benchmark_files(few_dialogs().results, [], "fifo")["run.json"])
    run["numbers"]["summary.csv"][1] = "changed by hand"
    with pytest.raises(ValueError, match=r"numbers: summary\.csv does not fit its digest"):
        read_run(json.dumps(run))


@pytest.mark.parametrize(
    "sweep",
    [
        Sweep(dialogs=2),
        Sweep("h2o", (("window", (0.2, 0.5)),), SCENARIOS["shift"], 2, 3, 40, ("retention",)),
        Sweep(axes=(("gamma", (0.8,)), ("w_c", (0.1, 0.5))), dialogs=2),
    ],
)
def test_a_sweep_is_read_again_and_gives_the_same_numbers(sweep: Sweep) -> None:
    files = sweep_files(sweep, run_benchmark(sweep.benchmark))
    record = read_run(files["run.json"])
    assert (record.sweep, record.benchmark) == (sweep, sweep.benchmark)
    again = sweep_files(sweep, run_benchmark(record.benchmark, workers=1, chunk=1))
    assert list(compare(record, again).same) == [name for name in files if name != "run.json"]


@pytest.mark.parametrize(
    ("swept", "sentence"),
    [
        (3, "'sweep' is missing or not"),
        ({"policy": "fd-kvc", "axes": {"gamma": 0.8}}, "gamma has no list of numbers"),
        ({"policy": "fd-kvc", "axes": {"gamma": [2]}}, "gamma is 2, but must be"),
        ({"policy": "fifo", "axes": {"gamma": [0.8]}}, "'gamma' is unknown to fifo"),
        ({"policy": "fd-kvc", "axes": {"gamma": [0.8] * 99}}, "more settings than policies"),
        ({"policy": "fd-kvc", "axes": {}}, "must be one or two"),
    ],
)
def test_a_sweep_that_is_not_right_gets_a_sentence(swept: object, sentence: str) -> None:
    sweep = Sweep(dialogs=2)
    run = json.loads(sweep_files(sweep, run_benchmark(sweep.benchmark))["run.json"])
    run["parameters"]["sweep"] = swept
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
        ("", "the file is not a run.json: it is no JSON"),
        (b"\xff\xfe\x00", "the file is not a run.json: it is no JSON"),
        ("[" * 100_000, "the file is not a run.json: it is no JSON"),
        ("[]", "the file is not a run.json: it holds no object"),
        ("{}", "'parameters' is missing or not an object"),
        (" " * (MAX_RUN_JSON_BYTES + 1), "but a run.json has at most 1,000,000"),
        (changed(seed="0"), "'seed' is missing or not a whole number"),
        (changed(seed=-1), "seed is -1, but must be a whole number from 0 to 2147483648"),
        (changed(dialogs=0), "dialogs is 0"),
        (changed(dialogs=True), "'dialogs' is missing or not a whole number"),
        (changed(policies={}), "'policies' is missing or not a list"),
        (changed(policies=[1]), "policy 0 is not an object"),
        (changed(policies=[{"key": "lru"}]), "not right at policy 0: policy 'lru' is unknown"),
        (changed(policies=[{}]), "policy 0 has the parts nothing"),
        (changed(policies=[{"key": "fd-kvc", "gamma": "x"}]), "at policy 0: gamma is 'x'"),
        (changed(scenarios=[{"key": "x"}]), "at scenario 0: it needs key, label and schedule"),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "aß"}]),
            "at scenario 0: the schedule is 'aß'",
        ),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "AB", "blend": 3}]),
            "at scenario 0: its blend is not a list",
        ),
        (changed(world={"noise": -1}), "not right at world: noise is -1"),
        (changed(world={"size": 1}), "world has the parts size"),
        (changed(metrics=["beauty"]), "metric 'beauty' is unknown"),
        (changed(metrics=[]), "it names no metrics"),
        (changed(dialogs=10**12), "dialogs is 1000000000000, but must be a whole number from 1"),
        (changed(seed=10**400), "but must be a whole number from 0 to 2147483648"),
        (changed(budget=10**9), "budget is 1000000000, but must be a whole number from 1 to 8192"),
        (
            changed(scenarios=[{"key": "x", "label": "x", "schedule": "A" * 900_000}]),
            "at scenario 0: the schedule has 900,000 turns, but at most 512 may be",
        ),
        (
            changed(world={"tokens_per_turn": 4096, "dimension": 4096}),
            "a dialog takes 677,186,848 numbers while it runs, but at most 33,554,432 are allowed",
        ),
        (
            changed(policies=[{"key": "fd-kvc", "mu": at / 1000} for at in range(1, 999)]),
            "policy has 998 values, but at most 512 are allowed",
        ),
        (changed(metrics=["retention"] * 2), "metric 'retention' is given twice"),
        (changed(baseline="tova"), "baseline 'tova' is not among the policies: choose from fifo"),
        (changed(scenarios=[]), "needs at least one scenario"),
    ],
)
def test_a_file_that_is_not_right_gets_one_sentence(content: str | bytes, sentence: str) -> None:
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


@given(JSON, st.sampled_from(["seed", "parameters", "versions", "digests", "numbers", "processor"]))
def test_any_other_content_is_refused_in_a_sentence_or_read(value: Any, name: str) -> None:
    run = json.loads(written(Benchmark()))
    run[name] = value
    assert read_or_refused(json.dumps(run))


@given(JSON, st.sampled_from(["dialogs", "budget", "metrics", "scenarios", "policies", "world"]))
def test_any_other_parameter_is_refused_in_a_sentence_or_read(value: Any, name: str) -> None:
    assert read_or_refused(changed(**{name: value}))
