"""The paper's claims: the quantity that decides each, and its value from the printed cells."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from statistics import NormalDist, fmean
from typing import Literal

from fdkvc.paper.tables import (
    ABLATION_DIALOGS,
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
    TTest,
    published_sweep,
    read_printed,
)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A figure computed from printed ones, with its range by their rounding."""

    value: float
    range: Range


def recompute(function: Callable[..., float], *figures: Published) -> Recomputed:
    """Compute a figure from printed ones.

    Parameters
    ----------
    function : callable
        Takes one number for each figure; monotonic in each, so that its extremes are at the ends
        of their rounding ranges.
    *figures : Published

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


def ratio(value: float, baseline: float) -> float:
    """Return the value as a multiple of the baseline."""
    return value / baseline


def difference(value: float, baseline: float) -> float:
    """Return the value minus the baseline."""
    return value - baseline


def rank(value: float, *others: float) -> float:
    """Return the rank of a value, 1 for the highest."""
    return 1 + sum(other > value for other in others)


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
    return recompute(lambda *cells: fmean(cells), *(table[policy, each] for each in scenarios))


def _rank(table: Table, column: str) -> Recomputed:
    others = [policy for policy in table.rows if policy != "fd-kvc"]
    return recompute(rank, table["fd-kvc", column], *(table[other, column] for other in others))


def _peak(parameter: str) -> Recomputed:
    values, table = published_sweep(parameter), ABLATIONS[parameter]

    def highest(*alignments: float) -> float:
        return values[alignments.index(max(alignments))]

    return recompute(highest, *(table[row, "late_alignment"] for row in table.rows))


def _exactly(value: float) -> Recomputed:
    return Recomputed(value, Range(value, value))


Kind = Literal[
    "value",
    "change",
    "ratio",
    "difference",
    "rank",
    "share",
    "t",
    "p",
    "peak",
    "settles",
    "growth",
    "swing",
    "same",
]


@dataclass(frozen=True, slots=True)
class Measure:
    """The measured quantity that judges a claim, with the paper's settings.

    Attributes
    ----------
    kind : str
        - ``value``: the policy's mean over dialogs, or the value of a metric of a run;
        - ``change``, ``ratio``, ``difference``: the policy's mean against the baseline's, by the
          functions of those names;
        - ``rank``: the policy's rank by its mean among the paper's four, 1 for the highest;
        - ``share``: of dialogs in which the policy is above the baseline, 0 to 1;
        - ``t``, ``p``: of the paired t-test of the policy against the baseline;
        - ``peak``: the value in the published sweep of `parameter` with the highest mean;
        - ``settles``: turns until the turn's mean stays within a tenth of the last turn's;
        - ``growth``: the relative change of the turn's mean from turn 1 (the cache is empty before
          turn 0) to the last;
        - ``swing``: (highest − lowest) / highest of the turns' means from turn 1 on;
        - ``same``: share of turns after which policy and baseline hold the same entries, 0 to 1.
    metric : str
        - of a dialog: ``late_alignment``, ``late_retention``, ``late_diversity`` (fractions),
          ``adaptation`` (turns), ``latency`` (milliseconds a turn);
        - of a turn: ``retention``, ``ownership_loss``, ``learning_rate``, ``highest_score`` (the
          highest hybrid score in the cache after eviction) and ``entries``, for kind ``same``;
        - of a run: ``threshold_evictions`` (entries evicted by τ), ``seconds`` (wall clock of one
          scenario under all four policies), ``score_bytes`` (of an entry), ``parameters`` (number
          of free ones).
    scenario : str or None
        None for the whole benchmark (evictions of all five scenarios, seconds of the slowest) or
        if it does not depend on the scenario.
    policy : str
        The policy's key.
    baseline : str or None
        The baseline's key, if two policies are compared.
    turn : int or None
        The turn of a metric of a turn; −1 is the last.
    parameter : str or None
        Of kind ``peak``.
    settings : tuple of (str, float)
        Parameters of the policy that differ from the paper's default.
    """

    kind: Kind
    metric: str
    scenario: str | None = None
    policy: str = "fd-kvc"
    baseline: str | None = None
    turn: int | None = None
    parameter: str | None = None
    settings: tuple[tuple[str, float], ...] = ()


ClaimVerdict = Literal["holds", "direction only", "does not hold", "open"]

TIMES = ("latency", "seconds")
"""Metrics that depend on the machine, so they are not judged."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the paper about its method, and the quantity that decides it.

    Attributes
    ----------
    claim : str
        The claim in our words.
    source : str
        Its place in the paper.
    measure : Measure
        The quantity that decides it.
    published : Published or None
        The printed figure; None if the claim is verbal.
    holds_when : Range or None
        The range of the measured quantity in which the claim is true; None if the claim is the
        printed figure.
    recomputed : Recomputed or None
        The same quantity from the paper's own cells, if they give it.
    bound : bool
        Whether the printed figure is a bound, such as "under 60 seconds".
    why : str
        The reason for the verdict.
    """

    key: str
    claim: str
    source: str
    measure: Measure
    why: str
    published: Published | None = None
    holds_when: Range | None = None
    recomputed: Recomputed | None = None
    bound: bool = False

    def judge(self, low: float, high: float, size: str | None = None) -> ClaimVerdict:
        """Judge the claim by what was measured.

        Parameters
        ----------
        low, high : float
            The measured quantity's 95 % interval, or the quantity twice; NaN if undefined.
        size : str, optional
            The verdict on the printed figure by the rules of all figures, such as ``reproduced``.
            By default, whether the interval overlaps the figure.

        Returns
        -------
        str
            ``holds``; ``direction only`` (true, but the printed figure is not confirmed);
            ``does not hold``; ``open`` (the measurement does not decide it or is undefined).

        Raises
        ------
        ValueError
            If `low` is above `high`.

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


