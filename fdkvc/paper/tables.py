"""The published tables as data, with their numbers.

Source: Sukanta Ganguly, "Fractional Decay KV-Cache: Ownership-Aware Memory Management for
Improved Inference Relevancy in Dialog Systems". Every figure is written as printed; its value and
rounding follow from the printed digits. Percentages become fractions (91.4 % is 0.914), adaptation
is in turns, latency in milliseconds a turn. Nothing here is measured.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

DIALOGS = 600
"""Dialogs per scenario (Section 4.1). The paper gives no number for the adaptation run and the
latency; the same number is assumed."""

ABLATION_DIALOGS = 200
"""Dialogs of the ablations, all on Mixed (Section 6)."""

BASELINE = "h2o"
"""The paper's baseline."""

LATENCY_BASELINE = "fifo"
"""The baseline of latency ratios."""

ABLATED_POLICY = "fd-kvc"
"""The policy of the paper's sweeps (Section 6)."""

ABLATED_SCENARIO = "mixed"
"""The scenario of the paper's sweeps."""


@dataclass(frozen=True, slots=True)
class Range:
    """The numbers from `low` to `high`, both included."""

    low: float = -math.inf
    high: float = math.inf

    def overlaps(self, other: "Range") -> bool:
        """Whether the two ranges intersect."""
        return self.low <= other.high and other.low <= self.high

    def contains(self, other: "Range") -> bool:
        """Whether all of `other` lies in this range."""
        return self.low <= other.low and other.high <= self.high


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure."""

    value: float
    """A fraction if the paper prints a percentage."""
    rounding: float
    """Half a unit of the last printed digit, in the unit of `value`; 0 for an exact count."""
    printed: str
    source: str
    """Its place, such as ``"Table 1"`` or ``"abstract; Section 5.1"``."""
    dialogs: int
    """Number of dialogs; for a composite, of each scenario."""

    @property
    def range(self) -> Range:
        """All values that round to the printed one."""
        return Range(self.value - self.rounding, self.value + self.rounding)


def read_printed(
    printed: str, source: str, dialogs: int = DIALOGS, *, exact: bool = False
) -> Published:
    """Parse a printed figure: a decimal number with optional ``~``, sign and unit.

    ``%`` divides by 100; an exact count or limit is not rounded. Raises a ValueError if it does not
    begin with a number.

    Examples
    --------
    >>> figure = read_printed("91.4%", "Table 4")
    >>> figure.value, figure.rounding
    (0.914, 0.0005)
    >>> read_printed(".0200", "Table 1").rounding
    5e-05
    """
    match = re.match(r"~?([+-]?\d*\.?\d+)\s*(%?)", printed)
    if match is None:
        raise ValueError(f"the printed figure {printed!r} must begin with a decimal number")
    number, percent = match.groups()
    digits = len(number.partition(".")[2])
    unit = Decimal(100 if percent else 1)
    rounding = Decimal(0) if exact else Decimal(5).scaleb(-digits - 1) / unit
    return Published(float(Decimal(number) / unit), float(rounding), printed, source, dialogs)


# The tables --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the paper; keys of rows and columns are in the printed order."""

    number: int
    cells: Mapping[tuple[str, str], Published]
    """By row and column."""

    @property
    def rows(self) -> tuple[str, ...]:
        """Keys of the rows."""
        return tuple(dict.fromkeys(row for row, _ in self.cells))

    @property
    def columns(self) -> tuple[str, ...]:
        """Keys of the columns."""
        return tuple(dict.fromkeys(column for _, column in self.cells))

    def __getitem__(self, place: tuple[str, str]) -> Published:
        """Return a cell by row and column; KeyError if there is none."""
        return self.cells[place]


def _cells(layout: str, source: str, dialogs: int) -> dict[tuple[str, str], Published]:
    """Parse a layout: a line of column keys, then lines of a row key and cells."""
    columns, *rows = (line.split() for line in layout.strip().splitlines())
    return {
        (row, column): read_printed(cell, source, dialogs)
        for row, *cells in rows
        for column, cell in zip(columns, cells, strict=True)
    }


def _table(number: int, layout: str, dialogs: int = DIALOGS) -> Table:
    return Table(number, _cells(layout, f"Table {number}", dialogs))


LATE_ALIGNMENT = _table(
    1,
    """
            shift  return  mixed  complex  gradual  composite
    fifo    .0200  .0283   .0206  .0301    .0200    .0238
    sink    .0189  .0293   .0206  .0302    .0190    .0236
    h2o     .0084  .0320   .0151  .0285    .0079    .0184
    fd-kvc  .0190  .0194   .0197  .0253    .0148    .0196
    """,
)

ADAPTATION = _table(
    2,
    """
            mean  median  p90
    fifo     2.0   2       2
    sink     2.0   2       2
    h2o     16.0  16      16
    fd-kvc   4.5   4       5
    """,
)

