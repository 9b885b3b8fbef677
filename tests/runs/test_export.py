"""Files hold the tables exactly, and are written whole or not at all."""

import csv
import dataclasses
import io
import json
import math
import os
import platform
import re
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fdkvc
from fdkvc.engine.metrics import metrics_of
from fdkvc.engine.simulate import simulate
from fdkvc.engine.summary import CASE, paired_differences
from fdkvc.paper.benchmark import Benchmark, Results, run_benchmark
from fdkvc.paper.results import BenchmarkRun, StudyRun, SweepRun
from fdkvc.paper.shipped import papers_run
from fdkvc.paper.study import Study
from fdkvc.paper.sweep import Sweep
from fdkvc.player.entry_files import file_stem, trace_files, trace_text
from fdkvc.player.run import DialogChoice, build_run
from fdkvc.policies import POLICIES, policy_named, read_policy
from fdkvc.runs.export import csv_text, meaning_of, with_readme
from fdkvc.runs.grid import Grid
from fdkvc.runs.record import run_json, source_digest
from fdkvc.runs.write import check_folder, write_files
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from tests.worlds import EAST, NORTH, pointing

LATENCIES = {"fifo": 0.04, "h2o": 0.06, "fd-kvc": 0.1}
DIALOG = DialogChoice(SCENARIOS["mixed"], 7, World())
ORIGIN = ["policy", "dialog", "budget", "version"]
"""The first columns of the files of a trace."""


