"""The published tables as data, with their numbers.

Source: Sukanta Ganguly, "Fractional Decay KV-Cache: Ownership-Aware Memory Management for
Improved Inference Relevancy in Dialog Systems". ``tables.toml`` has every figure as printed; its
value and rounding follow from the printed digits. Percentages become fractions (91.4 % is 0.914),
adaptation is in turns, latency in milliseconds a turn. Nothing here is measured.
"""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from fdkvc.core.words import minus

DIALOGS = 600
"""Dialogs per scenario (Section 4.1). The paper gives no number for the adaptation run and the
latency; the same number is assumed."""

ABLATION_DIALOGS = 200
"""Dialogs of the ablations, all on Mixed (Section 6)."""

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

    def overlaps(self, other_range: "Range") -> bool:
        """Whether the two ranges intersect."""
        return self.low <= other_range.high and other_range.low <= self.high

    def contains(self, other_range: "Range") -> bool:
        """Whether all of `other_range` lies in this range."""
        return self.low <= other_range.low and other_range.high <= self.high


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure."""

    value: float
    """A fraction if the paper prints a percentage."""
    rounding: float
    """Half a unit of the last printed digit, in the unit of `value`; 0 for an exact count."""
    printed: str
    """As the paper prints it."""
    source: str
    """Its place, such as ``"Table 1"`` or ``"abstract; Section 5.1"``."""
    dialogs: int
    """Number of dialogs; for a composite, of each scenario."""

    @property
    def words(self) -> str:
        """The printed figure with the signs of all numbers here.

        >>> read_printed("-39.5%", "Table 4").words
        '−39.5 %'
        """
        return minus(self.printed.replace("%", " %"))

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
    # In decimal, so that half a unit of the last digit is exact: 5e-05 for 0.0200.
    digits = len(number.partition(".")[2])
    unit = Decimal(100 if percent else 1)
    rounding = Decimal(0) if exact else Decimal(5).scaleb(-digits - 1) / unit
    return Published(float(Decimal(number) / unit), float(rounding), printed, source, dialogs)


# The tables --------------------------------------------------------------------------------------


Table = Mapping[tuple[str, str], Published]
"""The cells of a table by row and column, in the printed order."""


@dataclass(frozen=True, slots=True)
class Hyperparameter:
    """A row of Table 7: a hyperparameter of FD-KVC, its default and the range explored."""

    key: str
    symbol: str
    default: float
    low: float
    high: float
    description: str


def _read_tables() -> tuple[Mapping[str, Table], tuple[Hyperparameter, ...]]:
    text = Path(__file__).with_name("tables.toml").read_text("utf-8")
    document = tomllib.loads(text)
    tables: dict[str, dict[tuple[str, str], Published]] = {}
    rows = tuple(Hyperparameter(**row) for row in document.pop("hyperparameter"))
    for name, table in document.items():
        # The first line has the columns; each other one begins with the name of its row.
        columns, *lines = map(str.split, table["cells"].strip().splitlines())
        source = table["source"]
        dialogs = table.get("dialogs", DIALOGS)
        tables[name] = {}
        for row, *printed in lines:
            for column, cell in zip(columns, printed, strict=True):
                tables[name][row, column] = read_printed(cell, source, dialogs)
    return tables, rows


_TABLES, HYPERPARAMETERS = _read_tables()
LATE_ALIGNMENT = _TABLES["late_alignment"]
ADAPTATION = _TABLES["adaptation"]
LATE_DIVERSITY = _TABLES["late_diversity"]
RETENTION_AND_LATENCY = _TABLES["retention_and_latency"]
T_TESTS = _TABLES["t_tests"]
"""Paired t-tests of FD-KVC against H2O in late-turn alignment: by scenario, the change of FD-KVC's
mean from H2O's, the statistic and its two-sided p-value."""

ABLATIONS = {"w_c": _TABLES["ablation_w_c"], "gamma": _TABLES["ablation_gamma"]}
"""Tables 5 and 6, by the parameter that they sweep."""


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
        return LATE_ALIGNMENT.get((policy, scenario))
    if metric == "late_diversity":
        return LATE_DIVERSITY.get((policy, scenario))
    if metric == "latency" or (metric, scenario) == ("late_retention", "composite"):
        return RETENTION_AND_LATENCY.get((policy, metric))
    return ADAPTATION.get((policy, metric)) if scenario == "adaptation" else None


def published_ablation(parameter: str, value: float, metric: str) -> Published | None:
    """Return a cell of an ablation of FD-KVC on Mixed (Tables 5 and 6), if there is one.

    The value of the parameter is compared up to rounding errors.

    Examples
    --------
    >>> published_ablation("gamma", 0.8, "late_retention").value
    0.847
    """
    return ABLATIONS.get(parameter, {}).get((f"{value:.9g}", metric))


def published_sweep(parameter: str) -> tuple[float, ...]:
    """Return the values of the paper's sweep of a parameter, if any.

    Examples
    --------
    >>> published_sweep("w_c")
    (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)
    """
    return tuple(dict.fromkeys(float(row) for row, _ in ABLATIONS.get(parameter, {})))