_ABOVE_ZERO, _BELOW_ZERO, _FIRST = Range(low=0), Range(high=0), Range(1, 1)

_DEFAULTS = {parameter.key: parameter.default for parameter in HYPERPARAMETERS}

# μ·L is highest where every ĥ is 1/2 and L is 1/4, and least at 0 (Equations 6 and 7).
_WIDEST_SWING = 1 - 1 / (1 + _DEFAULTS["mu"] / 4)

# Where ĉ = 1 and ρ has reached its limit α₀ / (1 − γ) (Equations 2, 3 and 5).
_HIGHEST_SCORE = _DEFAULTS["w_c"] + _DEFAULTS["w_rho"] * _DEFAULTS["alpha_0"] / (
    1 - _DEFAULTS["gamma"]
)

_BY_PROJECTION = (
    "The printed alignments are no larger than those of unrelated vectors, and their difference is "
    "indistinguishable from zero; the topic projected by W_V, the space of the output, decides it."
)


def _alignment_claim(
    scenario: str,
    printed: str,
    source: str,
    policy: str = "fd-kvc",
    baseline: str = "h2o",
    why: str = _BY_PROJECTION,
) -> Claim:
    """Return the claim about the change of late-turn alignment between two policies."""
    published = read_printed(printed, source)
    above = published.value > 0
    whose, place = f"{policy.upper()}'s", _TITLES.get(scenario)
    than = f"{'above' if above else 'below'} {baseline.upper()}'s"
    words = f"alignment is {than} on {place}" if place else f"composite alignment is {than}"
    return Claim(
        key=f"alignment-{scenario}" + ("-h2o" if policy == "h2o" else ""),
        claim=f"{whose} {words}",
        source=source,
        published=published,
        recomputed=recompute(
            change, LATE_ALIGNMENT[policy, scenario], LATE_ALIGNMENT[baseline, scenario]
        ),
        measure=Measure("change", "late_alignment", scenario, policy, baseline),
        holds_when=_ABOVE_ZERO if above else _BELOW_ZERO,
        why=why,
    )


