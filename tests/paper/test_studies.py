"""A whole study as files: complete, tidy, the same again, and as text that others can read."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import zipfile
from functools import cache
from pathlib import Path

import pandas as pd
import pytest

from fdkvc.core.statistics import holm
from fdkvc.engine.metrics import metrics_of
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.claims import CLAIMS
from fdkvc.paper.replication.cells import measured_tables
from fdkvc.paper.replication.rules import RULES, SIGNS
from fdkvc.paper.results import BenchmarkRun, StudyRun, SweepRun, latex, markdown
from fdkvc.paper.study import Study, run_study
from fdkvc.paper.sweep import Sweep
from fdkvc.policies import POLICIES, policy_named
from fdkvc.runs.export import as_zip
from fdkvc.runs.grid import as_tex
from fdkvc.runs.record import digest
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.studies import few_dialogs, paper_tables


@cache
def files() -> dict[str, str]:
    return StudyRun(few_dialogs()).files


def frame(name: str) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(files()[name]))


def test_the_benchmarks_files_are_among_them_byte_for_byte() -> None:
    study = few_dialogs()
    expected = BenchmarkRun(
        Study(run_benchmark(study.results.benchmark), latencies=tuple(study.latencies))
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


def test_the_claims_cells_and_comparisons_are_there() -> None:
    assert len(frame("claims.csv")) == len(CLAIMS)
    assert set(frame("cells.csv").table) == set(range(1, 8))
    compared = frame("comparison.csv")
    assert set(compared.baseline) == {"h2o"}
    # Older pandas read the last digit of a number otherwise.
    adjusted = holm(compared.p.dropna()).tolist()
    assert compared.p_holm.dropna().tolist() == pytest.approx(adjusted, rel=1e-12)
    unsure = compared[compared.p_holm >= 0.05]
    assert unsure.words.str.startswith("not significant").all()
    assert set(compared.policy) == {"fifo", "sink", "fd-kvc"}


def test_run_json_has_the_digest_of_every_file_without_times() -> None:
    digests = json.loads(files()["run.json"])["digests"]
    assert set(digests) == set(files()) - {*StudyRun(few_dialogs()).timed, "run.json"}
    assert all(digest(files()[name]) == known for name, known in digests.items())


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
    assert "50.0 (50.0% ✓)" in text


def test_latex_has_every_table_and_no_sign_that_plain_latex_lacks() -> None:
    text = latex(paper_tables())
    assert text.count(r"\begin{table}") == text.count(r"\end{tabular}") == 7
    assert text.isascii()
    body = "\n".join(line for line in text.splitlines() if not line.startswith("%"))
    for at, sign in enumerate(body):
        if sign == "%":
            assert body[at - 1] == "\\"
    assert r"50.0 (50.0\% $\checkmark$)" in text
    assert r"$\gamma$, recency decay rate" in text
    assert r"$w_c$, cumulative weight" in text
    assert r"$w_\rho$, recency weight" in text


NO_TEX = "there is no pdflatex: get it with `apt-get install texlive-latex-recommended`"


def test_latex_is_set_by_a_real_engine(tmp_path: Path) -> None:
    engine = shutil.which("pdflatex")
    if engine is None:
        if os.environ.get("FDKVC_REQUIRE_TEX") == "1":
            pytest.fail(NO_TEX)
        pytest.skip(NO_TEX)
    every = (*map(policy_named, POLICIES), policy_named("fd-kvc", gamma=0.8, w_c=0.3, alpha_0=0.2))
    metrics = tuple(metrics_of())
    benchmark = Benchmark((SCENARIOS["return"],), every, dialogs=2, metrics=metrics)
    tables = measured_tables(Study(run_benchmark(benchmark)))
    body = f"{latex(paper_tables())}\n\\clearpage\n{latex(tables)}"
    (tmp_path / "all.tex").write_text(
        "\\documentclass{article}\n\\usepackage{booktabs,amssymb}\n"
        f"\\begin{{document}}\n{body}\n\\end{{document}}\n"
    )

    command = [engine, "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout[-2000:]
    assert "Missing character" not in done.stdout
    assert (tmp_path / "all.pdf").stat().st_size > 10_000


def test_every_verdict_has_its_sign_wherever_tables_are_told() -> None:
    signs = [rule.sign for rule in RULES]
    assert len(set(signs)) == len(set(SIGNS)) == len(RULES)
    for rule in RULES:
        assert f"{rule.sign} {rule.verdict}" in markdown(paper_tables())
        assert f"**{rule.verdict.capitalize()}**: {rule.meaning}" in markdown(paper_tables())
        named = as_tex(rule.sign).strip("$\\")
        assert f"{named} {rule.verdict}" in latex(paper_tables()).split("\n")[1]


def test_a_sweep_of_one_has_the_ablations_file_and_a_sweep_of_two_has_not() -> None:
    one = Sweep(axes=(("gamma", (0.8,)),), dialogs=2)
    two = Sweep(axes=(("gamma", (0.8,)), ("w_c", (0.4,))), dialogs=2)
    names = [list(SweepRun(sweep, run_benchmark(sweep.benchmark)).files) for sweep in (one, two)]
    assert names == [["sweep.csv", "ablation.csv", "run.json"], ["sweep.csv", "run.json"]]


def test_a_study_without_late_metrics_has_its_files_all_the_same() -> None:
    scenario = Benchmark().scenarios[-1]
    few = StudyRun(run_study(Benchmark(scenarios=(scenario,), dialogs=2))).files
    assert set(few) == set(files())
    assert few["comparison.csv"].count("\n") == 1
