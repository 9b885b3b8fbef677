"""The command line writes the files it promises, and says in one sentence what it cannot do."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fdkvc.commands.main import main
from fdkvc.commands.parser import build_parser
from fdkvc.conversations import sources
from fdkvc.conversations.formats import read_dialogs
from fdkvc.core import parameters
from fdkvc.core.limits import MAX_RUN_NAMES
from fdkvc.paper import benchmark as benchmark_module
from fdkvc.paper import study as study_module
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.published import published_sweep
from fdkvc.paper.results import BenchmarkRun, StudyRun
from fdkvc.paper.study import Study
from fdkvc.player.entry_files import trace_files
from fdkvc.player.run import DialogChoice, build_run
from fdkvc.policies import PAPER_POLICIES, POLICIES, Policy, policy_named
from fdkvc.runs import console as console_module
from fdkvc.runs.jobs import Progress
from fdkvc.synthetic.scenarios import SCENARIOS, World, custom_scenario
from tests.command_line import ROOT, ended, run
from tests.studies import few_dialogs

CAPTURED = pytest.CaptureFixture[str]
SECONDS_PER_LINE = vars(console_module)["SECONDS_PER_LINE"]
"""As it is outside the tests."""
NUMBERS_ONLY = ("summary.csv", "adaptation.csv", "paired.csv")


def test_benchmark_writes_its_files_and_prints_its_tables(tmp_path: Path, capsys: CAPTURED) -> None:
    out = tmp_path / "out"
    assert run("benchmark", "--dialogs", "3", "--seed", "4", "--out", out) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "Last turns of 3 dialogs per scenario, means" in printed.out
    assert printed.out.endswith(f"Written to {out}\n")
    assert max(map(len, printed.out.splitlines()[:-1])) <= 100
    assert {path.name for path in out.iterdir()} == {
        *("summary.csv", "adaptation.csv", "paired.csv", "latency.csv", "run.json")
    }
    expected = BenchmarkRun(Study(run_benchmark(Benchmark(dialogs=3, seed=4)))).files
    for name in NUMBERS_ONLY:
        assert (out / name).read_bytes() == expected[name].encode()
    latency = pd.read_csv(out / "latency.csv")
    assert latency.policy.tolist() == list(PAPER_POLICIES)
    assert (latency.ms_per_turn > 0).all()
    settings = json.loads((out / "run.json").read_text())
    assert (settings["parameters"]["seed"], settings["parameters"]["dialogs"]) == (4, 3)


def test_benchmark_takes_its_options(tmp_path: Path, capsys: CAPTURED) -> None:
    assert (
        run(
            *("benchmark", "--scenarios", "return", "shift", "--policies", "fd-kvc", "sink"),
            *("--budget", "40", "--baseline", "sink", "--dialogs", "2", "--out", tmp_path),
        )
        == 0
    )
    summary = pd.read_csv(tmp_path / "summary.csv")
    assert summary.scenario.unique().tolist() == ["return", "shift"]
    assert summary.policy.unique().tolist() == ["fd-kvc", "sink"]
    paired = pd.read_csv(tmp_path / "paired.csv")
    assert set(zip(paired.policy, paired.baseline, strict=True)) == {("fd-kvc", "sink")}
    assert (tmp_path / "adaptation.csv").read_text().count("\n") == 1
    parameters = json.loads((tmp_path / "run.json").read_text())["parameters"]
    assert parameters["budget"] == 40
    # FIFO is timed also where it does not run, because latencies are given in multiples of it.
    latency = pd.read_csv(tmp_path / "latency.csv").set_index("policy")
    assert list(latency.index) == ["fifo", "fd-kvc", "sink"]
    assert latency.ratio_to_fifo["fifo"] == 1


def test_benchmark_without_a_folder_only_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run("benchmark", "--dialogs", "2", "--scenarios", "adaptation") == 0
    printed = capsys.readouterr().out
    assert "Turns from a change of topic" in printed
    assert "Written" not in printed
    assert list(tmp_path.iterdir()) == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_progress_with_the_time_left(
    monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert run("benchmark", "--dialogs", "101", "--scenarios", "shift", "--workers", "1") == 0
    seen = terminal.getvalue().split("\r\x1b[K")
    assert seen[0] == seen[-1] == ""  # the line is cleared in the end
    assert [re.sub(r"\d+ s", "N s", line) for line in seen[1:-1]] == [
        " 99%  100 of 101 dialogs, about N s left",
        "100%  101 of 101 dialogs, about N s left",
    ]


def test_without_a_terminal_progress_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    seconds = count(step=4)
    monkeypatch.setattr(console_module, "SECONDS_PER_LINE", SECONDS_PER_LINE)
    monkeypatch.setattr(study_module, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(benchmark_module, "CHUNK", 1)

    assert run("benchmark", "--dialogs", "8", "--scenarios", "shift", "--workers", "1") == 0

    # A chunk takes 4 s: the lines come after 12 s and 24 s.
    assert capsys.readouterr().err.splitlines() == [
        " 38%  3 of 8 dialogs, about 20 s left",
        " 75%  6 of 8 dialogs, about 8 s left",
    ]


@pytest.mark.long
def test_a_line_comes_every_ten_seconds_from_the_start_of_reading(
    monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    def slow(*arguments: Any) -> Any:
        time.sleep(0.5)
        return read_dialogs(*arguments)

    monkeypatch.setattr(sources, "read_dialogs", slow)
    monkeypatch.setattr(console_module, "SECONDS_PER_LINE", 0.1)
    assert run("dialogs", "--policies", "fifo", "--budgets", "32", "--workers", "1") == 0

    reading = [line for line in capsys.readouterr().err.splitlines() if "Reading" in line]
    assert {re.sub(r"\d+ s", "N s", line) for line in reading} == {
        "Reading dialogues.json, after N s"
    }
    assert len(reading) >= 2  # a busy machine may take longer than what is waited for


def test_without_a_terminal_lines_come_while_nothing_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED
) -> None:
    monkeypatch.setattr(console_module, "SECONDS_PER_LINE", 0.05)
    clock = vars(console_module)["monotonic"]
    monkeypatch.setattr(console_module, "monotonic", lambda: 100 * clock())
    monkeypatch.setattr(console_module, "_last_line", 0.0)  # which later tests would wait for
    with console_module.progress() as show:
        time.sleep(0.2)
        show(Progress(1, 4, "1 of 4 dialogs", 30.0))
        time.sleep(0.5)
    every = [*dict.fromkeys(capsys.readouterr().err.splitlines())]
    before = [line for line in every if re.fullmatch(r"Preparing, after \d+ s", line)]
    assert before
    assert every[: len(before)] == before
    lines = every[len(before) :]
    form = re.compile(r" 25%  1 of 4 dialogs, about (\d+) s left")
    left = [int(match[1]) for line in lines if (match := form.fullmatch(line))]
    assert len(left) == len(lines)
    # 90 s are left at the pace so far, less what has passed since, 50 s here.
    assert left == sorted(left, reverse=True)
    assert left[0] > 80
    assert left[-1] < 60


def test_a_sweep_takes_the_values_of_the_paper_or_those_given(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    parameter = "w_c"
    assert run("sweep", "--parameter", parameter, "--dialogs", "2", "--out", tmp_path) == 0
    table = pd.read_csv(tmp_path / "sweep.csv")
    assert list(table) == [
        *("setting", parameter, "metric", "n", "mean", "ci_low", "ci_high", "published")
    ]
    assert table[parameter].unique().tolist() == list(published_sweep(parameter))
    assert (table.published.notna() == (table.metric != "late_diversity")).all()
    assert {path.name for path in tmp_path.iterdir()} == {"sweep.csv", "run.json"}
    assert "Mixed 3-Topic" in capsys.readouterr().out
    few = ("--dialogs", "2", "--out", tmp_path)
    assert run("sweep", "--parameter", "gamma", "--values", "0.8", "0.9", *few) == 0
    table = pd.read_csv(tmp_path / "sweep.csv")
    assert table.drop_duplicates("setting").gamma.tolist() == [0.8, 0.9]
    assert "fd-kvc gamma=0.8" in capsys.readouterr().out


@pytest.mark.long
def test_all_writes_the_benchmarks_files_and_all_that_the_page_has(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    few = ("--dialogs", "6", "--seed", "4")
    assert run("benchmark", "--all", *few, "--out", tmp_path) == 0
    assert "### Table 1: Late-turn alignment" in capsys.readouterr().out
    expected = StudyRun(few_dialogs()).files
    assert {path.name for path in tmp_path.iterdir()} == set(expected)
    for name in json.loads(expected["run.json"])["files"]:
        assert (tmp_path / name).read_bytes() == expected[name].encode()


def test_repeat_says_whether_the_numbers_are_the_same(tmp_path: Path, capsys: CAPTURED) -> None:
    few = ("--dialogs", "2", "--scenarios", "shift", "--baseline", "fifo")
    policies = ("--policies", "fifo", "h2o", "fd-kvc:gamma=0.8")
    assert run("benchmark", *few, *policies, "--out", tmp_path) == 0
    capsys.readouterr()
    record = tmp_path / "run.json"
    assert run("repeat", record, "--workers", "1") == 0
    assert "the same in summary.csv, adaptation.csv" in capsys.readouterr().out
    record.write_text(record.read_text().replace('"seed": 0', '"seed": 1'))
    assert run("repeat", record) == 2
    seen = capsys.readouterr()
    assert not seen.out
    assert seen.err.startswith("fdkvc: the run differs from its record in summary.csv: ")
    (tmp_path / "alone").mkdir()
    record.rename(tmp_path / "alone" / "run.json")
    assert run("repeat", tmp_path / "alone" / "run.json") == 2
    assert "none of the run's tables is beside" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["fifo", "fd-kvc"])
def test_trace_writes_the_files_of_its_trace(tmp_path: Path, capsys: CAPTURED, policy: str) -> None:
    out = tmp_path / "out"
    options = ("--scenario", "mixed", "--policy", policy, "--seed", "7")
    assert run("trace", *options, "--out", out) == 0
    dialog = DialogChoice(SCENARIOS["mixed"], 7, World())
    files = trace_files({policy: build_run(dialog, policy_named(policy), 56)})
    assert {path.name for path in out.iterdir()} == set(files)
    assert (out / "entries.csv").read_text() == files["entries.csv"]
    turns = pd.read_csv(out / "turns.csv").drop(columns="latency_ms")
    expected = pd.read_csv(io.StringIO(str(files["turns.csv"]))).drop(columns="latency_ms")
    pd.testing.assert_frame_equal(turns, expected)
    assert turns.turn.tolist() == list(range(12))
    assert turns[["ownership_loss", "learning_rate"]].notna().all(axis=None) == (
        "learning_rate" in policy_named(policy).initial_state()
    )
    assert "on Mixed 3-Topic (AABBBCCAABBB), seed 7" in capsys.readouterr().out


def test_trace_takes_a_schedule_and_hyperparameters(tmp_path: Path, capsys: CAPTURED) -> None:
    options = ("--schedule", "aabc", "--policy", "fd-kvc:gamma=0.8:w_c=0.3", "--budget", "40")
    assert run("trace", *options, "--out", tmp_path) == 0
    policy = policy_named("fd-kvc", gamma=0.8, w_c=0.3)
    run_here = build_run(DialogChoice(custom_scenario("AABC"), 0, World()), policy, 40)
    files = trace_files({policy.name: run_here})
    assert (tmp_path / "entries.csv").read_text() == files["entries.csv"]
    assert pd.read_csv(tmp_path / "turns.csv").topic.tolist() == list("AABC")
    assert "FD-KVC γ=0.8 w_c=0.3 on Custom schedule (AABC)" in capsys.readouterr().out


DIALOGS, BUDGET, SEED, WORKERS = (
    f"but must be {known.allowed(int)}"
    for known in (parameters.DIALOGS, parameters.BUDGET, parameters.SEED, parameters.WORKERS)
)
COMMANDS = [*build_parser().commands]
HYPERPARAMETERS = "gamma, alpha_0, mu, tau, beta, w_c"
LONG = {
    "{huge}": "9" * 400,
    "{nested}": "window(" * 1_100 + "h2o" + ")" * 1_100,
    "{letters}": "A" * 3000,
    "{turns}": "A" * 300,
    "{long}": "x" * 256,
    "{longest}": "x" * 250,
    "{many}": " ".join(str(permille / 1000) for permille in range(1, 601)),
}
MISTAKES = {
    "benchmark --dialogs 0": f"dialogs is 0, {DIALOGS}",
    "benchmark --dialogs 1_000": f"dialogs is '1_000', {DIALOGS}",
    "answers --baseline= --out {tmp}/out": (
        "baseline '' is not among the policies: choose from full, fifo, sink, h2o, fd-kvc, "
        "random, reread(fifo)"
    ),
    "benchmark --workers 0": f"workers is 0, {WORKERS}",
    "trace --policy {nested} --out {tmp}/out": "name has 8,803 characters, but at most 1,000",
    "benchmark --policies fifo h2o fifo": "policy 'fifo' is given twice",
    "benchmark --scenarios own": "scenario 'own' is unknown: choose from shift",
    "benchmark --scenarios mixed mixed": "scenario 'mixed' is given twice",
    "benchmark --baseline lru": "baseline 'lru' is not among the policies",
    "benchmark --dialogs": "argument --dialogs: expected one argument",
    "benchmark --dialog 5": "unrecognized arguments: --dialog 5",
    "benchmark chat.json": "unrecognized arguments: chat.json (see",
    "dialogs chat.json --plan": "arguments: chat.json; name a file with --dialogs (see",
    "benchmark --out {tmp}/file/out": "created: '{tmp}/file' is not a folder",
    "sweep --parameter delta --out {tmp}/out": f"unknown to fd-kvc: choose from {HYPERPARAMETERS}",
    "sweep --parameter w_c --values -0.1 --out {tmp}/out": (
        "w_c is -0.1, but must be a number from 0 to 1"
    ),
    "sweep --parameter w_c": "arguments are required: --out (see",
    "trace --policy lru --out {tmp}/out": (
        f"policy 'lru' is unknown: choose from {', '.join(POLICIES)}"
    ),
    "trace --schedule A1 --out {tmp}/out": "the schedule is 'A1', but must be letters",
    "trace --schedule AB --scenario mixed --out {tmp}/out": (
        "--schedule AB cannot be combined: give only"
    ),
    "trace --policy fd-kvc:gamma --out {tmp}/out": "'fd-kvc:gamma' is not a hyperparameter: write",
    "trace --policy sink:sinks=0.5 --out {tmp}/out": "sinks is '0.5', but must be a whole number",
    "trace --out=": "'' cannot be written: it has no name",
    "benchmark --policies fd-kvc:gamma=2": "gamma is 2.0, but must be a number above 0",
    "benchmark --all --baseline fifo": "--all and --baseline cannot be combined",
    "sweep --policy sink --parameter sinks --values 1.5 --out {tmp}/out": (
        "sinks has the value '1.5', but takes whole"
    ),
    "answers --policies oracle --out {tmp}/out": "fdkvc: Oracle looks at the future of the dialog",
    "answers --policies lru --out {tmp}/out": "fdkvc: policy 'lru' is unknown: choose from fifo",
    "answers --budgets 0 --out {tmp}/out": "fdkvc: budget is 0, but must be",
    "answers --decides all --out {tmp}/out": "fdkvc: decides is 'all', but must be",
    "answers --every 0 --out {tmp}/out": "fdkvc: every is 0, but must be",
    "answers --baseline tova --out {tmp}/out": "fdkvc: baseline 'tova' is not among the policies",
    "answers --workers 0 --out {tmp}/out": f"fdkvc: workers is 0, {WORKERS}",
    "answers --model nowhere --out {tmp}/out": "fdkvc: the model 'nowhere' cannot be loaded",
    "answers --dialogs nowhere --out {tmp}/out": "fdkvc: the file 'nowhere' cannot be read",
    "answers --out {tmp}/{longest}": "{longest}.unfinished' cannot be written: file",
    "app --model {long}": "the model '{long}' does not exist",
    "answers --model {long} --out {tmp}/out": "'{long}' cannot be loaded: file name too long",
    "repeat {tmp}/none": "'{tmp}/none' cannot be read: no such file",
    "benchmark --seed {huge}": f"seed is {{huge}}, {SEED}",
    "benchmark --all --dialogs 100000 --out {tmp}/out": (
        "277,600,000 results, but at most 134,217,728"
    ),
    "benchmark --policies fd-kvc:key=fifo": "'key' is not a hyperparameter of fd-kvc",
    "benchmark --policies \x1b[31m": (
        f"policy '\\x1b[31m' is unknown: choose from {', '.join(POLICIES)}"
    ),
    "benchmark \x1b[31m": "unrecognized arguments: \\x1b[31m",
    "trace --policy fd-kvc:gamma=0.8:gamma=0.9 --out {tmp}/out": (
        "'gamma' is given twice in 'fd-kvc:"
    ),
    "trace --schedule {letters} --out {tmp}/out": "has 3,000 turns, but at most 2,048",
    "trace --schedule {turns} --policy full --out {tmp}/out": (
        "up to 1,444,800 entries, but at most 1,000,000"
    ),
    "sweep --parameter gamma --scenario adaptation --out {tmp}/out": (
        "no late metrics to sweep: choose from shift"
    ),
    "sweep --parameter gamma --values {many} --out {tmp}/out": (
        f"values, but at most {MAX_RUN_NAMES} are"
    ),
    "repeat {tmp}/pipe": "'{tmp}/pipe' cannot be read: it is not a",
    "dialogs --dialogs {tmp}/pipe": "'{tmp}/pipe' cannot be read: it is not a",
    "dialogs --dialogs no.json": "the file 'no.json' cannot be read",
    "dialogs --dialogs ''": "the file '' cannot be read: no such file",
    "answers --dialogs '' --out {tmp}/out": "the file '' cannot be read: no such file",
    "forgot ''": "the file '' cannot be read: no such file",
    "dialogs --dialogs {tmp}/file": "line 1 has no speaker",
    "dialogs --baseline tova": "baseline 'tova' is not among the policies",
    "dialogs --plan --policies full oracle fifo": "--plan needs policies that a real cache can",
    "dialogs --json --tables": "--tables and --json cannot be combined",
    "dialogs --plan --minutes 3": "--minutes are for a model: give --model",
    "dialogs --plan --target 80": "target is '80', but must be one of 90, 95, 99",
    "dialogs --plan --today vllm": "today is 'vllm', but must be one of ollama",
    "dialogs --today ollama:2048": "--today is for a plan: give --plan, too",
    "dialogs --target 90": "--target is for a plan: give --plan, too",
    "dialogs --model smollm2": "--model is for a plan: give --plan, too",
    "dialogs --plan gpt": "shape 'gpt' is unknown",
    "live --model {tmp} --budgets 0 --out {tmp}/out": (
        "budget is 0, but must be a whole number from 1 to 8,192"
    ),
    "trace": "arguments are required: --out",
    "report": "invalid choice: 'report' (choose from",
    "train": "invalid choice: 'train' (choose from",
    "": "arguments are required: COMMAND (see",
}


def assert_one_line(capsys: CAPTURED, sentence: str) -> None:
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("fdkvc: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_ends_in_one_sentence_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED, line: str
) -> None:
    def begin(*_: object) -> None:
        raise AssertionError("the run began")

    monkeypatch.setattr(benchmark_module, "run_job", begin)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("nothing")
    os.mkfifo(tmp_path / "pipe")

    def filled(text: str) -> str:
        for name, value in {"{tmp}": str(tmp_path), **LONG}.items():
            text = text.replace(name, value)
        return text

    assert main(shlex.split(filled(line))) == 2
    assert_one_line(capsys, filled(MISTAKES[line]))
    assert {path.name for path in tmp_path.iterdir()} == {"file", "pipe"}


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (MemoryError(), "not enough memory"),
        (KeyboardInterrupt(), "interrupted; files are written whole or not at all"),
        (OSError(36, "File name too long", "x" * 300), "xxx': file name too long"),
        (OSError(12, "Cannot allocate memory"), "system refused: cannot allocate"),
        (SystemExit(0), "this project ended the run (SystemExit: 0)"),
        (SystemExit("bye"), "this project ended the run (SystemExit: bye)"),
    ],
)
def test_an_error_of_the_system_is_a_sentence_wherever_it_comes_from(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: CAPTURED,
    error: BaseException,
    sentence: str,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(benchmark_module, "run_job", fail)
    code = 130 if isinstance(error, KeyboardInterrupt) else 2
    assert run("benchmark", "--dialogs", "2", "--out", tmp_path / "out") == code
    assert list(tmp_path.iterdir()) == []
    assert_one_line(capsys, sentence)


HELP = """
import sys
from fdkvc.commands.main import main
from fdkvc.commands.parser import build_parser