_TITLES = {
    "shift": "Topic Shift",
    "gradual": "Gradual Evolution",
    "mixed": "Mixed 3-Topic",
    "return": "Topic Return",
}

_ALIGNMENT_CLAIMS = (
    _alignment_claim(
        "composite",
        "+6.7%",
        "abstract; Sections 5.1, 8",
        why="The printed composites give +6.5 %, and their rounding allows +6.7 %. The difference "
        "is not significant, so no measurement can confirm its size; the topic projected by W_V, "
        "the space of the output, decides the direction.",
    ),
    _alignment_claim("shift", "+127%", "abstract; Sections 5.1, 5.6"),
    _alignment_claim("gradual", "+87%", "abstract; Sections 5.1, 5.6"),
    _alignment_claim("mixed", "+30%", "abstract; Sections 5.1, 5.6"),
    _alignment_claim(
        "return",
        "-39%",
        "Section 9",
        why="Half of H2O's cache always holds the first topic, so it is still cached when the "
        "topic returns.",
    ),
    _alignment_claim(
        "return",
        "+64%",
        "Section 5.1",
        "h2o",
        "fd-kvc",
        "The same two cells, reversed.",
    ),
)


def _test_claims(test: TTest) -> tuple[Claim, Claim]:
    """Return the claims of a paired t-test: its t and its p, each recomputed from the other."""
    claim = f"Paired over dialogs, the difference from H2O on {test.scenario.title()}"
    return (
        Claim(
            key=f"t-{test.scenario}",
            claim=f"{claim} is small against its spread (t)",
            source=test.t.source,
            published=test.t,
            recomputed=recompute(t_of_p, test.p),
            measure=Measure("t", "late_alignment", test.scenario, baseline="h2o"),
            holds_when=Range(-t_of_p(0.05), t_of_p(0.05)),
            why=_BY_PROJECTION,
        ),
        Claim(
            key=f"p-{test.scenario}",
            claim=f"{claim} is not significant (p)",
            source=test.p.source,
            published=test.p,
            recomputed=recompute(p_of_t, test.t),
            measure=Measure("p", "late_alignment", test.scenario, baseline="h2o"),
            holds_when=Range(0.05, 1),
            why=_BY_PROJECTION,
        ),
    )


_SIGNIFICANCE_CLAIMS = (
    *(claim for test in T_TESTS for claim in _test_claims(test)),
    Claim(
        key="significant",
        claim="The improvement over H2O in composite alignment is significant",
        source="Section 1",
        recomputed=recompute(min, *(test.p for test in T_TESTS)),
        measure=Measure("p", "late_alignment", "composite", baseline="h2o"),
        holds_when=Range(0, 0.05),
        why="The smallest p that the paper prints is 0.19, and it tests no composite; the topic "
        "projected by W_V decides it.",
    ),
    Claim(
        key="consistent",
        claim="The improvement over H2O on Topic Shift is consistent across dialogs",
        source="Section 5.6",
        recomputed=recompute(lambda t: NormalDist().cdf(t / math.sqrt(DIALOGS)), T_TESTS[0].t),
        measure=Measure("share", "late_alignment", "shift", baseline="h2o"),
        holds_when=Range(0.9, 1),
        why="Consistent is read as nine dialogs in ten; a t of 1.31 over 600 dialogs means that "
        "little more than half of them improve. The topic projected by W_V decides it.",
    ),
)


