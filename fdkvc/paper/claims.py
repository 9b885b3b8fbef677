"""The paper's claims: the quantity that decides each, and its value from the printed cells."""

import math
import operator
import struct
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import NormalDist, fmean
from typing import Literal

from fdkvc.paper.tables import (
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
    read_printed,
)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A figure computed from printed ones, with its range by their rounding."""

    value: float
    range: Range


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


def p_of_t(t: float) -> float:
    """Return the two-sided p-value of a t-statistic over many dialogs."""
    # With the 599 degrees of freedom of 600 dialogs, t is normal to less than 0.001 in p.
    return 2 * NormalDist().cdf(-abs(t))


def t_of_p(p: float) -> float:
    """Return the absolute t-statistic of a two-sided p-value over many dialogs."""
    return -NormalDist().inv_cdf(p / 2)


def composite(table: Table, policy: str) -> Recomputed:
    """Compute a policy's composite as the mean of the scenarios that the table prints."""
    scenarios = [column for column in table.columns if column != "composite"]
    return recompute(lambda *cells: fmean(cells), *(table[policy, key] for key in scenarios))


Comparison = Literal["change", "ratio", "difference", "share", "t", "p", "same"]
Kind = Comparison | Literal["value", "rank", "peak", "settles", "growth", "swing"]


@dataclass(frozen=True, slots=True)
class Measure:
    """The measured quantity that judges a claim, with the paper's settings."""

    kind: Kind
    """- ``value``: the policy's mean over dialogs, or the value of a metric of a run;
    - ``change``, ``ratio``, ``difference``: the policy's mean as a `change` from the baseline's, as
      a multiple of it, or minus it;
    - ``rank``: the policy's rank by its mean among the paper's four, 1 for the highest;
    - ``share``: of dialogs in which the policy is above the baseline, 0 to 1;
    - ``t``, ``p``: of the paired t-test of the policy against the baseline;
    - ``peak``: the value in the published sweep of `parameter` with the highest mean;
    - ``settles``: turns until the turn's mean stays within a tenth of the last turn's;
    - ``growth``: the relative change of the turn's mean from turn 1 (the cache is empty before
      turn 0) to the last;
    - ``swing``: (highest − lowest) / highest of the turns' means from turn 1 on;
    - ``same``: share of turns after which policy and baseline hold the same entries, 0 to 1.
    """
    metric: str
    """- of a dialog: ``late_alignment``, ``late_retention``, ``late_diversity`` (fractions),
      ``adaptation`` (turns), ``latency`` (milliseconds a turn);
    - of a turn: ``retention``, ``ownership_loss``, ``learning_rate``, ``highest_score`` (the
      highest hybrid score in the cache after eviction) and ``entries``, for kind ``same``;
    - of a run: ``threshold_evictions`` (entries evicted by τ), ``seconds`` (wall clock of one
      scenario under all four policies), ``score_bytes`` (of an entry), ``parameters`` (number
      of free ones).
    """
    scenario: str | None = None
    """None for the whole benchmark (evictions of all five scenarios, seconds of the slowest) or if
    it does not depend on the scenario."""
    policy: str = "fd-kvc"
    baseline: str | None = None
    """The baseline's key, if two policies are compared."""
    turn: int | None = None
    """The turn of a metric of a turn; −1 is the last."""
    parameter: str | None = None
    """Of kind ``peak``."""
    settings: tuple[tuple[str, float], ...] = ()
    """(parameter, value): parameters of the policy that differ from the paper's default."""


ClaimVerdict = Literal["holds", "direction only", "does not hold", "open"]

TIMES = ("latency", "seconds")
"""Metrics that depend on the machine, so they are not judged."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper about its method, and the quantity that decides it."""

    key: str
    claim: str
    """The claim in our words."""
    source: str
    """Its place in the paper."""
    measure: Measure
    why: str
    published: Published | None = None
    """The printed figure; None if the claim is verbal."""
    holds_when: Range | None = None
    """The range of the measured quantity in which the claim is true; None if the claim is the
    printed figure."""
    recomputed: Recomputed | None = None
    """The same quantity from the paper's own cells, if they give it."""
    bound: bool = False
    """Whether the printed figure is a bound, such as "under 60 seconds"."""

    def judge(self, low: float, high: float, size: str | None = None) -> ClaimVerdict:
        """Judge the claim by what was measured.

        `low` and `high` are the measured quantity's 95 % interval, or the quantity twice; NaN if
        undefined. `size` is the verdict on the printed figure by the rules of all figures, such as
        ``reproduced``; by default, whether the interval overlaps the figure.

        The verdict is ``holds``; ``direction only`` (true, but the printed figure is not
        confirmed); ``does not hold``; or ``open`` (the measurement does not decide it or is
        undefined).

        Examples
        --------
        >>> shift = claim("alignment-shift")
        >>> shift.judge(1.26, 1.28), shift.judge(0.40, 0.45), shift.judge(-0.3, -0.1)
        ('holds', 'direction only', 'does not hold')
        >>> shift.judge(-0.1, 0.3), shift.judge(1.26, 1.28, size="open")
        ('open', 'direction only')
        """
        if math.isnan(low) or math.isnan(high):
            return "open"
        if low > high:
            raise ValueError(f"the interval from {low} to {high} must not end below its start")
        measured = Range(low, high)
        if self.holds_when is not None:
            if not self.holds_when.overlaps(measured):
                return "does not hold"
            if not self.holds_when.contains(measured):
                return "open"
        if self.published is None or self.bound:
            return "holds"
        if size is None:
            size = "reproduced" if self.published.range.overlaps(measured) else "differs"
        if size == "reproduced":
            return "holds"
        if self.holds_when is not None:
            return "direction only"
        return "open" if size == "open" else "does not hold"


