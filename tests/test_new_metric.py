"""A new metric is one entry: pages, commands and files follow, a verdict where one is published."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import cast

import numpy as np
import pandas as pd
import pytest

from fdkvc.commands.main import main
from fdkvc.core.attention import Floats
from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.evidence import Evidence
from fdkvc.engine.metrics import METRICS, Metric
from fdkvc.engine.trace import Trace
from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.replication.cells import cells_table, measured_tables
from fdkvc.paper.study import Study
from fdkvc.policies import policy_named
from fdkvc.synthetic.scenarios import SCENARIOS
from fdkvc.ui.run_panel import shared_jobs
from tests.app_pages import html, open_page, specs


def fill(trace: Trace, dialogs: DialogBatch) -> Floats:
    """Share of the budget's slots that hold an entry (B, T)."""
    return np.asarray((trace.kept_tokens >= 0).mean(axis=2), np.float32)


def met(evidence: Evidence) -> float:
    """Count the demands of a dialog that any head meets."""
    return sum(bool((turns < 0).any()) for turns in evidence.lost)


ALWAYS = Metric("fullness", "Fullness", "How full the cache is.", fill)
ASKED = Metric("asked_fullness", "Fullness when asked", "The same.", fill, optional=True, unit="")
MET = Metric("met", "Demands met", "How many.", met, needs="evidence", all_turns=True, unit="")
ASKED_MET = Metric(
    "asked_met", "Met when asked", "The same.", met, "evidence", True, all_turns=True
)
SEED = 4321
"""Of dialogs that no other test has run, since pages keep what was run."""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Leave no run with these metrics to the pages of other tests."""
    yield
    shared_jobs.clear()


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    import_module("fdkvc.ui.sidebar")  # fields that it makes once are those of every day
    for metric in (ALWAYS, ASKED, MET, ASKED_MET):
        monkeypatch.setitem(cast("dict[str, Metric]", METRICS), metric.key, metric)


def run(command: str, folder: Path) -> None:
    assert main([*command.split(), "--out", str(folder)]) == 0


@pytest.mark.parametrize("page", ["step", "compare"])
def test_a_page_shows_it(page: str) -> None:
    app = open_page(page, seed=SEED)

    assert not app.error
    written = f"{specs(app)} {html(app)}".lower()
    assert ALWAYS.label.lower() in written
    assert ASKED.label.lower() not in written


def test_the_trace_command_writes_it(tmp_path: Path) -> None:
    run(f"trace --schedule AB --metrics {ASKED.key}", tmp_path)

    turns = pd.read_csv(tmp_path / "turns.csv")
    assert turns[ALWAYS.key].tolist() == turns[ASKED.key].tolist() == [pytest.approx(32 / 56), 1]


def test_it_has_a_table_with_verdicts() -> None:
    policies = (policy_named("fifo"), policy_named("h2o"))
    results = run_benchmark(Benchmark((SCENARIOS["shift"],), policies, dialogs=3))
    tables = measured_tables(Study(results))

    assert f"{ALWAYS.title}, %" in [table.title for table in tables]
    cells = cells_table(tables).set_index("table").loc[ALWAYS.key]
    assert cells.measured.tolist() == [1, 1]
    assert cells.verdict.isna().all()  # the paper prints nothing


def test_a_benchmark_measures_it_always_or_when_asked(tmp_path: Path) -> None:
    run("benchmark --dialogs 2 --scenarios shift", tmp_path / "always")
    run(f"benchmark --dialogs 2 --scenarios shift --metrics {ASKED.key}", tmp_path / "asked")

    always = pd.read_csv(tmp_path / "always/summary.csv").set_index("metric")
    assert (always.loc[ALWAYS.name]["mean"] == 1).all()
    assert ASKED.name not in always.index
    paired = pd.read_csv(tmp_path / "asked/paired.csv")
    assert set(paired.metric) == {ASKED.name}
    assert (paired.mean_diff == 0).all()


def test_a_replay_measures_it(tmp_path: Path) -> None:
    asked = [ALWAYS, ASKED, ASKED_MET]
    keys = " ".join(metric.key for metric in asked)
    run(f"dialogs --policies fifo full --budgets 32 --metrics {keys}", tmp_path)

    table = pd.read_csv(tmp_path / "replay.csv").pivot(
        index=["dialog", "policy"], columns="metric", values="value"
    )
    assert {MET.name, *(metric.name for metric in asked)} <= set(table)
    pd.testing.assert_series_equal(table[MET.name], table[ASKED_MET.name], check_names=False)
    held = table[MET.name].unstack("policy")
    assert (held["full"] > held["fifo"]).all()