_RANK_CLAIMS = (
    Claim(
        key="heuristics-alignment",
        claim="FD-KVC aligns better than coarse heuristics, which fail to follow the topic",
        source="abstract; Section 1",
        recomputed=_rank(LATE_ALIGNMENT, "composite"),
        measure=Measure("rank", "late_alignment", "composite"),
        holds_when=_FIRST,
        why="FIFO and Sink+Window lead FD-KVC on composite alignment, in the printed table too: a "
        "window of 1.75 turns is soon full of the current topic.",
    ),
    Claim(
        key="heuristics-retention",
        claim="FD-KVC retains more of the current topic than coarse heuristics",
        source="abstract; Section 1",
        recomputed=_rank(RETENTION_AND_LATENCY, "late_retention"),
        measure=Measure("rank", "late_retention", "composite"),
        holds_when=_FIRST,
        why="FIFO and Sink+Window lead FD-KVC on composite retention, in the printed table too.",
    ),
    Claim(
        key="retention-h2o",
        claim="FD-KVC retains more of the current topic than H2O",
        source="Section 5.4",
        recomputed=recompute(
            difference,
            RETENTION_AND_LATENCY["fd-kvc", "late_retention"],
            RETENTION_AND_LATENCY["h2o", "late_retention"],
        ),
        measure=Measure("difference", "late_retention", "composite", baseline="h2o"),
        holds_when=_ABOVE_ZERO,
        why="Half of H2O's cache never leaves the first topic.",
    ),
    Claim(
        key="retention-fifo",
        claim="FD-KVC retains less of the current topic than FIFO",
        source="Section 5.4",
        recomputed=recompute(
            difference,
            RETENTION_AND_LATENCY["fd-kvc", "late_retention"],
            RETENTION_AND_LATENCY["fifo", "late_retention"],
        ),
        measure=Measure("difference", "late_retention", "composite", baseline="fifo"),
        holds_when=_BELOW_ZERO,
        why="FIFO keeps the newest entries, and the newest are of the current topic.",
    ),
    Claim(
        key="diversity-highest",
        claim="FD-KVC has the highest composite diversity",
        source="abstract; Sections 5.3, 7, 8",
        recomputed=_rank(LATE_DIVERSITY, "composite"),
        measure=Measure("rank", "late_diversity", "composite"),
        holds_when=_FIRST,
        why="Old topics fade from FD-KVC's cache entry by entry; on Topic Shift alone, Sink+Window "
        "and H2O keep more topics.",
    ),
    Claim(
        key="diversity-composite",
        claim="FD-KVC's composite diversity is 80.6 %",
        source="abstract; Sections 5.3, 7, 8",
        published=LATE_DIVERSITY["fd-kvc", "composite"],
        recomputed=composite(LATE_DIVERSITY, "fd-kvc"),
        measure=Measure("value", "late_diversity", "composite"),
        why="Table 3 prints four scenarios and its composite is of five: it comes out with a "
        "Gradual cell of 100 %.",
    ),
)


_ADAPTATION_CLAIMS = (
    Claim(
        key="adaptation-faster",
        claim="FD-KVC adapts to a new topic in fewer turns than H2O",
        source="abstract; Sections 5.2, 7, 8",
        published=read_printed("3.6×", "abstract; Sections 5.2, 7, 8"),
        recomputed=recompute(ratio, ADAPTATION["h2o", "mean"], ADAPTATION["fd-kvc", "mean"]),
        measure=Measure("ratio", "adaptation", "adaptation", "h2o", "fd-kvc"),
        holds_when=Range(low=1),
        why="H2O never adapts, so the ratio is the length of the run over FD-KVC's turns and would "
        "grow with a longer run.",
    ),
    Claim(
        key="adaptation-fifo",
        claim="FD-KVC adapts to the new topic as quickly as FIFO",
        source="Section 5.5; Figure 3",
        recomputed=recompute(ratio, ADAPTATION["fd-kvc", "mean"], ADAPTATION["fifo", "mean"]),
        measure=Measure("ratio", "adaptation", "adaptation", baseline="fifo"),
        holds_when=Range(high=1.5),
        why="As quickly is read as at most 1.5 times as many turns; the old topic's recency has to "
        "decay first, and Table 2 prints more than twice FIFO's turns.",
    ),
    Claim(
        key="shift-complete",
        claim="Under FD-KVC the whole cache finally holds the new topic",
        source="Section 5.5; Figure 3",
        published=read_printed("100%", "Section 5.5"),
        measure=Measure("value", "retention", "shift", turn=-1),
        why="By the last turn of Topic Shift the old topic's recency has decayed.",
    ),
    Claim(
        key="shift-h2o",
        claim="Half of H2O's cache keeps the old topic",
        source="Section 5.5; Figure 3",
        published=read_printed("~50%", "Section 5.5"),
        measure=Measure("value", "late_retention", "shift", "h2o"),
        why="The heavy half of the budget is full of the first topic, and cumulative scores cannot "
        "fall.",
    ),
)