LATE_DIVERSITY = _table(
    3,
    """
            shift   return  mixed  complex  composite
    fifo     50.0%   66.7%  44.4%  26.7%    47.6%
    sink    100.0%   66.7%  66.7%  33.3%    73.3%
    h2o     100.0%   50.0%  66.7%  33.3%    70.0%
    fd-kvc   72.1%  100.0%  73.1%  58.0%    80.6%
    """,
)

RETENTION_AND_LATENCY = _table(
    4,
    """
            late_retention  latency
    fifo    91.4%           0.027
    sink    87.6%           0.028
    h2o     63.3%           0.055
    fd-kvc  70.1%           0.105
    """,
)

ABLATION_W_C = _table(
    5,
    """
         late_alignment  late_retention
    0.1  +0.0223         77.6%
    0.2  +0.0455         75.4%
    0.3  +0.0483         72.8%
    0.5  +0.0238         60.2%
    0.7  +0.0081         29.9%
    0.9  +0.0063          0.1%
    """,
    ABLATION_DIALOGS,
)

ABLATION_GAMMA = _table(
    6,
    """
          late_alignment  late_retention
    0.70  +0.0233         85.7%
    0.75  +0.0246         83.8%
    0.80  +0.0603         84.7%
    0.85  +0.0097         85.6%
    0.88  +0.0148         64.1%
    0.92  -0.0062         27.3%
    """,
    ABLATION_DIALOGS,
)

ABLATIONS = {"w_c": ABLATION_W_C, "gamma": ABLATION_GAMMA}
"""Tables 5 and 6, by the parameter that they sweep."""


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A row of Table 7: a hyperparameter of FD-KVC, its default and the range explored."""

    key: str
    symbol: str
    default: float
    low: float
    high: float
    description: str


HYPERPARAMETERS = (
    Hyperparameter("gamma", "γ", 0.88, 0.70, 0.95, "Recency decay rate"),
    Hyperparameter("alpha_0", "α₀", 0.30, 0.10, 0.50, "Initial learning rate"),
    Hyperparameter("tau", "τ", 0.02, 0.01, 0.10, "Eviction threshold"),
    Hyperparameter("beta", "β", 0.25, 0.10, 1.00, "Modulation exponent"),
    Hyperparameter("mu", "μ", 0.40, 0.10, 1.00, "Convergence factor"),
    Hyperparameter("w_c", "w_c", 0.45, 0.10, 0.90, "Cumulative weight"),
    Hyperparameter("w_rho", "w_ρ", 0.55, 0.10, 0.90, "Recency weight"),
)
"""Table 7, in the printed order."""


T_TESTS = _cells(
    """
             change  t      p
    shift    +127%   +1.31  0.19
    mixed    +30%    +0.57  0.57
    gradual  +87%    +0.87  0.39
    """,
    "Section 5.6",
    DIALOGS,
)
"""Paired t-tests of FD-KVC against H2O in late-turn alignment: by scenario, the change of FD-KVC's
mean from H2O's, the statistic and its two-sided p-value."""


# Looking a cell up -------------------------------------------------------------------------------


def published(scenario: str, policy: str, metric: str) -> Published | None:
    """Return the published figure of a policy on a scenario or the composite, if there is one.

    `metric` is late_alignment (Table 1), late_diversity (Table 3), late_retention or latency
    (Table 4); in the adaptation run mean, median or p90 of the turns (Table 2).

    Examples
    --------
    >>> published("shift", "fd-kvc", "late_diversity").value
    0.721
    >>> published("gradual", "fd-kvc", "late_diversity") is None
    True
    """
    if metric == "late_alignment":
        return LATE_ALIGNMENT.cells.get((policy, scenario))
    if metric == "late_diversity":
        return LATE_DIVERSITY.cells.get((policy, scenario))
    if metric == "latency" or (metric, scenario) == ("late_retention", "composite"):
        return RETENTION_AND_LATENCY.cells.get((policy, metric))
    return ADAPTATION.cells.get((policy, metric)) if scenario == "adaptation" else None


def published_ablation(parameter: str, value: float, metric: str) -> Published | None:
    """Return a cell of an ablation of FD-KVC on Mixed (Tables 5 and 6), if there is one.

    The value of the parameter is compared up to rounding errors.

    Examples
    --------
    >>> published_ablation("gamma", 0.8, "late_retention").value
    0.847
    >>> published_ablation("gamma", 0.81, "late_retention") is None
    True
    """
    cells = ABLATIONS[parameter].cells if parameter in ABLATIONS else {}
    for (row, column), cell in cells.items():
        if column == metric and math.isclose(float(row), value, abs_tol=1e-9):
            return cell
    return None


def published_sweep(parameter: str) -> tuple[float, ...]:
    """Return the values of the paper's sweep of a parameter, if any.

    Examples
    --------
    >>> published_sweep("w_c")
    (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    """
    return tuple(map(float, ABLATIONS[parameter].rows)) if parameter in ABLATIONS else ()
