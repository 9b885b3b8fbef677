"""The rules that compare a measured figure with the published one; the first to apply decides."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fdkvc.core.statistics import FUZZ
from fdkvc.paper.benchmark import Values
from fdkvc.paper.published import ABLATED_POLICY, LATE_ALIGNMENT, T_TESTS, Published
from fdkvc.policies import BASELINE

FEWEST_DIALOGS = 100
"""With fewer dialogs there is no verdict on a published figure."""

# Student's t of `FEWEST_DIALOGS` is about 1 % larger.
TWO_SIDED, ONE_SIDED = 1.96, 1.645
"""Normal quantiles of 95 % intervals, in standard errors."""


@dataclass(frozen=True)
class Case:
    """A measured and a published figure, reduced to what decides the verdict."""

    distance: float
    """Distance of the two beyond the rounding of the printed one; negative within it."""
    spread: float
    """Standard deviation over the measured dialogs, used for both (the paper prints none)."""
    dialogs: int
    """Number of dialogs of the measured figure."""
    published_dialogs: int
    """Number of dialogs of the published figure."""
    chance: bool = False
    """Whether the published figure is a difference of two alignments that is indistinguishable from
    zero."""

    @property
    def margin(self) -> float:
        """Margin of equivalence: half the published figure's own 95 % interval."""
        return TWO_SIDED * self.spread / math.sqrt(self.published_dialogs)


class VerdictRule(NamedTuple):
    """A rule, its verdict and how the verdict is shown."""

    verdict: str
    """The verdict."""
    applies: Callable[[Case], bool]
    """Whether it applies to a case; the first rule that does decides."""
    sign: str
    """Its symbol."""
    tone: Literal["neutral", "good", "bad", "open"]
    """Its colour in `fdkvc.charts.theme.TINTS`."""
    meaning: str
    """Explanation in Markdown."""


def by_equivalence(case: Case) -> bool:
    """Whether the measured figure is equivalent to the published one within the margin.

    Two one-sided tests at 5 %. A figure that is the same in all dialogs has no error: its margin is
    the rounding alone.

    References
    ----------
    D. J. Schuirmann, A Comparison of the Two One-Sided Tests Procedure and the Power Approach,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
    """
    error = case.spread / math.sqrt(case.dialogs)
    # The distance has no sign, so this is the stricter of the two tests.
    return case.distance + ONE_SIDED * error <= case.margin


def by_difference(case: Case) -> bool:
    """Whether the two figures differ significantly at 5 %."""
    # The standard error of a difference of two independent means with the same spread.
    error = case.spread * math.sqrt(1 / case.dialogs + 1 / case.published_dialogs)
    return case.distance > TWO_SIDED * error


CHANCE = "indistinguishable from zero"
REPRODUCED = "reproduced"
DIFFERS = "differs"
OPEN = "open"

POWER, POWER_OF_TEN = 18, 83
"""Percent of varying figures that `by_equivalence` calls reproduced for two samples of 600 dialogs
of one population, and with ten times as many measured; tests compute them."""

RULES: tuple[VerdictRule, ...] = (
    VerdictRule(
        CHANCE,
        lambda case: case.chance,
        "○",
        "neutral",
        "the published difference of two alignments may be due to chance, which leaves nothing to "
        "confirm. The paper's own t-tests decide (Section 5.6); where it prints none, the "
        "spread of unrelated vectors in this run does: the same differences with the topic "
        "projected by the key and query matrices.",
    ),
    VerdictRule(
        REPRODUCED,
        by_equivalence,
        "✓",
        "good",
        "statistically equivalent within a margin: the rounding of the printed figure + "
        "1.96·s/√n_published, half of its own 95 % interval, where s is the standard deviation "
        "over the measured dialogs. |measured − published| + 1.645·s/√n is within the margin (a "
        "test of equivalence at 5 %). A constant, equal in all dialogs, has s = 0. A percentile is "
        "compared by the share of measured dialogs on either side of it.",
    ),
    VerdictRule(
        DIFFERS,
        by_difference,
        "≠",
        "bad",
        "|measured − published| exceeds the rounding of the printed figure + "
        "1.96·s·√(1/n + 1/n_published): a significant difference at 5 %.",
    ),
    VerdictRule(
        OPEN,
        lambda case: True,
        "?",
        "open",
        "neither equivalence nor a difference is shown: this is not evidence against the figure. "
        "Reproducing a varying figure takes at least about 420 dialogs if the paper has 600, and "
        "140 if it has 200. For two samples of one population and of equal size, the rules call "
        f"{POWER} % of such figures reproduced, 5 % different and the rest "
        f"open; with ten times the paper's dialogs, {POWER_OF_TEN} % are reproduced. "
        "Rounding of the printed figure raises these shares.",
    ),
)