for names, heavy in (
    # These show neither the options of settings nor formats of dialogs.
    (("", "app", "trace", "repeat"), {"numpy"}),
    (sys.argv[1:], {"altair", "streamlit", "torch", "pandas.core", "scipy"}),
):
    for name in names:
        assert main([*filter(None, [name]), "--help"]) == 0
        assert not heavy & {*sys.modules}, (name, heavy & {*sys.modules})
"""


def test_help_explains_and_loads_nothing_heavy() -> None:
    done = ended(sys.executable, "-c", HELP, *COMMANDS)
    assert (done.returncode, done.stderr) == (0, "")
    assert {f"usage: python -m fdkvc {name} " for name in COMMANDS} <= {
        line[: line.index("[")] for line in done.stdout.splitlines() if line.startswith("usage: ")
    }


def test_the_process_ends_with_the_code_and_the_sentence() -> None:
    done = ended(sys.executable, "-m", "fdkvc", "benchmark", "--budget", "0")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"fdkvc: budget is 0, {BUDGET}\n"


TRACE = "-m fdkvc trace --schedule AB --out"


@pytest.mark.long
def test_a_reader_who_has_seen_enough_is_no_mistake(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, *TRACE.split(), str(tmp_path / "out")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 0
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"README.md", "entries.csv", "turns.csv"}


def test_the_latency_that_is_written_is_the_one_that_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(
        policies: Sequence[Policy], budget: int, seed: int, on_progress: None
    ) -> dict[str, float]:
        assert (budget, seed) == (30, 9)
        return {policy.name: 0.5 + place for place, policy in enumerate(policies)}

    monkeypatch.setattr(study_module, "measure_latency", measure)
    options = ("--dialogs", "2", "--scenarios", "shift", "--budget", "30", "--seed", "9")
    assert run("benchmark", *options, "--out", tmp_path) == 0
    latency = pd.read_csv(tmp_path / "latency.csv")
    np.testing.assert_allclose(latency.ms_per_turn, [0.5, 1.5, 2.5, 3.5])
    np.testing.assert_allclose(latency.ratio_to_fifo, [1, 3, 5, 7])