def read_csv(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_doubles_come_back_exactly(numbers: list[float]) -> None:
    header, *rows = read_csv(csv_text(pd.DataFrame({"x": numbers})))
    assert header == ["x"]
    assert [float(cell) for (cell,) in rows] == numbers


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_singles_are_as_short_as_they_can_be_and_come_back_exactly(numbers: list[float]) -> None:
    singles = np.array(numbers, np.float32)
    _, *rows = read_csv(csv_text(pd.DataFrame({"x": singles})))
    assert [np.float32(cell) for (cell,) in rows] == singles.tolist()
    assert all(len(cell) <= len("-1.17549435e-38") for (cell,) in rows)


def test_numbers_are_not_rounded_and_missing_ones_are_empty() -> None:
    frame = pd.DataFrame(
        {
            "double": [0.1 + 0.2, math.nan, 1e-300],
            "single": np.array([0.3, np.nan, 1e10], np.float32),
            "rank": pd.array([1, None, 3], dtype="Int64"),
            "count": [-1, 0, 1],
            "yes": [True, False, True],
        }
    )
    assert csv_text(frame) == (
        "double,single,rank,count,yes\n"
        "0.30000000000000004,0.3,1,-1,True\n"
        ",,,0,False\n"
        "1e-300,1e+10,3,1,True\n"
    )


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r"])
@pytest.mark.parametrize("dtype", [object, "str", "category"])
def test_a_text_that_would_run_as_a_formula_is_defused(start: str, dtype: Any) -> None:
    formula = f'{start}HYPERLINK("x")'
    frame = pd.DataFrame({"topic": pd.Series([formula, "a=b", "A+B"], dtype=dtype)})
    assert read_csv(csv_text(frame)) == [["topic"], [f"'{formula}"], ["a=b"], ["A+B"]]
    assert frame.topic.tolist() == [formula, "a=b", "A+B"]  # the table itself stays


def test_negative_numbers_are_left_alone() -> None:
    mixed = pd.DataFrame({"x": [-1.5, -2.0], "y": pd.Series([-1, "-1"], dtype=object)})
    assert csv_text(mixed) == "x,y\n-1.5,-1\n-2.0,'-1\n"


def test_topic_names_of_a_dialog_of_ones_own_are_defused() -> None:
    dialogs = pointing([EAST, NORTH], [EAST, NORTH], topics=["=1+1", "plain"])
    run = build_run(DIALOG, policy_named("fifo"), 3, dialogs=dialogs)
    _, *texts = trace_files({"fifo": run}).values()
    for text in texts:
        topics = pd.read_csv(io.StringIO(str(text))).topic
        assert set(topics) == {"'=1+1", "plain"}


@pytest.mark.parametrize("gamma", [0.6, 0.88])
def test_every_row_and_the_readme_say_what_a_trace_is_of(gamma: float) -> None:
    policy = policy_named("fd-kvc", gamma=gamma)
    own = DialogChoice(custom_scenario("AABC"), 5, World(tokens_per_turn=12))
    runs = {name: build_run(own, read_policy(name), 20) for name in (policy.name, "h2o")}
    files = trace_files(runs)

    for name in ("entries.csv", "turns.csv"):
        table = pd.read_csv(io.StringIO(str(files[name])))
        origins = table[ORIGIN].drop_duplicates().values.tolist()
        dialog = "Custom schedule AABC, seed 5, tokens per turn 12"
        assert origins == [[name, dialog, 20, fdkvc.__version__] for name in runs]
        assert not table.duplicated(["policy", "turn", *(["token"] * ("token" in table))]).any()
    fd_kvc = table[table.policy == policy.name]
    assert fd_kvc[["learning_rate", "ownership_loss"]].notna().all(axis=None)
    entries = pd.read_csv(io.StringIO(str(files["entries.csv"])))
    channels = entries.loc[entries.policy == policy.name, ["channel_cumulative", "channel_recency"]]
    assert channels.notna().all(axis=None)

    assert f"# {policy.name} and h2o on {dialog}, budget 20" in files["README.md"]
    assert f"gamma = {gamma}," in files["README.md"]  # also where it is the default
    assert (f"{gamma}" in file_stem(runs)) == (gamma != 0.88)  # a name has what differs
    assert not set(file_stem(runs)) & set(' /\\:*?"<>|')


def test_every_file_of_the_shipped_run_and_each_of_its_columns_has_a_meaning() -> None:
    files = StudyRun(papers_run().study).files
    readme = str(with_readme("Files", files)["README.md"])
    for name in files:
        assert re.search(rf"^## {re.escape(name)}\n\n\w", readme, re.M), name
    assert re.findall(r"^\| (\w+) \|  \|$", readme, re.M) == []


def test_the_columns_of_paired_differences_are_explained() -> None:
    rows = pd.DataFrame(columns=[*CASE, "services", "value"])
    columns = paired_differences(rows, "h2o").loc[:, "policy":]
    assert all(meaning_of("replay_paired.csv", str(column), {}) for column in columns)
    assert "baseline" in meaning_of("replay_paired.csv", "verdict", {})


@pytest.mark.parametrize("policy", ["fd-kvc-adaptive", "sinks(h2o)"])
def test_a_traces_columns_are_explained(policy: str) -> None:
    run = build_run(DIALOG, read_policy(policy), 56, tuple(metrics_of(optional=True)))
    files = trace_files({policy: run})
    assert re.findall(r"^\| (\w+) \|  \|$", str(files["README.md"]), re.M) == []


@pytest.fixture(scope="module")
def results() -> Results:
    wanted = tuple(SCENARIOS[key] for key in ("mixed", "adaptation"))
    policies = tuple(policy_named(key) for key in ("fifo", "h2o", "fd-kvc"))
    return run_benchmark(Benchmark(scenarios=wanted, policies=policies, dialogs=7, seed=5))


def test_the_files_of_a_benchmark(results: Results) -> None:
    files = BenchmarkRun(Study(results, latencies=LATENCIES)).files
    headers = {
        "summary.csv": "scenario,policy,metric,n,mean,ci_low,ci_high,published",
        "adaptation.csv": "policy,n,mean,median,p90,published_mean,published_median,published_p90",
        "paired.csv": "scenario,metric,policy,baseline,n,mean_diff,ci_low,ci_high,t,p",
        "latency.csv": "policy,ms_per_turn,ratio_to_fifo,published_ms",
    }
    assert list(files) == [*headers, "run.json"]
    assert {name: files[name].split("\n")[0] for name in headers} == headers
    assert {name: files[name].count("\n") - 1 for name in headers} == {
        "summary.csv": 1 * 3 * 3,
        "adaptation.csv": 3,
        "paired.csv": 1 * 3 * 2,
        "latency.csv": 3,
    }


def test_run_json_says_all_that_the_numbers_depend_on(results: Results) -> None:
    run = json.loads(BenchmarkRun(Study(results, latencies=LATENCIES), "fifo").files["run.json"])
    assert list(run) == ["format", "kind", "parameters", "versions", "seconds", "files"]
    assert run["seconds"] == results.seconds
    assert run["versions"] == {
        "fdkvc-lab": fdkvc.__version__,
        "source": source_digest(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": metadata.version("scipy"),
        "pandas": pd.__version__,
    }


def test_run_json_refuses_what_json_does_not_know() -> None:
    with pytest.raises(ValueError, match="JSON"):
        run_json("benchmark", Benchmark(), {}, noise=math.nan)


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_files_are_written_into_a_new_or_an_old_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write_files(folder, {"a.csv": "α\n", "b.bin": b"\x00\r\n"})
    assert content(folder) == {"a.csv": "α\n".encode(), "b.bin": b"\x00\r\n"}
    write_files(str(folder), {"a.csv": "new", "c.csv": "more"})
    assert content(folder) == {"a.csv": b"new", "b.bin": b"\x00\r\n", "c.csv": b"more"}


def test_files_have_the_permissions_that_any_file_gets(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_files(tmp_path, {"a.csv": ""})
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["os.replace", "pathlib.Path.write_bytes"])
@pytest.mark.parametrize("existing", [True, False])
def test_a_failure_leaves_the_folder_as_it_was(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    step: str,
    existing: bool,
) -> None:
    folder = tmp_path / "out"
    before = {"a.csv": b"old a", "c.csv": b"old c", "other": b"other"} if existing else {}
    if existing:
        folder.mkdir()
        for name, old in before.items():
            (folder / name).write_bytes(old)
    monkeypatch.setattr(step, Mock(side_effect=error))
    with pytest.raises((ValueError, KeyboardInterrupt)) as raised:
        write_files(folder, {"a.csv": "new", "b.csv": "new", "c.csv": "new"})
    if isinstance(error, OSError):
        assert str(raised.value) == f"the folder {str(folder)!r} cannot be written: " + (
            "no space left on device"
        )
    assert folder.exists() == existing
    if existing:
        assert content(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == (["out"] if existing else [])


def test_missing_folders_above_are_made_and_not_left_behind_in_vain(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b" / "c")
    with pytest.raises(ValueError, match="cannot be written"):
        write_files(tmp_path / "a" / "b", {"x/y": "no folder x"})
    assert not content(tmp_path)

    write_files(tmp_path / "a" / "b", {"c": "kept"})
    assert (tmp_path / "a" / "b" / "c").read_text() == "kept"


@pytest.mark.parametrize("write", [check_folder, lambda folder: write_files(folder, {"a": "a"})])
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, write: Any) -> None:
    (tmp_path / "file").write_text("kept")
    for folder, sentence in (
        (tmp_path / "file", "cannot be written: it is not a folder"),
        (
            tmp_path / "file" / "out",
            f"cannot be created: {str(tmp_path / 'file')!r} is not a folder",
        ),
        ("", "cannot be written: it has no name"),
    ):
        with pytest.raises(ValueError, match="cannot be") as raised:
            write(folder)
        assert str(raised.value) == f"the folder {str(folder)!r} {sentence}"
    assert content(tmp_path) == {"file": b"kept"}


@pytest.mark.parametrize("existing", [True, False])
def test_a_folder_without_permission_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, existing: bool
) -> None:
    folder = tmp_path / "out"
    if existing:
        folder.mkdir()

    make = os.mkdir

    def refuse(path: Path | str, mode: int = 0o777) -> None:
        if Path(path).parent == (folder if existing else tmp_path):
            raise PermissionError(13, "Permission denied")
        make(path, mode)

    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", refuse)
        with pytest.raises(ValueError, match="out' cannot be written: permission denied"):
            check_folder(folder)
    assert folder.exists() == existing


def test_a_folder_below_one_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "lstat", refuse)
    with pytest.raises(ValueError, match="out' cannot be written: permission denied"):
        check_folder(tmp_path / "out")


@pytest.mark.parametrize("name", ["a" * 256, "missing/" + "a" * 256, "a/" * 3000])
def test_a_name_that_is_too_long_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written: file name too long"):
        check_folder(tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_refused_beforehand(tmp_path: Path) -> None:
    check_folder(tmp_path, ["claims.csv"])
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for name, sentence in (
        ("a" * 256, "cannot be written: file name too long"),
        ("folder", "folder' cannot be written: it is a folder"),
        ("pipe", "pipe' cannot be written: it is not a regular file"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_folder(tmp_path, [name])
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "pipe"}


def test_a_text_table_is_aligned() -> None:
    rows = [["shift", "fifo", "1.0"], ["shift", "fd-kvc", "10.0"], ["mixed", "h2o", ""]]
    assert Grid(["scenario", "policy", "%"], rows, 2).text(grouped=True).split("\n") == [
        "scenario  policy     %",
        "",
        "shift     fifo     1.0",
        "          fd-kvc  10.0",
        "",
        "mixed     h2o",
    ]


def test_the_text_of_a_benchmark_shows_measured_beside_published(results: Results) -> None:
    lines = BenchmarkRun(Study(results, latencies=LATENCIES)).text.split("\n")
    assert max(map(len, lines)) <= 100
    fifo = next(line for line in lines if line.startswith("mixed") and "fifo" in line)
    assert fifo.replace("★", "").split()[5:] == ["(.0206)", "85.7", "44.4", "(44.4", "%)"]
    h2o = [line.split() for line in lines if line.startswith("h2o")]
    assert "never (counts as 16) (16.0) never (counts as 16) (16) never (counts as 16) (16)" in map(
        " ".join, (words[1:] for words in h2o)
    )
    assert ["h2o", "0.060", "1.500", "0.055"] in h2o
    text = "\n".join(lines)
    assert "Paired differences from h2o" in text
    assert "+35.7  " in text
    assert "the same in every dialog" in text


def test_one_dialog_is_too_few_for_intervals_and_tests() -> None:
    ran = run_benchmark(Benchmark(dialogs=1, scenarios=(SCENARIOS["shift"],)))
    text = BenchmarkRun(Study(ran, latencies=LATENCIES)).text
    assert "of 1 dialog per scenario" in text
    assert "too few dialogs" in text
    assert "nan" not in text


def test_the_text_of_a_sweep() -> None:
    sweep = Sweep(parameter="w_c", values=(0.1, 0.2), dialogs=3)
    text = SweepRun(sweep, run_benchmark(sweep.benchmark)).text
    assert text.startswith("Mixed 3-Topic, last turns of 3 dialogs, means")
    rows = text.split("\n")[-len(sweep.benchmark.policies) :]
    assert [row.split()[:2] for row in rows[:2]] == [["fd-kvc", "w_c=0.1"], ["fd-kvc", "w_c=0.2"]]
    assert "(77.6 %)" in rows[0]


@pytest.mark.parametrize("policy", POLICIES)
def test_the_text_of_a_trace(policy: str) -> None:
    dialogs = generate(SCENARIOS["complex"], 1)
    trace = simulate(policy_named(policy), dialogs, 56)
    trace = dataclasses.replace(trace, seconds=np.full(20, 1e-4))  # a slow machine's are wider
    header, *rows = trace_text(trace, dialogs).split("\n")
    assert len(rows) == 20
    assert ("learning_rate" in header) == ("learning_rate" in trace.state)
    assert max(map(len, rows)) <= 100
    cached, evicted = ("56", "32") if policy_named(policy).bounded else ("640", "0")
    if policy == "shift":  # half went at once, of which places are free again
        cached, evicted = "52", "28"
    if policy_named(policy).page_size == 0:  # whole messages of 32
        cached, evicted = "32", "32"
    assert rows[-1].split()[:4] == ["19", "C", cached, evicted]
