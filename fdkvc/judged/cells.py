"""The paper's tables cell by cell: measured beside published, with one verdict a cell."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean

import pandas as pd

from fdkvc.dialogs.scenarios import SCENARIOS, World
from fdkvc.measured.benchmark import (
    ADAPTATION,
    COMPOSITE,
    Results,
    Values,
    is_the_papers,
    late_metrics,
)
from fdkvc.measured.statistics import (
    FEWEST_DIALOGS,
    CellVerdict,
    Summary,
    differences,
    percentile_interval,
    summarize,
    verdict,
)
from fdkvc.measured.study import Study
from fdkvc.paper.tables import (
    ABLATED_POLICY,
    BASELINE,
    HYPERPARAMETERS,
    LATE_ALIGNMENT,
    T_TESTS,
    Published,
    published,
    published_ablation,
    published_adaptation,
    published_latency,
)
from fdkvc.parameters import parameters_of
from fdkvc.policies import POLICIES, policy_named
from fdkvc.run.metrics import metric_named

RULE = (
    "**Cannot be told from zero**: the published value may as well be chance. For the difference "
    "of two alignments the paper's own t-tests decide (Section 5.6; where it prints none, the "
    "spread that its others imply); for an alignment, whether it is within 1.96·0.25/√n, where "
    "0.25 is the spread of the cosine of unrelated vectors of 16 numbers.",
    "**Reproduced**: measured and published differ by no more than the rounding of the printed "
    "figure + 1.96·s·√(1/n + 1/n_published), s being the standard deviation over our dialogs; a "
    "percentile by the scatter of its place among the dialogs.",
    "**Differs**: by more than that.",
    f"No verdict with fewer than {FEWEST_DIALOGS} dialogs, for a time, which is the machine's, "
    "and where the paper prints nothing.",
)
"""How a cell is judged, in words; the first that applies."""

SIGNS: Mapping[CellVerdict | None, str] = {
    "reproduced": "✓",
    "differs": "≠",
    "cannot be told from zero": "○",
    None: "",
}

DIFFERENCE = f"{ABLATED_POLICY} − {BASELINE}"
"""Key of the row of Table 1 that holds the difference its t-tests are about."""

PERCENTILES = {"median": 0.5, "p90": 0.9}


@dataclass(frozen=True)
class Unit:
    """How a figure is written: times `scale`, with `digits` decimals."""

    name: str = ""
    scale: float = 1.0
    digits: int = 4

    def write(self, value: float) -> str:
        """Write a figure, nothing for NaN."""
        return "" if math.isnan(value) else f"{self.scale * value:.{self.digits}f}"


PLAIN = Unit()
PERCENT = Unit("%", 100.0, 1)
TURNS = Unit("turns", digits=2)
WHOLE_TURNS = Unit("turns", digits=1)
MILLISECONDS = Unit("ms", digits=3)
SETTING = Unit(digits=2)


@dataclass(frozen=True, eq=False)
class Cell:
    """One figure of a table.

    Attributes
    ----------
    unit : Unit
    measured, low, high : float
        With the ends of its 95 % interval, NaN where it has none.
    n : int
        Dialogs behind it; 0 for what no dialog decides.
    published : Published or None
    verdict : str or None
    values : array (n,), optional
        The number of each dialog.
    """

    unit: Unit
    measured: float
    low: float = math.nan
    high: float = math.nan
    n: int = 0
    published: Published | None = None
    verdict: CellVerdict | None = None
    values: Values | None = None

    @property
    def difference(self) -> float:
        """Measured less published; NaN where nothing is published."""
        return math.nan if self.published is None else self.measured - self.published.value

    def words(self) -> str:
        """Return the measured figure with its interval, as short as can be.

        Examples
        --------
        >>> Cell(PERCENT, 0.5, 0.49, 0.51).words(), Cell(TURNS, 4.0, 4.0, 5.0).words()
        ('50.0 ± 1.0', '4.00 (4.00 to 5.00)')
        """
        text = self.unit.write(self.measured)
        if math.isnan(self.low) or self.low == self.high:
            return text
        above, below = self.high - self.measured, self.measured - self.low
        if math.isclose(above, below, rel_tol=1e-6):
            return f"{text} ± {self.unit.write(above)}"
        return f"{text} ({self.unit.write(self.low)} to {self.unit.write(self.high)})"


@dataclass(frozen=True, eq=False)
class MeasuredTable:
    """A table of the paper, with our cells.

    Attributes
    ----------
    number : int or str
        Its number in the paper, or the key of a metric that the paper does not have.
    title : str
    corner : str
        What its rows are.
    rows, columns : mapping of key to label
    cells : mapping of (row, column) to Cell
        Of the cells that we have.
    """

    number: int | str
    title: str
    corner: str
    rows: Mapping[str, str]
    columns: Mapping[str, str]
    cells: Mapping[tuple[str, str], Cell] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Its title, after its number in the paper."""
        return f"Table {self.number}: {self.title}" if isinstance(self.number, int) else self.title