_COST_CLAIMS = (
    Claim(
        key="latency-ratio",
        claim="FD-KVC's latency is a small multiple of FIFO's",
        source="Section 9",
        published=read_printed("3.9×", "Section 9"),
        recomputed=recompute(
            ratio,
            RETENTION_AND_LATENCY["fd-kvc", "latency"],
            RETENTION_AND_LATENCY["fifo", "latency"],
        ),
        measure=Measure("ratio", "latency", "composite", baseline="fifo"),
        holds_when=Range(low=1),
        why="FD-KVC scores every entry and FIFO none; the cost depends on the implementation and "
        "the machine.",
    ),
    Claim(
        key="latency",
        claim="A turn of FD-KVC takes 0.105 ms",
        source="Sections 5.4, 7, 9",
        published=RETENTION_AND_LATENCY["fd-kvc", "latency"],
        measure=Measure("value", "latency", "composite"),
        why="Depends on the machine; the paper's is one core of an Apple M-series.",
    ),
    Claim(
        key="latency-increase",
        claim="FD-KVC's extra latency over FIFO is negligible against 50 ms a token of inference",
        source="Section 5.4",
        published=read_printed("0.078 ms", "Section 5.4"),
        recomputed=recompute(
            difference,
            RETENTION_AND_LATENCY["fd-kvc", "latency"],
            RETENTION_AND_LATENCY["fifo", "latency"],
        ),
        measure=Measure("difference", "latency", "composite", baseline="fifo"),
        holds_when=Range(high=0.5),
        why="Negligible is read as at most a hundredth of 50 ms; a model pays it in every head of "
        "every layer.",
    ),
    Claim(
        key="score-bytes",
        claim="The two scores of an entry take 8 bytes",
        source="Appendix B",
        published=read_printed("8", "Appendix B", exact=True),
        recomputed=_exactly(struct.calcsize("2f")),
        measure=Measure("value", "score_bytes"),
        why="Two float32 numbers; the embedding that the relevance needs is kept as well and is "
        "not counted.",
    ),
    Claim(
        key="seconds",
        claim="A scenario of 600 dialogs under four policies takes less than 60 seconds",
        source="Appendix B",
        published=read_printed("60 s", "Appendix B"),
        measure=Measure("value", "seconds"),
        holds_when=Range(0, 60),
        bound=True,
        why="Depends on the machine and on the batch size.",
    ),
)


_CONVERGENCE_CLAIMS = (
    Claim(
        key="loss-settles",
        claim="The ownership loss is stable after 2 to 3 turns",
        source="Section 5.5; Figure 2",
        published=read_printed("3", "Figure 2"),
        measure=Measure("settles", "ownership_loss", "mixed"),
        holds_when=Range(high=3),
        bound=True,
        why="Every change of topic changes the scores again, and recency keeps growing.",
    ),
    Claim(
        key="loss-falls",
        claim="The ownership loss converges downwards",
        source="Sections 3.3, 5.5",
        measure=Measure("growth", "ownership_loss", "mixed"),
        holds_when=_BELOW_ZERO,
        why="Entries of several topics and ages spread the scores over the whole range, where the "
        "loss is high.",
    ),
    Claim(
        key="loss-binary",
        claim="The hybrid scores become nearly binary",
        source="Sections 3.3, 5.5",
        measure=Measure("value", "ownership_loss", "mixed", turn=-1),
        holds_when=Range(high=0.1 * (1 - 0.1)),
        why="Nearly binary is read as a loss no higher than with every score within 0.1 of 0 or 1; "
        "nothing in the update drives scores to the ends.",
    ),
    Claim(
        key="learning-rate",
        claim="The learning rate responds to the ownership loss",
        source="Section 5.5; Figure 2",
        recomputed=Recomputed(_WIDEST_SWING, Range(0, _WIDEST_SWING)),
        measure=Measure("swing", "learning_rate", "mixed"),
        holds_when=Range(low=_WIDEST_SWING / 2),
        why="The loss is at most 1/4, so with μ = 0.40 the rate can swing by 9.1 % at most; a "
        "response is read as half of that or more. The loss stays near 1/10, and with it the rate.",
    ),
    Claim(
        key="fixed-point",
        claim="The hybrid score of a retained entry goes to 1",
        source="Section 3.3",
        published=read_printed("1", "Section 3.3", exact=True),
        recomputed=_exactly(_HIGHEST_SCORE),
        measure=Measure("value", "highest_score", "shift", turn=-1),
        why="Recency enters the score unnormalised, and its limit is α/(1 − γ), 2.5 with α₀, so "
        "scores exceed 1.",
    ),
)