_BY_PROJECTION = (
    "The printed alignments are no larger than those of unrelated vectors, and their difference is "
    "indistinguishable from zero; the topic projected by W_V, the space of the output, decides it."
)

_DEFAULTS = {parameter.key: parameter.default for parameter in HYPERPARAMETERS}

# μ·L is highest where every ĥ is 1/2 and L is 1/4, and least at 0 (Equations 6 and 7).
_WIDEST_SWING = 1 - 1 / (1 + _DEFAULTS["mu"] / 4)

# Where ĉ = 1 and ρ has reached its limit α₀ / (1 − γ) (Equations 2, 3 and 5).
_HIGHEST_SCORE = _DEFAULTS["w_c"] + _DEFAULTS["w_rho"] * _DEFAULTS["alpha_0"] / (
    1 - _DEFAULTS["gamma"]
)

_P_VALUES = {scenario: cell for (scenario, column), cell in T_TESTS.items() if column == "p"}

_COMPUTED_RANGES = {
    **{f"t-{scenario}": Range(-t_of_p(0.05), t_of_p(0.05)) for scenario in _P_VALUES},
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


_RECOMPUTED = {
    **{f"t-{scenario}": recompute(t_of_p, p) for scenario, p in _P_VALUES.items()},
    **{f"p-{scenario}": recompute(p_of_t, T_TESTS[scenario, "t"]) for scenario in _P_VALUES},
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


def _from_cells(measure: Measure) -> Recomputed | None:
    """Compute a measure that compares cells of one table from them."""
    if measure.kind == "peak":
        return _peak(str(measure.parameter))
    if measure.kind not in ("rank", *_COMPARED):
        return None
    table = _TABLES[measure.metric]
    column = "mean" if measure.metric == "adaptation" else measure.metric
    column = column if column in table.columns else str(measure.scenario)
    if measure.kind == "rank":
        policies = sorted(table.rows, key=measure.policy.__ne__)
        cells = (table[policy, column] for policy in policies)
        return recompute(lambda mean, *others: 1 + sum(other > mean for other in others), *cells)
    both = (table[str(policy), column] for policy in (measure.policy, measure.baseline))
    return recompute(_COMPARED[measure.kind], *both)


def _peak(parameter: str) -> Recomputed:
    values, table = published_sweep(parameter), ABLATIONS[parameter]

    def highest(*alignments: float) -> float:
        return values[alignments.index(max(alignments))]

    return recompute(highest, *(table[row, "late_alignment"] for row in table.rows))


def _read_claims() -> tuple[Claim, ...]:
    text = Path(__file__).with_name("claims.toml").read_text("utf-8")
    claims = []
    for row in tomllib.loads(text)["claim"]:
        key, why, printed = row["key"], row["why"], row.get("published")
        settings = tuple(row["measure"].pop("settings", {}).items())
        measure = Measure(**row["measure"], settings=settings)
        range_ = Range(*row["holds_when"]) if "holds_when" in row else _COMPUTED_RANGES.get(key)
        claims.append(
            Claim(
                key=key,
                claim=row["claim"],
                source=row["source"],
                measure=measure,
                why=_BY_PROJECTION if why == "projection" else why,
                published=printed and read_printed(**{"source": row["source"], **printed}),
                holds_when=range_,
                recomputed=_RECOMPUTED.get(key) or _from_cells(measure),
                bound=row.get("bound", False),
            )
        )
    return tuple(claims)


CLAIMS = _read_claims()
"""The paper's claims, headlines first, from ``claims.toml``."""


def claim(key: str) -> Claim:
    """Return a claim by its key, or raise a KeyError.

    Examples
    --------
    >>> claim("hyperparameters").recomputed.value
    6
    """
    return {claim.key: claim for claim in CLAIMS}[key]