def measured_tables(study: Study) -> list[MeasuredTable]:
    """Return Tables 1 to 7, measured, then one for each metric that the paper does not have.

    Those of which nothing was measured are left out.
    """
    results = study.results
    tables = [
        _late_table(1, "Late-turn alignment", "late_alignment", results),
        _adaptation_table(results),
        _late_table(3, "Late-turn topic diversity", "late_diversity", results),
        _with_latency(_late_table(4, "Late-turn retention", "late_retention", results), study),
        *(
            _ablation_table(number, parameter, study.sweeps[parameter])
            for number, parameter in ((5, "w_c"), (6, "gamma"))
            if parameter in study.sweeps
        ),
        _hyperparameter_table(),
        *(
            _late_table(key, metric_named(key).title, f"late_{key}", results)
            for key in results.benchmark.metrics
            if published(COMPOSITE, BASELINE, f"late_{key}") is None
        ),
    ]
    return [table for table in tables if table.cells]


def cells_table(tables: list[MeasuredTable]) -> pd.DataFrame:
    """Return all cells as a tidy table, a row for each, fractions unscaled."""
    rows = [
        {
            "table": table.number,
            "row": row,
            "column": column,
            "n": cell.n if cell.n else None,
            "measured": cell.measured,
            "ci_low": cell.low,
            "ci_high": cell.high,
            "published": math.nan if cell.published is None else cell.published.value,
            "difference": cell.difference,
            "verdict": cell.verdict,
        }
        for table in tables
        for (row, column), cell in table.cells.items()
    ]
    return pd.DataFrame(rows).astype({"n": "Int64"})


def verdicts_of(tables: list[MeasuredTable]) -> dict[CellVerdict, int]:
    """Count the verdicts."""
    verdicts: list[CellVerdict] = ["reproduced", "differs", "cannot be told from zero"]
    every = [cell.verdict for table in tables for cell in table.cells.values()]
    return {each: every.count(each) for each in verdicts}


# ------------------------------------------------------------------------------- judging


def judged(unit: Unit, values: Values, figure: Published | None) -> Cell:
    """Make the cell of a mean over dialogs, with its verdict."""
    summary = summarize(values)
    return _cell(unit, values, summary, figure, None, alignment=False)


def _cell(
    unit: Unit,
    values: Values,
    summary: Summary,
    figure: Published | None,
    chance: bool | None,
    *,
    alignment: bool,
) -> Cell:
    if chance is None:
        chance = alignment and figure is not None and not told_from_zero(figure)
    return Cell(
        unit,
        summary.mean,
        summary.low,
        summary.high,
        summary.n,
        figure,
        None
        if figure is None or summary.n < FEWEST_DIALOGS
        else verdict(
            measured_mean=summary.mean,
            sd=summary.sd,
            n=summary.n,
            published=figure.value,
            rounding=figure.rounding,
            n_published=figure.dialogs,
            indistinguishable_from_zero=chance,
        ),
        values,
    )


