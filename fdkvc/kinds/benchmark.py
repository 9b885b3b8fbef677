"""Benchmarks and studies: policies on synthetic scenarios, beside the paper's figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Unpack

import pandas as pd

from fdkvc.experiments.benchmark import (
    ADAPTATION,
    Benchmark,
    Results,
    default_baseline,
    late_metrics,
    run_benchmark,
)
from fdkvc.experiments.jobs import Execution
from fdkvc.experiments.statistics import Paired
from fdkvc.experiments.study import Study, run_study
from fdkvc.files.record import Record
from fdkvc.grid import Grid
from fdkvc.kinds.base import Run
from fdkvc.kinds.sources import Sources
from fdkvc.replication import tables
from fdkvc.replication.cells import (
    MeasuredTable,
    cells_table,
    figure_words,
    measured_tables,
    reproduced_sentence,
    sign_of,
    verdicts_of,
)
from fdkvc.replication.claims import claims_table, judged_claims
from fdkvc.replication.judge import PERCENTILES, Fact
from fdkvc.replication.projections import alignments_table, differences_table
from fdkvc.replication.rules import LEGEND, RULES
from fdkvc.run.metrics import Metric, late_metric, metric_named
from fdkvc.words import count, decimal, minus, plus_minus, short

FINISHED = {"finished": dict[str, int] | None}
"""How many dialogs of each scenario a cancelled run finished."""


@dataclass(frozen=True, eq=False)
class BenchmarkRun(Run):
    """A benchmark with its latencies."""

    kind = "benchmark"
    settings_type = Benchmark
    depends: ClassVar = {"baseline": str, **FINISHED}

    study: Study
    baseline: str = ""
    """The policy to compare with; `default_baseline` by default."""

    def __post_init__(self) -> None:
        if not self.baseline:
            object.__setattr__(self, "baseline", default_baseline(self.settings.policies))

    @classmethod
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        """Run the benchmark without the latencies, which are not compared."""
        return cls(Study(run_benchmark(record.settings, **how)), record.baseline)

    @property
    def results(self) -> Results:
        """The results of its dialogs."""
        return self.study.results

    @property
    def settings(self) -> Benchmark:
        """What ran."""
        return self.results.benchmark

    @property
    def seconds(self) -> float:
        """The time that its dialogs took."""
        return self.results.seconds

    @property
    def about(self) -> dict[str, Any]:
        """The baseline, and what a cancelled run finished."""
        return {"baseline": self.baseline, "finished": finished(self.results)}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The means, the turns to adapt, and the paired differences."""
        return {
            "summary.csv": tables.summary_table(self.results),
            "adaptation.csv": tables.adaptation_table(self.results),
            "paired.csv": tables.paired_table(self.results, self.baseline),
        }

    @property
    def timed(self) -> dict[str, pd.DataFrame | str]:
        """The latencies."""
        return {"latency.csv": tables.latency_table(self.study)}

    @property
    def text(self) -> str:
        """The tables, with published figures."""
        parts = [_summary_text(self.results), _adaptation_text(self.results)]
        parts += [_paired_text(self.results, self.baseline), _latency_text(self.study)]
        return "\n\n\n".join(filter(None, parts))


@dataclass(frozen=True, eq=False)
class StudyRun(BenchmarkRun):
    """A benchmark with all other tables, figures and claims of the paper."""

    kind = "study"
    depends: ClassVar = FINISHED

    @classmethod
    def measure(cls, benchmark: Benchmark, **how: Unpack[Execution]) -> StudyRun:
        """Run a study."""
        return cls(run_study(benchmark, **how))

    @classmethod
    def again(cls, record: Record, sources: Sources, **how: Unpack[Execution]) -> Run:
        """Run the study again."""
        return cls.measure(record.settings, **how)

    @property
    def about(self) -> dict[str, Any]:
        """What a cancelled run finished."""
        return {"finished": finished(self.results)}

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """Those of a benchmark, then the others without times."""
        results, baseline = self.results, self.baseline
        names = [policy.name for policy in self.settings.policies if policy.name != baseline]
        return {
            **super().tables,
            "series.csv": tables.series_table(results),
            "comparison.csv": tables.comparison_table(results, names, baseline),
            "alignments.csv": alignments_table(results),
            "alignment_differences.csv": differences_table(results),
            "dialogs.csv": dialogs_table(results),
            **{
                f"ablation_{parameter}.csv": tables.ablation_table(swept, parameter)
                for parameter, swept in self.study.sweeps.items()
            },
        }

    @property
    def timed(self) -> dict[str, pd.DataFrame | str]:
        """Times, verdicts on them, and the paper's tables as Markdown and LaTeX."""
        measured = measured_tables(self.study)
        return {
            **super().timed,
            "cells.csv": cells_table(measured),
            "claims.csv": claims_table(judged_claims(self.study)),
            "cost.csv": tables.cost_table(self.study),
            "tables.md": markdown(measured),
            "tables.tex": latex(measured),
        }

    @property
    def text(self) -> str:
        """The measured tables of the paper, and the number of each verdict."""
        measured = measured_tables(self.study)
        verdicts = ", ".join(f"{verdict}: {n}" for verdict, n in verdicts_of(measured).items())
        return f"{markdown(measured)}\n{verdicts}\n{reproduced_sentence(measured)}".strip()


