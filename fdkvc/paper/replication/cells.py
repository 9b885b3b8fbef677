"""The paper's tables cell by cell: measured figures and verdicts in the printed layout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pandas as pd

from fdkvc.core.parameters import parameters_of
from fdkvc.core.words import decimal
from fdkvc.engine.metrics import late_metric, metric_named
from fdkvc.paper.benchmark import ADAPTATION, COMPOSITE, Results
from fdkvc.paper.published import ABLATED_POLICY, ABLATIONS, HYPERPARAMETERS
from fdkvc.paper.replication.facts import BENCHMARK, DEFAULT, DIFFERENCE, TIME, Fact, facts
from fdkvc.paper.replication.rules import SIGNS
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, POLICIES, read_policy

NUMBERS: Mapping[str, int] = {
    "late_alignment": 1,
    ADAPTATION: 2,
    "late_diversity": 3,
    "late_retention": 4,
    TIME: 4,
    "w_c": 5,
    "gamma": 6,
    DEFAULT: 7,
}
"""The paper's tables by metric or source; tables of other metrics have the metric's key."""

MEASURED = ("n", "measured", "ci_low", "ci_high")
CELLS = ("table", "row", "column", *MEASURED, "published", "difference", "verdict")


@dataclass(frozen=True)
class Unit:
    """The unit of a figure, which is written times `scale` with `digits` decimals."""

    name: str = ""
    scale: float = 1.0
    digits: int = 4

    def write(self, value: float) -> str:
        """Format a figure; empty for NaN."""
        return "" if math.isnan(value) else decimal(self.scale * value, self.digits)


_UNITS = {
    **{row.key: Unit(digits=2) for row in HYPERPARAMETERS},
    **dict.fromkeys(("mean", ADAPTATION), Unit("turns", digits=2)),
    **dict.fromkeys(("median", "p90"), Unit("turns", digits=1)),
    TIME: Unit("ms", digits=3),
    "seconds": Unit("s", digits=1),
    "score_bytes": Unit("bytes", digits=0),
    "parameters": Unit(digits=0),
    "threshold_evictions": Unit("entries", digits=0),
    "highest_score": Unit(digits=2),
    "ownership_loss": Unit(digits=3),
    "learning_rate": Unit(),
    "same_entries": Unit("%", 100.0, 1),
}
"""The units of quantities that are no late metrics."""


def unit_named(metric: str) -> Unit:
    """Return the unit of a metric, or of another quantity in a table or a claim."""
    return _UNITS.get(metric) or (
        Unit("%", 100.0, 1) if late_metric(metric).percent else Unit()
    )


def figure_words(fact: Fact) -> str:
    """Format the measured figure with its interval.

    Examples
    --------
    >>> figure_words(Fact("", "", "", "late_retention", 600, 0.5, low=0.49, high=0.51))
    '50.0 ± 1.0'
    >>> figure_words(Fact("", "", "", "mean", 600, 4.0, low=4.0, high=5.0))
    '4.00 (4.00 to 5.00)'
    >>> figure_words(Fact("", "", "", "mean", 600, 16.0, low=16.0, high=16.0, never=True))
    'never (counts as 16)'
    """
    if fact.never:
        return f"never (counts as {fact.mean:.0f})"
    unit = unit_named(fact.metric)
    text = unit.write(fact.mean)
    if math.isnan(fact.low) or fact.low == fact.high:
        return text
    # The interval of a mean is symmetric; that of a percentile need not be.
    upper_width = fact.high - fact.mean
    lower_width = fact.mean - fact.low
    if math.isclose(upper_width, lower_width, rel_tol=1e-6):
        return f"{text} ± {unit.write(upper_width)}"
    return f"{text} ({unit.write(fact.low)} to {unit.write(fact.high)})"


def marked_words(fact: Fact) -> str:
    """Format the measured figure with its interval and its place."""
    return f"{figure_words(fact)} {fact.place}".rstrip()


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """A table of the paper with measured cells."""

    number: int | str
    """Its number in the paper, or the key of a metric that has no table there."""
    title: str
    """Its title, without the number."""
    corner: str
    """The heading of its rows."""
    rows: Mapping[str, str]
    """The heading of each row by its key."""
    columns: Mapping[str, str]
    """The heading of each column by its key."""
    cells: dict[tuple[str, str], Fact] = field(default_factory=dict)
    """The measured cells by (row, column)."""

    @property
    def heading(self) -> str:
        """Its number in the paper and its title."""
        return (
            f"Table {self.number}: {self.title}"
            if isinstance(self.number, int)
            else self.title
        )

    def of_verdict(self, verdict: str) -> MeasuredTable:
        """Return the table with only the cells of this verdict."""
        cells = {place: fact for place, fact in self.cells.items() if fact.verdict == verdict}
        return replace(self, cells=cells)


def measured_tables(study: Study) -> list[MeasuredTable]:
    """Return the measured Tables 1 to 7 and one for each other metric, without empty tables."""
    tables = {table.number: table for table in _empty_tables(study)}
    names = study.results.benchmark.names

    # Cells in the order of the benchmark's policies, then what is of no policy.
    def by_policy(fact: Fact) -> int:
        return names.index(fact.policy) if fact.source == BENCHMARK else len(names)

    for fact in sorted(facts(study), key=by_policy):
        number, row, column = _place(fact)
        if number in tables and row in tables[number].rows:
            tables[number].cells[row, column] = fact
    return [table for table in tables.values() if table.cells]


def _place(fact: Fact) -> tuple[int | str, str, str]:
    """Return the number of a fact's table, its row and its column."""
    # A source with a table of its own, such as an ablation, comes before the metric.
    by_metric = NUMBERS.get(fact.metric, fact.metric.removeprefix("late_"))
    number = NUMBERS.get(fact.source, by_metric)
    if fact.source in ABLATIONS:
        value = getattr(read_policy(fact.policy), fact.source)
        return number, f"{value:g}", fact.metric
    if fact.source == DEFAULT:
        return number, fact.metric, DEFAULT
    return number, fact.policy, fact.metric if fact.source in NUMBERS else fact.scenario