def told_from_zero(figure: Published) -> bool:
    """Whether a published alignment is larger than unrelated vectors make it in 95 of 100 cases.

    The cosine of unrelated vectors of h numbers has a standard deviation of 1/√h.

    Examples
    --------
    >>> [told_from_zero(LATE_ALIGNMENT[policy, "shift"]) for policy in ("fifo", "h2o")]
    [False, False]
    """
    chance = 1.96 / math.sqrt(World().head_dimension * figure.dialogs)
    return abs(figure.value) > chance + figure.rounding


def _difference_cell(results: Results, scenario: str) -> Cell | None:
    """Judge the difference of the two alignments that the paper tests."""
    one = results.values(scenario, ABLATED_POLICY, "late_alignment")
    other = results.values(scenario, BASELINE, "late_alignment")
    if one is None or other is None:
        return None
    values = differences(one, other)
    figure = _published_difference(scenario) if is_the_papers(results.benchmark) else None
    chance = figure is not None and abs(t_of_difference(scenario)) < 1.96
    return _cell(PLAIN, values.astype("f4"), summarize(values), figure, chance, alignment=True)


def _published_difference(scenario: str) -> Published | None:
    one = LATE_ALIGNMENT.cell(ABLATED_POLICY, scenario)
    other = LATE_ALIGNMENT.cell(BASELINE, scenario)
    if one is None or other is None:
        return None
    value = one.value - other.value
    rounding = one.rounding + other.rounding
    return Published(value, rounding, f"{value:+.4f}", "Table 1; Section 5.6", one.dialogs)


def t_of_difference(scenario: str) -> float:
    """Return the published t of the alignments' difference.

    Where the paper prints none, it is computed from the spread that its other tests imply.

    Examples
    --------
    >>> t_of_difference("shift"), round(t_of_difference("return"), 2)
    (1.31, -1.57)
    """
    for test in T_TESTS:
        if test.scenario == scenario:
            return test.t.value
    figure = _published_difference(scenario)
    if figure is None:
        return math.nan
    spread = fmean(test.implied_sd for test in T_TESTS)
    return figure.value / spread * math.sqrt(figure.dialogs)


# ------------------------------------------------------------------------------- the tables


def _late_table(number: int | str, title: str, metric: str, results: Results) -> MeasuredTable:
    benchmark = results.benchmark
    ours, alignment = is_the_papers(benchmark), metric == "late_alignment"
    unit = unit_of(metric.removeprefix("late_"))
    rows = {policy.name: policy.title for policy in benchmark.policies}
    columns = {key: scenario_label(key) for key in results.reported}
    cells: dict[tuple[str, str], Cell] = {}
    for row in rows:
        for column in columns:
            values = results.values(column, row, metric)
            if values is not None:
                figure = published(column, row, metric) if ours else None
                cells[row, column] = _cell(
                    unit, values, summarize(values), figure, None, alignment=alignment
                )
    if alignment and ABLATED_POLICY in rows and BASELINE in rows:
        rows[DIFFERENCE] = f"{rows[ABLATED_POLICY]} − {rows[BASELINE]}"
        for column in columns:
            cell = _difference_cell(results, column)
            if cell is not None:
                cells[DIFFERENCE, column] = cell
    return MeasuredTable(number, f"{title}{_unit_words(unit)}", "policy", rows, columns, cells)


def _adaptation_table(results: Results) -> MeasuredTable:
    ours = is_the_papers(results.benchmark)
    rows = {policy.name: policy.title for policy in results.benchmark.policies}
    columns = {"mean": "mean", "median": "median", "p90": "90th percentile"}
    cells = {}
    for row in rows:
        values = results.values(ADAPTATION, row, "adaptation")
        if values is None:
            continue
        for column in columns:
            figure = published_adaptation(row, column) if ours else None
            cells[row, column] = (
                judged(TURNS, values, figure)
                if column == "mean"
                else _percentile(values, PERCENTILES[column], figure)
            )
    title = "Turns from a change of topic to 80 % retention of the new one"
    return MeasuredTable(2, title, "policy", rows, columns, cells)