def finished(results: Results) -> dict[str, int] | None:
    """Return how many dialogs of each scenario a cancelled run finished, None if all."""
    keys = [scenario.key for scenario in results.benchmark.scenarios]
    return None if results.complete else {key: results.dialogs(key) for key in keys}


def dialogs_table(results: Results) -> pd.DataFrame:
    """Return every number of every dialog: scenario, policy, metric, dialog (from 0) and value."""
    parts = [
        pd.DataFrame(
            {
                "scenario": scenario,
                "policy": policy,
                "metric": metric,
                "dialog": range(len(values)),
                "value": values,
            }
        )
        for scenario, by_policy in results.measured.items()
        for policy, measured in by_policy.items()
        for metric, values in measured.values.items()
    ]
    columns = ["scenario", "policy", "metric", "dialog", "value"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def markdown(measured: list[MeasuredTable]) -> str:
    """Return the measured tables as Markdown, with published figures in brackets."""
    parts = [f"### {table.heading}\n\n{_grid(table).markdown()}" for table in measured]
    legend = "\n".join(f"- {rule}" for rule in LEGEND)
    signs = ", ".join(f"{rule.sign} {rule.verdict}" for rule in RULES)
    note = f"Measured ± half of the 95 % interval (published, verdict): {signs}."
    return "\n\n".join([*parts, note, legend]) + "\n"


def latex(measured: list[MeasuredTable]) -> str:
    """Return the measured tables as LaTeX, with published figures in brackets."""
    signs = ", ".join(rule.tex.removeprefix("\\") + f" {rule.verdict}" for rule in RULES)
    parts = [
        r"% Needs \usepackage{booktabs,amssymb}.",
        f"% Measured, half of the 95 % interval (published, verdict): {signs}.",
    ]
    for table in measured:
        title = f"{table.title}, measured and (published)"
        parts.append(_grid(table).latex(title, f"tab:measured-{table.number}"))
    return "\n".join(parts)


def _grid(table: MeasuredTable) -> Grid:
    rows = [[label, *table.texts(row, _text)] for row, label in table.rows.items()]
    return Grid([table.corner, *table.columns.values()], rows)


def _text(fact: Fact) -> str:
    words = figure_words(fact)
    if not fact.is_published:
        return words
    return f"{words} ({minus(fact.printed)} {sign_of(fact)}".rstrip() + ")"


# ------------------------------------------------------------------------------- a terminal


def _summary_text(results: Results) -> str:
    table = tables.summary_table(results)
    if table.empty:
        return ""
    benchmark = results.benchmark
    cells = beside_published(table, ["scenario", "policy"], benchmark)
    rows = [[*names, *texts] for names, texts in cells.items()]
    header = ["scenario", "policy", *metric_header(benchmark)]
    text = (
        f"Means over the last turns of {count(benchmark.dialogs, 'dialog')} per scenario, "
        f"± half of the 95 % interval\n\n{Grid(header, rows, 2).text(grouped=True)}"
    )
    if table.published[table.metric == "late_alignment"].notna().any():
        text += (
            "\n\nAlignment is with the topic projected by W_V. The published alignments are as "
            "small as\nthose of unrelated vectors, and the paper's t-tests find no difference "
            "(Section 5.6)."
        )
    return text


def metric_header(benchmark: Benchmark) -> list[str]:
    """Return the headings of the columns of `beside_published`."""
    return [word for key in benchmark.metrics for word in (_metric_name(key), "published")]


def _metric_name(key: str) -> str:
    return metric_named(key).heading(metric_named(key).label.lower())


def beside_published(
    table: pd.DataFrame, by: Sequence[str], benchmark: Benchmark
) -> dict[tuple[Any, ...], list[str]]:
    """Return a measured and a published text for each metric, both empty if it is undefined."""
    place = {metric: 2 * at for at, metric in enumerate(late_metrics(benchmark))}
    texts: dict[tuple[Any, ...], list[str]] = {}
    for row in table.to_dict("records"):
        metric = late_metric(row["metric"])
        measured = plus_minus(row["mean"], row["ci_high"], metric.scale, metric.digits)
        figure = metric.scale * row["published"]
        # The paper prints its alignments with a digit more.
        digits = metric.digits if metric.percent else metric.digits + 1
        printed = "" if math.isnan(figure) else decimal(figure, digits)
        cells = texts.setdefault(tuple(row[name] for name in by), [""] * (2 * len(place)))
        at = place[row["metric"]]
        cells[at : at + 2] = measured, printed
    return texts


def _adaptation_text(results: Results) -> str:
    table = tables.adaptation_table(results)
    if table.empty:
        return ""
    rows = []
    for row in table.to_dict("records"):
        values = results.values(ADAPTATION, row["policy"], "never")
        never = 0 if values is None else int(values.sum())
        cells = [row["policy"]]
        for name, text in at_least(row, row["n"], never).items():
            figure = row[f"published_{name}"]
            cells += [text, "" if math.isnan(figure) else f"{figure:g}"]
        rows.append([*cells, str(never)])
    header = ["policy", "mean", "published", "median", "published", "p90", "published", "never"]
    return (
        "Turns from a change of topic to 80 % retention of the new one, "
        f"{count(results.benchmark.dialogs, 'dialog')}\n\n{Grid(header, rows).text()}"
    )


def at_least(turns: Mapping[Any, float], n: int, never: int) -> dict[str, str]:
    """Return mean, median and p90 of the turns to adapt as texts.

    A dialog that never adapts counts with its number of turns, so figures that depend on one get
    ``> ``.

    Examples
    --------
    >>> at_least({"mean": 16, "median": 16, "p90": 16}, n=600, never=600)
    {'mean': '> 16.00', 'median': '> 16', 'p90': '> 16'}
    >>> at_least({"mean": 4.5, "median": 4, "p90": 5}, n=600, never=0)
    {'mean': '4.50', 'median': '4', 'p90': '5'}
    """
    first_never = n - never  # its index in ascending order
    mark = {"mean": never > 0}
    mark |= {name: first_never <= math.ceil(at * (n - 1)) for name, at in PERCENTILES.items()}
    words = {"mean": f"{turns['mean']:.2f}"}
    words |= {name: f"{turns[name]:g}" for name in PERCENTILES}
    return {name: f"> {word}" if mark[name] else word for name, word in words.items()}


def _paired_text(results: Results, baseline: str) -> str:
    rows = []
    for scenario, metric, policy, comparison in tables.comparisons(results, baseline):
        key = metric.removeprefix("late_")
        difference = _difference(comparison, metric_named(key))
        rows.append([scenario, _metric_name(key), policy, *difference])
    if not rows:
        return ""
    header = ["scenario", "metric", "policy", "difference", "t", "p"]
    return (
        f"Paired differences from {baseline} over the same dialogs, ± half of the 95 % interval"
        f"\n\n{Grid(header, rows, 3).text(grouped=True)}"
    )


def _difference(comparison: Paired, metric: Metric) -> list[str]:
    mean = metric.figure(comparison.mean, signs=True)
    match comparison.verdict:
        case "too few":
            return [mean, "", "too few dialogs"]
        case "same" if comparison.mean == 0:
            return ["0", "", "no difference in any dialog"]
        case "same":
            return [mean, "", "the same in every dialog"]
    margin = metric.figure(comparison.high - comparison.mean)
    p = "< 0.001" if comparison.p < 0.001 else f"{comparison.p:.3f}"
    return [f"{mean} ± {margin}", decimal(comparison.t, 1), p]


def _latency_text(study: Study) -> str:
    table = tables.latency_table(study)
    rows = [[short(cell) for cell in row.values()] for row in table.to_dict("records")]
    header = ["policy", "ms", "times FIFO's", "published ms"]
    return f"Time of a turn of one dialog\n\n{Grid(header, rows).text()}"
