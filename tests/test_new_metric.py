"""A new metric is one entry: pages, commands, verdicts and files follow."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from app_pages import html, open_page, specs

from fdkvc.__main__ import main
from fdkvc.attention import Floats
from fdkvc.dialogs.batch import DialogBatch
from fdkvc.dialogs.scenarios import SCENARIOS
from fdkvc.files.report import study_files
from fdkvc.measured.benchmark import Benchmark, run_benchmark
from fdkvc.measured.study import Study
from fdkvc.policies import policy_named
from fdkvc.run import metrics
from fdkvc.run.evidence import Evidence
from fdkvc.run.metrics import Metric
from fdkvc.run.trace import Trace


def fill(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of the budget's slots that hold an entry (B, T)."""
    return np.asarray((trace.kept >= 0).mean(axis=2), np.float32)


def met(evidence: Evidence) -> float:
    """Count the demands of a dialog that any head meets."""
    return sum(bool(answer.met.any()) for answer in evidence.answers)


ALWAYS = Metric("fill", "Fill", "How full the cache is.", fill)
ASKED = Metric("asked_fill", "Fill when asked", "The same.", fill, asked=True, percent=False)
MET = Metric("met", "Demands met", "How many.", met, needs="evidence", whole=True, percent=False)
ASKED_MET = Metric("asked_met", "Met when asked", "The same.", met, "evidence", True, whole=True)
SEED = 4321
"""Of dialogs that no other test has run, since pages keep what was run."""


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    new = {each.key: each for each in (ALWAYS, ASKED, MET, ASKED_MET)}
    monkeypatch.setattr(metrics, "METRICS", {**metrics.METRICS, **new})


def run(command: str, folder: Path) -> None:
    assert main([*command.split(), "--out", str(folder)]) == 0


@pytest.mark.parametrize("page", ["step", "compare"])
def test_a_page_shows_it(page: str) -> None:
    app = open_page(page, seed=SEED, metrics=ASKED.key)

    assert not app.error
    written = f"{specs(app)} {html(app)}".lower()
    assert '"fill"' in written.replace("'", '"')
    assert ASKED.label.lower() in written


def test_the_dialogs_page_shows_what_needs_evidence() -> None:
    app = open_page("dialogs", {"dialogs/sections": "Evidence"})

    assert MET.label in html(app)
    assert ASKED_MET.label not in html(app)


def test_the_trace_command_writes_it(tmp_path: Path) -> None:
    run(f"trace --schedule AB --metrics {ASKED.key}", tmp_path)

    turns = pd.read_csv(tmp_path / "turns.csv")
    assert turns[ALWAYS.key].tolist() == turns[ASKED.key].tolist() == [pytest.approx(32 / 56), 1]


def test_a_study_measures_and_judges_it() -> None:
    policies = (policy_named("fifo"), policy_named("h2o"))
    results = run_benchmark(Benchmark((SCENARIOS["shift"],), policies, dialogs=3, series=True))
    files = study_files(Study(results))

    summary = pd.read_csv(StringIO(files["summary.csv"]))
    assert (summary[summary.metric == ALWAYS.name]["mean"] == 1).all()
    assert ASKED.name not in set(summary.metric)
    series = pd.read_csv(StringIO(files["series.csv"]))
    assert ALWAYS.key in set(series.quantity)
    cells = pd.read_csv(StringIO(files["cells.csv"])).set_index("table")
    assert cells.loc[ALWAYS.key].measured.tolist() == [1, 1]
    assert cells.loc[ALWAYS.key].verdict.isna().all()  # the paper prints nothing
    assert f"{ALWAYS.title}, %" in files["tables.md"]


def test_a_benchmark_measures_it_when_it_is_asked_for(tmp_path: Path) -> None:
    run(f"benchmark --dialogs 2 --scenarios shift --metrics {ASKED.key}", tmp_path)

    paired = pd.read_csv(tmp_path / "paired.csv")
    assert set(paired.metric) == {ASKED.name}
    assert (paired.mean_diff == 0).all()


def test_a_replay_measures_it(tmp_path: Path) -> None:
    asked = [ALWAYS, ASKED, ASKED_MET]
    keys = " ".join(each.key for each in asked)
    run(f"dialogs --policies fifo full --budgets 32 --metrics {keys}", tmp_path)

    table = pd.read_csv(tmp_path / "replay.csv").pivot(
        index=["dialog", "policy"], columns="metric", values="value"
    )
    assert {MET.name, *(each.name for each in asked)} <= set(table)
    pd.testing.assert_series_equal(table[MET.name], table[ASKED_MET.name], check_names=False)
    held = table[MET.name].unstack("policy")
    assert (held["full"] > held["fifo"]).all()