def _percentile(values: Values, share: float, figure: Published | None) -> Cell:
    measured = float(pd.Series(values).quantile(share))
    low, high = percentile_interval(values, share)
    judgement: CellVerdict | None = None
    if figure is not None and len(values) >= FEWEST_DIALOGS:
        below, above = percentile_interval(values, share, against=figure.dialogs)
        inside = below - figure.rounding <= figure.value <= above + figure.rounding
        judgement = "reproduced" if inside else "differs"
    return Cell(WHOLE_TURNS, measured, low, high, len(values), figure, judgement, values)


def _with_latency(table: MeasuredTable, study: Study) -> MeasuredTable:
    ours = is_the_papers(study.results.benchmark)
    cells = dict(table.cells)
    for latency in study.latencies:
        if latency.policy in table.rows:
            figure = published_latency(latency.policy) if ours else None
            cells[latency.policy, "latency"] = Cell(
                MILLISECONDS, latency.milliseconds, published=figure
            )
    columns = {**table.columns, "latency": "latency, ms a turn"}
    title = f"{table.title}, and latency"
    return MeasuredTable(table.number, title, table.corner, table.rows, columns, cells)


def _ablation_table(number: int, parameter: str, results: Results) -> MeasuredTable:
    (scenario,) = results.benchmark.scenarios
    known = parameters_of(POLICIES[ABLATED_POLICY])[parameter]
    rows, cells = {}, {}
    for policy in results.benchmark.policies:
        value = getattr(policy, parameter)
        row = f"{value:g}"
        rows[row] = row
        for metric in late_metrics(results.benchmark):
            values = results.values(scenario.key, policy.name, metric)
            if values is None:
                continue
            figure = published_ablation(parameter, value, metric)
            key = metric.removeprefix("late_")
            unit = unit_of(key)
            cells[row, metric] = _cell(
                unit, values, summarize(values), figure, None, alignment=key == "alignment"
            )
    columns = {
        f"late_{key}": metric_named(key).label + _unit_words(unit_of(key))
        for key in results.benchmark.metrics
    }
    title = f"{known.label} on {scenario.label}"
    return MeasuredTable(number, title, parameter, rows, columns, cells)


def _hyperparameter_table() -> MeasuredTable:
    """Compare the defaults of Table 7 with those that run here."""
    policy = policy_named(ABLATED_POLICY)
    rows, cells = {}, {}
    for printed in HYPERPARAMETERS:
        default = getattr(policy, printed.key)
        figure = Published(printed.default, 0.0, f"{printed.default:.2f}", "Table 7", 0)
        same = math.isclose(default, figure.value)
        explored = f"explored from {printed.low:g} to {printed.high:g}"
        rows[printed.key] = f"{printed.symbol}, {printed.description.lower()}, {explored}"
        cells[printed.key, "default"] = Cell(
            SETTING, default, published=figure, verdict="reproduced" if same else "differs"
        )
    title = "Hyperparameters of FD-KVC"
    return MeasuredTable(7, title, "parameter", rows, {"default": "default"}, cells)


def scenario_label(key: str) -> str:
    """Return a scenario's label, also of the composite."""
    return "Composite" if key == COMPOSITE else SCENARIOS[key].label


def unit_of(metric: str) -> Unit:
    """Return how a metric is written."""
    return PERCENT if metric_named(metric).percent else PLAIN


def _unit_words(unit: Unit) -> str:
    return f", {unit.name}" if unit.name else ""


def each_cell(tables: list[MeasuredTable]) -> Iterator[tuple[MeasuredTable, str, str, Cell]]:
    """Go through all cells: table, row, column, cell."""
    for table in tables:
        for (row, column), cell in table.cells.items():
            yield table, row, column, cell
