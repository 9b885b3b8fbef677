"""The results of benchmarks, studies and sweeps, beside the paper's figures: files and texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, Unpack

import pandas as pd

from fdkvc.core.words import count, decimal, listed, p_value, short, uncapitalized
from fdkvc.engine.metrics import METRICS, late_metric
from fdkvc.paper.benchmark import (
    ADAPTATION,
    Benchmark,
    Results,
    late_metrics,
    run_benchmark,
)
from fdkvc.paper.replication import tables
from fdkvc.paper.replication.cells import (
    MeasuredTable,
    cells_table,
    marked_words,
    measured_tables,
    sign_of,
)
from fdkvc.paper.replication.claims import claim_results, claims_table
from fdkvc.paper.replication.facts import BENCHMARK, Fact, facts
from fdkvc.paper.replication.finding import finding_text
from fdkvc.paper.replication.rules import LEGEND, RULES
from fdkvc.paper.study import Study, run_study
from fdkvc.paper.sweep import Sweep
from fdkvc.policies import baseline_of
from fdkvc.runs.base import Run
from fdkvc.runs.grid import PLACES, Grid, pivot
from fdkvc.runs.jobs import Execution
from fdkvc.runs.record import Record

ALIGNMENT = (
    "Alignment is with the topic projected by the value matrix. The published alignments\n"
    "are close to those of unrelated vectors, and the paper's t-tests find no difference\n"
    "(Section 5.6)."
)

UNTESTED = {"too few": "too few dialogs", "same": "the same in every dialog"}
"""What is shown instead of p where a test is not possible, by its verdict."""

FINISHED = {"finished": dict[str, int] | None}
"""How many dialogs of each scenario a cancelled run finished."""


@dataclass(frozen=True, eq=False)
class BenchmarkRun(Run):
    """A benchmark with its latencies."""

    kind = "benchmark"
    settings_type = Benchmark
    depends: ClassVar = {"baseline": str, **FINISHED}

    study: Study
    """The results and the latencies; in a `StudyRun`, also all else that a study measures."""
    baseline: str = ""
    """The policy to compare with; `baseline_of` by default."""

    def __post_init__(self) -> None:
        if not self.baseline:
            # The class is frozen, and the default depends on the settings.
            object.__setattr__(self, "baseline", baseline_of(self.settings.policies))

    @classmethod
    def again(cls, record: Record, sources: Any, **execution: Unpack[Execution]) -> Run:
        return cls(Study(run_benchmark(record.settings, **execution)), record.baseline)

    @property
    def results(self) -> Results:
        """The results of its dialogs."""
        return self.study.results

    @property
    def settings(self) -> Benchmark:
        return self.results.benchmark

    @property
    def seconds(self) -> float:
        return self.results.seconds

    @property
    def dependencies(self) -> dict[str, Any]:
        return {"baseline": self.baseline, "finished": finished(self.results)}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        return {
            "summary.csv": tables.summary_table(self.results),
            "adaptation.csv": tables.adaptation_table(self.results),
            "paired.csv": tables.paired_table(self.results, self.baseline),
        }

    @property
    def timed(self) -> dict[str, pd.DataFrame | str]:
        return {"latency.csv": tables.latency_table(self.study)}

    @property
    def text(self) -> str:
        by_source: dict[str, list[Fact]] = {BENCHMARK: [], ADAPTATION: []}
        for fact in facts(self.results):
            by_source.setdefault(fact.source, []).append(fact)
        means = f"Last turns of {count(self.settings.dialogs, 'dialog')} per scenario, means"
        turns = "Turns from a change of topic to 80 % retention of the new one"
        parts = [
            facts_text(means, by_source[BENCHMARK], ["scenario", "policy"]),
            facts_text(turns, by_source[ADAPTATION], ["policy"]),
            undefined_text(self.results),
            _paired_text(self.results, self.baseline),
            _latency_text(self.study),
        ]
        return "\n\n\n".join(filter(None, parts))


@dataclass(frozen=True, eq=False)
class StudyRun(BenchmarkRun):
    """A benchmark with all other tables, figures and claims of the paper."""

    kind = "study"
    depends: ClassVar = FINISHED

    @classmethod
    def measure(cls, benchmark: Benchmark, **execution: Unpack[Execution]) -> StudyRun:
        """Run a study."""
        return cls(run_study(benchmark, **execution))

    @classmethod
    def again(cls, record: Record, sources: Any, **execution: Unpack[Execution]) -> Run:
        return cls.measure(record.settings, **execution)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        results = self.results
        files = {
            **super().tables,
            "series.csv": tables.series_table(results),
            "alignments.csv": tables.alignments_table(results),
            "alignment_differences.csv": tables.differences_table(results),
            "dialogs.csv": dialogs_table(results),
        }
        for parameter, swept in self.study.sweeps.items():
            files[f"sweep_{parameter}.csv"] = tables.sweep_table(swept, parameter)
        return files

    @property
    def timed(self) -> dict[str, pd.DataFrame | str]:
        # Latencies are among the cells and claims, so these differ from run to run, too.
        measured = measured_tables(self.study)
        return {
            **super().timed,
            "cells.csv": cells_table(measured),
            "claims.csv": claims_table(claim_results(self.study)),
            "cost.csv": tables.cost_table(self.study),
            "tables.md": markdown(measured),
        }

    @property
    def text(self) -> str:
        finding = "\n".join(finding_text(self.study))
        return f"{markdown(measured_tables(self.study))}\n{finding}".strip()


@dataclass(frozen=True, eq=False)
class SweepRun(Run):
    """A sweep of a hyperparameter."""

    kind = "sweep"
    settings_type = Sweep
    depends: ClassVar = FINISHED

    settings: Sweep
    results: Results

    @classmethod
    def measure(
        cls, sweep: Sweep, *, chunk: int | None = None, **execution: Unpack[Execution]
    ) -> SweepRun:
        """Run a sweep; `chunk` as for `run_benchmark`."""
        return cls(sweep, run_benchmark(sweep.benchmark, chunk=chunk, **execution))

    @classmethod
    def again(cls, record: Record, sources: Any, **execution: Unpack[Execution]) -> Run:
        return cls.measure(record.settings, **execution)

    @property
    def seconds(self) -> float:
        return self.results.seconds

    @property
    def dependencies(self) -> dict[str, Any]:
        return {"finished": finished(self.results)}

    @property
    def table(self) -> pd.DataFrame:
        """Every setting with its metrics, and published figures."""
        return tables.sweep_table(self.results, self.settings.parameter)

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        return {"sweep.csv": self.table}

    @property
    def text(self) -> str:
        dialogs = count(self.settings.dialogs, "dialog")
        title = f"{self.settings.scenario.label}, last turns of {dialogs}, means"
        measured = facts(self.results, self.settings.parameter)
        parts = [facts_text(title, measured, ["policy"]), undefined_text(self.results)]
        return "\n\n".join(filter(None, parts))


def finished(results: Results) -> dict[str, int] | None:
    """Return how many dialogs of each scenario a cancelled run finished, None if all."""
    keys = [scenario.key for scenario in results.benchmark.scenarios]
    return None if results.complete else {key: results.dialogs(key) for key in keys}


def dialogs_table(results: Results) -> pd.DataFrame:
    """Return every number of every dialog: scenario, policy, metric, dialog (from 0) and value."""
    columns = ["scenario", "policy", "metric", "dialog", "value"]
    parts = []
    for scenario, by_policy in results.measured.items():
        for policy, scores in by_policy.items():
            for metric, values in scores.values.items():
                cells = scenario, policy, metric, range(len(values)), values
                parts.append(pd.DataFrame(dict(zip(columns, cells, strict=True))))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def markdown(measured: list[MeasuredTable]) -> str:
    """Return the measured tables as Markdown, with published figures in brackets."""
    parts = []
    for table in measured:
        rows = []
        for row, label in table.rows.items():
            cells = (table.cells.get((row, column)) for column in table.columns)
            rows.append([label, *("" if cell is None else _text(cell) for cell in cells)])
        grid = Grid([table.corner, *table.columns.values()], rows)
        parts.append(f"### {table.heading}\n\n{grid.markdown()}")
    legend = "\n".join(f"- {rule}" for rule in LEGEND)
    signs = ", ".join(f"{rule.sign} {rule.verdict}" for rule in RULES)
    note = (
        f"Measured ± half-width of the 95 % interval (published, verdict): {signs}; {PLACES}."
    )
    return "\n\n".join([*parts, note, legend]) + "\n"


def _text(fact: Fact) -> str:
    words = marked_words(fact)
    if fact.published is None:
        return words
    return f"{words} ({fact.published.words} {sign_of(fact)}".rstrip() + ")"


# ------------------------------------------------------------------------------- a terminal


def facts_text(title: str, measured: Sequence[Fact], rows: Sequence[str]) -> str:
    """Return measured figures with the published ones in brackets, a column for each metric."""
    if not measured:
        return ""
    grid = pivot(pd.DataFrame(measured), [*map(_text, measured)], rows, "metric", metric_name)
    note = "± half-width of the 95 % interval (published figure, verdict)"
    if any(fact.place for fact in measured):
        note += f"\n{PLACES}"
    if any(fact.metric == "late_alignment" and fact.published for fact in measured):
        note += "\n\n" + ALIGNMENT
    return f"{title}:\n{note}\n\n{grid.text(grouped=len(rows) > 1)}"


def undefined_text(results: Results) -> str:
    """Name the metrics that some dialogs of a scenario have no value of; "" if there are none."""
    benchmark = results.benchmark
    policy = benchmark.names[0]
    undefined = []
    for scenario, name in product(benchmark.scenarios, late_metrics(benchmark)):
        values = results.values(scenario.key, policy, name)
        if (
            values is None
            and scenario.key in results.reported
            and results.dialogs(scenario.key)
        ):
            undefined.append(f"{uncapitalized(late_metric(name).label)} on {scenario.label}")
    words = "Not shown, as some dialogs have no value of it"
    return f"{words}: {listed(undefined)}." if undefined else ""


def metric_name(name: str) -> str:
    """Return the heading of a metric, or of a statistic of the adaptation."""
    if not name.startswith("late_") and name not in METRICS:
        return name
    return late_metric(name).heading(late_metric(name).label.lower())


def _paired_text(results: Results, baseline: str) -> str:
    rows = []
    for scenario, name, policy, test in tables.comparisons(results, baseline):
        low, high = (test.low, test.high) if test.sd > 0 else (math.nan, math.nan)
        difference = late_metric(name).figure(test.mean, low, high, signs=True)
        t = decimal(test.t, 1)
        p = p_value(test.p)
        if test.verdict in UNTESTED:
            t = ""
            p = UNTESTED[test.verdict]
        rows.append([scenario, metric_name(name), policy, difference, t, p])
    if not rows:
        return ""
    return (
        f"Paired differences from {baseline} over the same dialogs, with the 95 % interval\n\n"
        + Grid(["scenario", "metric", "policy", "difference", "t", "p"], rows, 3).text(
            grouped=True
        )
    )


def _latency_text(study: Study) -> str:
    table = tables.latency_table(study)
    rows = [[*map(short, row.values())] for row in table.to_dict("records")]
    grid = Grid(["policy", "ms", "times FIFO's", "published ms"], rows)
    return f"Time of a turn of one dialog\n\n{grid.text()}"