def _peak_claim(parameter: str, symbol: str, printed: str, source: str, why: str) -> Claim:
    """Return the claim that alignment peaks at a value of a parameter."""
    return Claim(
        key=f"peak-{parameter}",
        claim=f"Alignment is highest at {symbol} = {printed}",
        source=source,
        published=read_printed(printed, source, ABLATION_DIALOGS, exact=True),
        recomputed=_peak(parameter),
        measure=Measure("peak", "late_alignment", "mixed", parameter=parameter),
        holds_when=Range(float(printed), float(printed)),
        why=why,
    )


_PARAMETER_CLAIMS = (
    _peak_claim(
        "w_c",
        "w_c",
        "0.3",
        "Section 6.1; Table 5",
        "More weight on the cumulative channel holds old topics longer, so with the topic "
        "projected by W_V there is no inner peak.",
    ),
    _peak_claim(
        "gamma",
        "γ",
        "0.80",
        "Section 6.2; Table 6",
        "As long as old recency decays within a topic's turns, the decay rate has little effect on "
        "the alignment with the topic projected by W_V.",
    ),
    Claim(
        key="w_c-one",
        claim="With w_c = 1 FD-KVC is H2O",
        source="Section 3.2.3",
        measure=Measure("same", "entries", "mixed", baseline="h2o", settings=(("w_c", 1.0),)),
        holds_when=_FIRST,
        why="Only the cumulative channel decides then, but H2O also protects a recent window and "
        "starts new entries at 0, not at 1.",
    ),
    Claim(
        key="hyperparameters",
        claim="FD-KVC has seven hyperparameters",
        source="Section 9",
        published=read_printed("7", "Section 9; Table 7", exact=True),
        recomputed=_exactly(sum(parameter.key != "w_rho" for parameter in HYPERPARAMETERS)),
        measure=Measure("value", "parameters"),
        why="w_c and w_ρ add up to 1 (Equation 5), so they are one.",
    ),
    Claim(
        key="threshold",
        claim="Entries whose score falls below τ of the highest are evicted",
        source="Section 3.4",
        measure=Measure("value", "threshold_evictions"),
        holds_when=Range(low=1),
        why="The cumulative term alone, w_c·ĉ, keeps every entry's score far above τ of the "
        "highest.",
    ),
)


CLAIMS = (
    *_ALIGNMENT_CLAIMS,
    *_SIGNIFICANCE_CLAIMS,
    *_RANK_CLAIMS,
    *_ADAPTATION_CLAIMS,
    *_COST_CLAIMS,
    *_CONVERGENCE_CLAIMS,
    *_PARAMETER_CLAIMS,
)
"""The paper's claims, headlines first."""


_BY_KEY = {claim.key: claim for claim in CLAIMS}


def claim(key: str) -> Claim:
    """Return a claim by its key.

    Raises
    ------
    KeyError
        If no claim has the key.

    Examples
    --------
    >>> claim("hyperparameters").recomputed.value
    6
    """
    return _BY_KEY[key]
