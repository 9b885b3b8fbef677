"""The rules by which a published figure is judged: one list, of which the first that applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fdkvc.experiments.benchmark import Values
from fdkvc.experiments.statistics import FUZZ
from fdkvc.paper.tables import ABLATED_POLICY, BASELINE, LATE_ALIGNMENT, T_TESTS, Published

FEWEST_DIALOGS = 100
"""With fewer dialogs than this nothing is said about a published figure."""

TWO_SIDED, ONE_SIDED = 1.96, 1.645
"""Standard errors that 95 of 100 samples keep to on either side, and on one."""


@dataclass(frozen=True)
class Case:
    """A measured figure and a published one, with what decides between them.

    Attributes
    ----------
    apart : float
        How far the two are apart, less the rounding of the printed one; negative within it.
    spread : float
        Standard deviation over our dialogs; the paper prints none, so it stands for both.
    dialogs, published_dialogs : int
        Behind our figure, and behind the published one.
    chance : bool
        Whether the published figure may as well be chance.
    difference : bool
        Whether it is the difference of two alignments, of which chance decides; of a single
        alignment it is only said beside the verdict.
    """

    apart: float
    spread: float
    dialogs: int
    published_dialogs: int
    chance: bool = False
    difference: bool = False

    @property
    def margin(self) -> float:
        """How far apart they may be: half of the published figure's own 95 % interval."""
        return TWO_SIDED * self.spread / math.sqrt(self.published_dialogs)


class Rule(NamedTuple):
    """A rule: the verdict that it gives, and all that is said and shown of it.

    Attributes
    ----------
    applies : function of Case to bool
    sign, tex : str
        Its sign beside a figure, and the same as a command of LaTeX.
    tone : {"neutral", "good", "bad", "open"}
        By which `fdkvc.charts.theme.TINTS` colours it.
    meaning : str
        Markdown, behind the verdict.
    """

    verdict: str
    applies: Callable[[Case], bool]
    sign: str
    tex: str
    tone: Literal["neutral", "good", "bad", "open"]
    meaning: str


def by_chance(case: Case) -> bool:
    """Whether no measurement could confirm the published figure, by the paper's own tests."""
    return case.chance and case.difference


def by_equivalence(case: Case) -> bool:
    """Whether the true figure is within the margin of the published one, at 95 % confidence.

    A test of equivalence by two one-sided tests at 5 %. A figure that is the same in every dialog
    has no error, and a margin of rounding alone.

    References
    ----------
    D. J. Schuirmann, A Comparison of the Two One-Sided Tests Procedure and the Power Approach,
    Journal of Pharmacokinetics and Biopharmaceutics 15, 1987.
    """
    error = case.spread / math.sqrt(case.dialogs)
    return case.apart + ONE_SIDED * error <= case.margin


def by_difference(case: Case) -> bool:
    """Whether two samples of one population would hardly be so far apart."""
    error = case.spread * math.sqrt(1 / case.dialogs + 1 / case.published_dialogs)
    return case.apart > TWO_SIDED * error


def power(dialogs: int, published_dialogs: int) -> float:
    """Return how often `by_equivalence` confirms a figure if both samples are of one population.

    Of a mean of so many dialogs that varies, rounding aside.

    Examples
    --------
    >>> round(power(600, 600), 2), round(power(6000, 600), 2), power(100, 600)
    (0.18, 0.83, 0.0)
    """
    error, margin = 1 / math.sqrt(dialogs), TWO_SIDED / math.sqrt(published_dialogs)
    room = max(margin - ONE_SIDED * error, 0.0)
    return math.erf(room / math.sqrt(2 * (1 / dialogs + 1 / published_dialogs)))


def otherwise(case: Case) -> bool:
    """Whether it is any case at all."""
    return True


REPRODUCED, OPEN = "reproduced", "open"

RULES: tuple[Rule, ...] = (
    Rule(
        "indistinguishable from zero",
        by_chance,
        "○",
        r"\circ",
        "neutral",
        "the published difference of two alignments may as well be chance, so that nothing could "
        "confirm it. The paper's own t-tests decide (Section 5.6); where it prints none, the "
        "spread that unrelated vectors have in this run: the same differences with the topic "
        "projected by W_K and W_Q.",
    ),
    Rule(
        REPRODUCED,
        by_equivalence,
        "✓",
        r"\checkmark",
        "good",
        "statistically equivalent within a margin: the rounding of the printed figure + "
        "1.96·s/√n_published, half of its own 95 % interval, s being the standard deviation over "
        "our dialogs. |measured − published| + 1.645·s/√n is no more than that (a test of "
        "equivalence at 5 %). A constant, which is the same in every dialog, has s = 0. A "
        "percentile is judged by the share of our dialogs on either side of it.",
    ),
    Rule(
        "differs",
        by_difference,
        "≠",
        r"\neq",
        "bad",
        "they are further apart than the rounding of the printed figure + "
        "1.96·s·√(1/n + 1/n_published), which two samples alike would hardly be.",
    ),
    Rule(
        OPEN,
        otherwise,
        "?",
        "?",
        "open",
        "neither equivalence nor a difference is shown, which is no evidence against the figure. "
        "Of a figure that varies from dialog to dialog it takes some 420 dialogs to reproduce one "
        "of the paper's 600 at all, and 140 to reproduce one of its 200. Where both samples are of "
        "one population and as large as each other, the rules call "
        f"{100 * power(600, 600):.0f} % of such figures reproduced, 5 % different and the others "
        f"open; with ten times the paper's dialogs, {100 * power(6000, 600):.0f} % are reproduced. "
        "Rounding of the printed figure adds to that.",
    ),
)

