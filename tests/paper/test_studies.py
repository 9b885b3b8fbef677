"""A whole study as files: complete, tidy, the same again, and as text that others can read."""

from __future__ import annotations

import csv
import io
import zipfile
from functools import cache

import pandas as pd
import pytest

from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.replication.rules import RULES, SIGNS
from fdkvc.paper.results import BenchmarkRun, StudyRun, markdown
from fdkvc.paper.study import Study, run_study
from fdkvc.runs.export import as_zip
from tests.studies import few_dialogs, paper_tables


@cache
def files() -> dict[str, str]:
    return StudyRun(few_dialogs()).files


def frame(name: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(files()[name]))


def test_the_benchmarks_files_are_among_them_byte_for_byte() -> None:
    study = few_dialogs()
    expected = BenchmarkRun(
        Study(run_benchmark(study.results.benchmark), latencies=study.latencies)
    ).files
    for name in ("summary.csv", "adaptation.csv", "paired.csv", "latency.csv"):
        assert files()[name] == expected[name]


def test_every_table_is_tidy() -> None:
    for name, text in files().items():
        if name.endswith(".csv"):
            rows = list(csv.reader(io.StringIO(text)))
            assert len({len(row) for row in rows}) == 1, name
            assert len(set(rows[0])) == len(rows[0]), name
            assert len(rows) > 1, name


def test_every_number_of_every_dialog_is_there() -> None:
    table = frame("dialogs.csv")
    values = few_dialogs().results.values("mixed", "fd-kvc", "late_retention")
    assert values is not None
    rows = table[
        (table.scenario == "mixed")
        & (table.policy == "fd-kvc")
        & (table.metric == "late_retention")
    ]
    assert rows.dialog.tolist() == list(range(6))
    assert rows.value.astype("float32").tolist() == values.tolist()


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_study_gives_the_same_bytes_apart_from_times(workers: int) -> None:
    again = StudyRun(run_study(few_dialogs().results.benchmark, workers=workers)).files
    for name in set(files()) - {*StudyRun(few_dialogs()).timed, "run.json"}:
        assert again[name] == files()[name], name


def test_an_archive_holds_the_files_and_is_the_same_each_time() -> None:
    packed = as_zip(files())
    assert packed == as_zip(files())
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name).decode() for name in archive.namelist()} == files()


def test_markdown_has_every_table_with_rows_of_equal_length() -> None:
    text = markdown(paper_tables())
    for number in range(1, 8):
        assert f"### Table {number}: " in text
    blocks = [block for block in text.split("\n\n") if block.startswith("| ")]
    assert len(blocks) == 7
    for block in blocks:
        assert len({line.count("|") for line in block.splitlines()}) == 1
    assert "50.0 (50.0 % ✓)" in text


def test_every_verdict_has_its_sign_wherever_tables_are_told() -> None:
    signs = [rule.sign for rule in RULES]
    assert len(set(signs)) == len(set(SIGNS)) == len(RULES)
    for rule in RULES:
        assert f"{rule.sign} {rule.verdict}" in markdown(paper_tables())
        assert f"**{rule.verdict.capitalize()}**: {rule.meaning}" in markdown(paper_tables())


def test_a_study_without_late_metrics_has_its_files_all_the_same() -> None:
    scenario = Benchmark().scenarios[-1]
    few = StudyRun(run_study(Benchmark(scenarios=(scenario,), dialogs=2))).files
    assert set(few) == set(files())
    assert few["paired.csv"].count("\n") == 1