def _empty_tables(study: Study) -> Iterator[MeasuredTable]:
    benchmark = study.results.benchmark
    policies = {policy.name: policy.title for policy in benchmark.policies}
    scenarios = scenario_labels(study.results)
    # Tables 1 to 4: a row for each policy, and in Table 1 one for the tested difference.
    rows = policies
    if {ABLATED_POLICY, BASELINE} <= policies.keys():
        rows = {**rows, DIFFERENCE: f"{policies[ABLATED_POLICY]} − {policies[BASELINE]}"}
    yield MeasuredTable(1, "Late-turn alignment", "policy", rows, scenarios)
    statistics = {"mean": "mean", "median": "median", "p90": "90th percentile"}
    title = "Turns from a change of topic to 80 % retention of the new one"
    yield MeasuredTable(2, title, "policy", policies, statistics)
    yield MeasuredTable(3, "Late-turn topic diversity, %", "policy", policies, scenarios)
    columns = {**scenarios, TIME: "latency, ms a turn"}
    yield MeasuredTable(4, "Late-turn retention, %, and latency", "policy", policies, columns)
    # Tables 5 and 6: the ablations, a row for each value.
    for parameter, results in study.sweeps.items():
        swept = results.benchmark
        values = [f"{getattr(policy, parameter):g}" for policy in swept.policies]
        field = parameters_of(POLICIES[ABLATED_POLICY])[parameter]
        title = f"{field.label} on {swept.scenarios[0].label}"
        metrics = map(metric_named, swept.metrics)
        columns = {metric.name: metric.heading(metric.label) for metric in metrics}
        rows = dict(zip(values, values, strict=True))
        corner = f"{field.letters} ({swept.dialogs} dialogs)"
        yield MeasuredTable(NUMBERS[parameter], title, corner, rows, columns)
    rows = {}
    for row in HYPERPARAMETERS:
        tried = f"the paper tried {row.low:.2f} to {row.high:.2f}"
        rows[row.key] = f"{row.symbol}, {row.description.lower()}, {tried}"
    yield MeasuredTable(7, "Hyperparameters of FD-KVC", "parameter", rows, {DEFAULT: DEFAULT})
    # Metrics that the paper does not have.
    for key in benchmark.metrics:
        if f"late_{key}" not in NUMBERS:
            title = metric_named(key).heading()
            yield MeasuredTable(key, title, "policy", policies, scenarios)


def cells_table(tables: list[MeasuredTable]) -> pd.DataFrame:
    """Return all cells as a tidy table, a row for each, fractions unscaled."""
    rows = []
    for table in tables:
        for place, fact in table.cells.items():
            measured = fact.n or None, fact.mean, fact.low, fact.high
            published_columns = fact.published_value, fact.difference, fact.verdict
            rows.append((table.number, *place, *measured, *published_columns))
    return pd.DataFrame(rows, columns=list(CELLS)).astype({"n": "Int64"})


def sign_of(fact: Fact) -> str:
    """Return the symbol of a fact's verdict; empty without one."""
    return SIGNS.get(fact.verdict or "", "")


def verdicts_of(tables: list[MeasuredTable]) -> dict[str, int]:
    """Count the verdicts."""
    verdicts = dict.fromkeys(SIGNS, 0)
    for table in tables:
        for fact in table.cells.values():
            if fact.verdict in verdicts:
                verdicts[fact.verdict] += 1
    return verdicts


def scenario_labels(results: Results) -> dict[str, str]:
    """Return the labels of the reported scenarios and the composite by their keys."""
    labels = {scenario.key: scenario.label for scenario in results.benchmark.scenarios}
    labels[COMPOSITE] = "Composite"
    return {key: labels[key] for key in results.reported}