UNJUDGED = (
    f"There is no verdict with fewer than {FEWEST_DIALOGS} dialogs, on times, which depend on the "
    "machine, on the defaults of Table 7, which are taken from the paper, and where the paper "
    "prints nothing."
)

LEGEND = (*(f"**{rule.verdict.capitalize()}**: {rule.meaning}" for rule in RULES), UNJUDGED)
"""How a figure is judged, in words; the first that applies."""

SIGNS = {rule.verdict: rule.sign for rule in RULES}
"""The sign of each verdict."""


def verdict(case: Case) -> str | None:
    """Judge a case by the first rule that applies; None with fewer than `FEWEST_DIALOGS`.

    Examples
    --------
    >>> figure = Published(0.701, 0.0005, "70.1%", "Table 4", 600)
    >>> verdict(mean_case(0.7014, 0.02, 600, figure))
    'reproduced'
    >>> verdict(mean_case(0.704, 0.02, 600, figure))
    'differs'
    >>> verdict(mean_case(0.702, 0.02, 200, figure))
    'open'
    """
    if case.dialogs < FEWEST_DIALOGS:
        return None
    return next(rule.verdict for rule in RULES if rule.applies(case))


def mean_case(
    mean: float,
    spread: float,
    dialogs: int,
    figure: Published,
    *,
    chance: bool = False,
    difference: bool = False,
) -> Case:
    """Return the case of a mean, up to `FUZZ`, the rounding of metrics in float32."""
    fuzz = FUZZ * max(abs(mean), abs(figure.value))
    apart = abs(mean - figure.value) - figure.rounding - fuzz
    return Case(apart, spread, dialogs, figure.dialogs, chance, difference)


def percentile_case(values: Values, share: float, figure: Published) -> Case:
    """Return the case of a percentile.

    The figure is one of our dialogs' if `share` lies between the shares of them that are below it
    and that are not above it; of n dialogs such a share scatters by √(share (1 − share) / n).

    Parameters
    ----------
    values : array (n,)
        One number a dialog.
    share : float
        In (0, 1): 0.5 for the median.
    """
    below = float((values < figure.range.low).mean())
    not_above = float((values <= figure.range.high).mean())
    spread = math.sqrt(share * (1 - share))
    return Case(max(below - share, share - not_above), spread, len(values), figure.dialogs)


def differs_from_zero(figure: Published, spread: float) -> bool:
    """Whether a published alignment is larger than chance makes it in 95 of 100 cases.

    Parameters
    ----------
    spread : float
        Standard deviation over dialogs of the same alignment of unrelated vectors.

    Examples
    --------
    >>> differs_from_zero(LATE_ALIGNMENT["h2o", "shift"], 0.25)
    False
    >>> differs_from_zero(LATE_ALIGNMENT["h2o", "composite"], 0.17)
    True
    """
    return abs(figure.value) - figure.rounding > TWO_SIDED * spread / math.sqrt(figure.dialogs)


def published_difference(scenario: str) -> Published | None:
    """Return the difference of the two published alignments that the paper tests."""
    one = LATE_ALIGNMENT.cell(ABLATED_POLICY, scenario)
    other = LATE_ALIGNMENT.cell(BASELINE, scenario)
    if one is None or other is None:
        return None
    value = one.value - other.value
    rounding = one.rounding + other.rounding
    return Published(value, rounding, f"{value:+.4f}", "Table 1; Section 5.6", one.dialogs)


def t_of_difference(scenario: str, spread: float) -> float:
    """Return the published t of the alignments' difference.

    Parameters
    ----------
    spread : float
        Where the paper prints no t, it is computed from this: the standard deviation over dialogs
        of the same difference of unrelated vectors. NaN where it is not known.

    Examples
    --------
    >>> t_of_difference("shift", 0.2), round(t_of_difference("return", 0.174), 2)
    (1.31, -1.77)
    """
    for test in T_TESTS:
        if test.scenario == scenario:
            return test.t.value
    figure = published_difference(scenario)
    if figure is None:
        return math.nan
    return figure.value / spread * math.sqrt(figure.dialogs)
