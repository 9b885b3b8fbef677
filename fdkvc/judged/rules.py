"""The rules by which a published figure is judged: one list, of which the first that applies."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from fdkvc.dialogs.scenarios import World
from fdkvc.measured.statistics import FUZZ, Summary
from fdkvc.paper.tables import (
    ABLATED_POLICY,
    BASELINE,
    LATE_ALIGNMENT,
    T_TESTS,
    Published,
    Range,
)

FEWEST_DIALOGS = 100
"""With fewer dialogs than this nothing is said about a published figure."""


@dataclass(frozen=True)
class Case:
    """A measured figure and a published one, with what decides between them.

    Attributes
    ----------
    expected : Range
        Where the figure of as many dialogs as are published lies in 95 of 100 cases.
    chance : bool
        Whether the published figure may as well be chance.
    """

    measured: float
    published: Published
    expected: Range
    chance: bool = False


class Rule(NamedTuple):
    """A rule: the verdict that it gives, and all that is said and shown of it.

    Attributes
    ----------
    applies : function of Case to bool
    sign, tex : str
        Its sign beside a figure, and the same as a command of LaTeX.
    tint : str
        A colour of CSS that lets text show on light and dark.
    meaning : str
        Markdown, behind the verdict.
    """

    verdict: str
    applies: Callable[[Case], bool]
    sign: str
    tex: str
    tint: str
    meaning: str


def by_chance(case: Case) -> bool:
    """Whether no measurement could confirm the published figure, by the paper's own tests."""
    return case.chance


def by_scatter(case: Case) -> bool:
    """Whether the published figure, rounded as it is, lies where it is expected.

    For a mean these are 1.96 standard errors of the difference of two samples, ours and the
    paper's (`expected_mean`); for a percentile the scatter of its place among the dialogs
    (`fdkvc.measured.statistics.percentile_interval`); for a constant the number itself. Up to
    `FUZZ`, the rounding of metrics in float32.
    """
    figure = case.published
    fuzz = FUZZ * max(abs(case.measured), abs(figure.value))
    room = figure.rounding + fuzz
    return case.expected.low - room <= figure.value <= case.expected.high + room


def otherwise(case: Case) -> bool:
    """Whether it is any case at all."""
    return True


RULES: tuple[Rule, ...] = (
    Rule(
        "cannot be told from zero",
        by_chance,
        "○",
        r"\circ",
        "#99999926",
        "the published value may as well be chance. For the difference of two alignments the "
        "paper's own t-tests decide (Section 5.6; where it prints none, the spread that its others "
        "imply); for an alignment, whether it is within "
        "1.96·0.25/√n, where 0.25 is the spread of the cosine of unrelated vectors of 16 numbers.",
    ),
    Rule(
        "reproduced",
        by_scatter,
        "✓",
        r"\checkmark",
        "#009E7326",
        "measured and published differ by no more than the rounding of the printed "
        "figure + 1.96·s·√(1/n + 1/n_published), s being the standard deviation over our dialogs; "
        "a percentile by the scatter of its place among the dialogs.",
    ),
    Rule("differs", otherwise, "≠", r"\neq", "#D55E0033", "by more than that."),
)

UNJUDGED = (
    f"There is no verdict with fewer than {FEWEST_DIALOGS} dialogs, on times, which depend on the "
    "machine, and where the paper prints nothing."
)

LEGEND = (*(f"**{rule.verdict.capitalize()}**: {rule.meaning}" for rule in RULES), UNJUDGED)
"""How a figure is judged, in words; the first that applies."""

SIGNS = {rule.verdict: rule.sign for rule in RULES}
"""The sign of each verdict."""


def verdict(case: Case) -> str:
    """Judge a case by the first rule that applies.

    Examples
    --------
    >>> figure = Published(0.706, 0.0005, "70.6%", "Table 4", 600)
    >>> verdict(Case(0.701, figure, expected_mean(Summary(600, 0.701, 0.05, 0, 0), figure)))
    'reproduced'
    """
    return next(rule.verdict for rule in RULES if rule.applies(case))


def expected_mean(summary: Summary, figure: Published) -> Range:
    """Return where the mean of as many other dialogs as are published lies in 95 of 100 cases."""
    reach = 1.96 * summary.sd * math.sqrt(1 / summary.n + 1 / figure.dialogs)
    return Range(summary.mean - reach, summary.mean + reach)


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


def published_difference(scenario: str) -> Published | None:
    """Return the difference of the two published alignments that the paper tests."""
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
    figure = published_difference(scenario)
    if figure is None:
        return math.nan
    spread = fmean(test.implied_sd for test in T_TESTS)
    return figure.value / spread * math.sqrt(figure.dialogs)