LEGEND = (
    *(f"**{rule.verdict.capitalize()}**: {rule.meaning}" for rule in RULES),
    f"There is no verdict with fewer than {FEWEST_DIALOGS} dialogs, on times (they depend on the "
    "machine), on the defaults of Table 7 (they are the paper's), and where the paper prints "
    "nothing.",
)
"""Explanation of all verdicts in Markdown; the first that applies decides."""

SIGNS = {rule.verdict: rule.sign for rule in RULES}
"""The symbol of each verdict."""

COUNTED = {
    **{verdict: verdict for verdict in SIGNS},
    CHANCE: "published too close to zero to judge",
    DIFFERS: "differ",
}
"""The words of each verdict after a number of figures."""


def compare_case(case: Case | None) -> str | None:
    """Return the verdict of the first rule that applies; None with fewer than `FEWEST_DIALOGS`.

    None also without a case, where nothing is published.

    Examples
    --------
    >>> figure = Published(0.701, 0.0005, "70.1%", "Table 4", 600)
    >>> compare_case(mean_case(0.7014, 0.02, 600, figure))
    'reproduced'
    >>> compare_case(mean_case(0.704, 0.02, 600, figure))
    'differs'
    >>> compare_case(mean_case(0.702, 0.02, 200, figure))
    'open'
    """
    if case is None or case.dialogs < FEWEST_DIALOGS:
        return None
    return next(rule.verdict for rule in RULES if rule.applies(case))


def mean_case(
    mean: float, spread: float, dialogs: int, figure: Published, *, chance: bool = False
) -> Case:
    """Return the case of a mean, up to `FUZZ`, the rounding of metrics in float32."""
    fuzz = FUZZ * max(abs(mean), abs(figure.value))
    distance = abs(mean - figure.value) - figure.rounding - fuzz
    return Case(distance, spread, dialogs, figure.dialogs, chance)


def percentile_case(values: Values, share: float, figure: Published) -> Case:
    """Return the case of a percentile.

    The figure is a percentile of `values` (n,) if `share`, 0.5 for the median, lies between the
    share of values below it and the share not above it; the standard error of a share is
    √(share (1 − share) / n).
    """
    # The paper prints no spread of percentiles, so the distance is one of shares of dialogs.
    below = float((values < figure.range.low).mean())
    not_above = float((values <= figure.range.high).mean())
    spread = math.sqrt(share * (1 - share))
    return Case(max(below - share, share - not_above), spread, len(values), figure.dialogs)


def published_difference(scenario: str) -> Published | None:
    """Return the published difference in alignment that the paper tests."""
    if (BASELINE, scenario) not in LATE_ALIGNMENT:
        return None
    ablated = LATE_ALIGNMENT[ABLATED_POLICY, scenario]
    baseline = LATE_ALIGNMENT[BASELINE, scenario]
    value = ablated.value - baseline.value
    rounding = ablated.rounding + baseline.rounding  # both may err in opposite directions
    return Published(value, rounding, f"{value:+.4f}", "Table 1; Section 5.6", ablated.dialogs)


def t_of_difference(scenario: str, spread: float) -> float:
    """Return the published t of the alignments' difference.

    If the paper prints none, it is computed from `spread`, the standard deviation over dialogs of
    the same difference of unrelated vectors.

    Examples
    --------
    >>> t_of_difference("shift", 0.2), round(t_of_difference("return", 0.174), 2)
    (1.31, -1.77)
    """
    if (scenario, "t") in T_TESTS:
        return T_TESTS[scenario, "t"].value
    figure = published_difference(scenario)
    if figure is None:
        return math.nan
    return figure.value / spread * math.sqrt(figure.dialogs)
