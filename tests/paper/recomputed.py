"""What claims become from the paper's own printed cells: the ranges that ``claims.toml`` stores."""

import math
import operator
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist, fmean

from fdkvc.paper.claims import Measure
from fdkvc.paper.published import (
    ABLATIONS,
    ADAPTATION,
    DIALOGS,
    HYPERPARAMETERS,
    LATE_ALIGNMENT,
    LATE_DIVERSITY,
    RETENTION_AND_LATENCY,
    T_TESTS,
    Published,
    Range,
    Table,
    published_sweep,
)


@dataclass(frozen=True)
class Recomputed:
    """A figure computed from printed ones, with its range by their rounding."""

    value: float
    range: Range


def rows_of(table: Table) -> list[str]:
    """Return the keys of a table's rows."""
    return list(dict.fromkeys(row for row, _ in table))


def columns_of(table: Table) -> list[str]:
    """Return the keys of a table's columns."""
    return list(dict.fromkeys(column for _, column in table))


def recompute(function: Callable[..., float], *figures: Published) -> Recomputed:
    """Compute a figure from printed ones by a function that is monotonic in each of them.

    So its extremes are at the ends of their rounding ranges.

    Examples
    --------
    >>> cells = LATE_ALIGNMENT["fd-kvc", "composite"], LATE_ALIGNMENT["h2o", "composite"]
    >>> gain = recompute(change, *cells)
    >>> f"{gain.value:+.1%} ({gain.range.low:+.1%} to {gain.range.high:+.1%})"
    '+6.5% (+6.0% to +7.1%)'
    """
    ends = ((figure.range.low, figure.range.high) for figure in figures)
    extremes = [function(*corner) for corner in product(*ends)]
    value = function(*(figure.value for figure in figures))
    return Recomputed(value, Range(min(extremes), max(extremes)))


def change(value: float, baseline: float) -> float:
    """Return the change from the baseline as a fraction of it."""
    return value / baseline - 1


def t_of_p(p: float) -> float:
    """Return the absolute t-statistic of a two-sided p-value over many dialogs."""
    # With the 599 degrees of freedom of 600 dialogs, t is normal to less than 0.001 in p.
    return -NormalDist().inv_cdf(p / 2)


def composite(table: Table, policy: str) -> Recomputed:
    """Compute a policy's composite as the mean of the scenarios that the table prints."""
    scenarios = [column for column in columns_of(table) if column != "composite"]
    return recompute(lambda *cells: fmean(cells), *(table[policy, key] for key in scenarios))


_DEFAULTS = {parameter.key: parameter.default for parameter in HYPERPARAMETERS}

# μ·L is highest where every ĥ is 1/2 and L is 1/4, and least at 0 (Equations 6 and 7).
_WIDEST_SWING = 1 - 1 / (1 + _DEFAULTS["mu"] / 4)

# Where ĉ = 1 and ρ has reached its limit α₀ / (1 − γ) (Equations 2, 3 and 5).
_HIGHEST_SCORE = _DEFAULTS["w_c"] + _DEFAULTS["w_rho"] * _DEFAULTS["alpha_0"] / (
    1 - _DEFAULTS["gamma"]
)

_P_VALUES = {scenario: cell for (scenario, column), cell in T_TESTS.items() if column == "p"}

COMPUTED_RANGES = {
    **{f"tied-{scenario}": Range(-t_of_p(0.05), t_of_p(0.05)) for scenario in _P_VALUES},
    "loss-binary": Range(high=0.1 * (1 - 0.1)),
    "learning-rate": Range(low=_WIDEST_SWING / 2),
}
"""The ranges in which claims hold that a formula gives."""

_TABLES = {
    "late_alignment": LATE_ALIGNMENT,
    "late_diversity": LATE_DIVERSITY,
    "late_retention": RETENTION_AND_LATENCY,
    "latency": RETENTION_AND_LATENCY,
    "adaptation": ADAPTATION,
}


_COMPARED: Mapping[str, Callable[[float, float], float]] = {
    "change": change,
    "ratio": operator.truediv,
    "difference": operator.sub,
}


def _exactly(value: float) -> Recomputed:
    return Recomputed(value, Range(value, value))


RECOMPUTED = {
    **{f"tied-{scenario}": recompute(t_of_p, p) for scenario, p in _P_VALUES.items()},
    "significant": recompute(min, *_P_VALUES.values()),
    "consistent": recompute(
        lambda t: NormalDist().cdf(t / math.sqrt(DIALOGS)), T_TESTS["shift", "t"]
    ),
    "diversity-composite": composite(LATE_DIVERSITY, "fd-kvc"),
    "score-bytes": _exactly(struct.calcsize("2f")),
    "learning-rate": Recomputed(_WIDEST_SWING, Range(0, _WIDEST_SWING)),
    "fixed-point": _exactly(_HIGHEST_SCORE),
    "hyperparameters": _exactly(sum(parameter.key != "w_rho" for parameter in HYPERPARAMETERS)),
}


def from_cells(measure: Measure) -> Recomputed | None:
    """Compute a measure that compares cells of one table from them."""
    if measure.kind == "peak":
        return _peak(str(measure.parameter))
    if measure.kind not in ("rank", *_COMPARED):
        return None
    table = _TABLES[measure.metric]
    column = "mean" if measure.metric == "adaptation" else measure.metric
    column = column if column in columns_of(table) else str(measure.scenario)
    if measure.kind == "rank":
        policies = sorted(rows_of(table), key=measure.policy.__ne__)
        cells = (table[policy, column] for policy in policies)
        return recompute(lambda mean, *others: 1 + sum(other > mean for other in others), *cells)
    both = (table[str(policy), column] for policy in (measure.policy, measure.baseline))
    return recompute(_COMPARED[measure.kind], *both)


def _peak(parameter: str) -> Recomputed:
    values, table = published_sweep(parameter), ABLATIONS[parameter]

    def highest(*alignments: float) -> float:
        return values[alignments.index(max(alignments))]

    return recompute(highest, *(table[row, "late_alignment"] for row in rows_of(table)))
