"""The paper's claims, each with what a study measured and the verdict.

`fdkvc.paper.claims` defines each claim and the quantity that decides it, which is computed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fdkvc.core.parameters import parameters_of
from fdkvc.core.statistics import (
    Summary,
    differences,
    paired,
    share_interval,
    significant,
    summarize,
)
from fdkvc.core.words import decimal, minus, p_value
from fdkvc.paper.benchmark import COMPOSITE, Values, matches_paper
from fdkvc.paper.claims import CLAIMS, TIMES, Claim, ClaimVerdict, Measure
from fdkvc.paper.published import DIALOGS
from fdkvc.paper.replication.cells import MEASURED, unit_named
from fdkvc.paper.replication.facts import may_be_chance
from fdkvc.paper.replication.rules import FEWEST_DIALOGS, compare_case, mean_case
from fdkvc.paper.study import Study
from fdkvc.policies import PAPER_POLICIES, POLICIES
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS

SETTLED = 0.1
"""A quantity has settled while it is this close to its last value, as a share of that value."""

DEPENDS: ClaimVerdict = "depends on the matrix"
"""The verdict on a claim of alignment that matrices answer otherwise."""

MATRICES = {
    "value": "late_alignment",
    "key": "late_alignment_key",
    "query": "late_alignment_query",
}
"""The metric of alignment with each matrix that may project the topic; the paper leaves open which
it means. The first is used where one is shown."""

RECOMPUTED = ("recomputed_low", "recomputed", "recomputed_high")
COLUMNS = ("claim", "source", "published", *RECOMPUTED, *MEASURED, "verdict", "why")


@dataclass(frozen=True)
class Measurement:
    """A measured quantity."""

    value: float
    """The quantity."""
    low: float
    """The lower end of its 95 % interval; the value if it has none."""
    high: float
    """The upper end."""
    n: int = 0
    """Number of dialogs; 0 if it does not depend on dialogs."""
    spread: float = 0.0
    """Standard deviation over dialogs; 0 if it is not a mean."""
    candidates: tuple[float, ...] = ()
    """The values that the measurement does not exclude, of a quantity with a few possible ones."""
    difference: str = ""
    """The difference that a t is of, with its interval."""


@dataclass(frozen=True)
class ClaimResult:
    """A claim with its measurement."""

    claim: Claim
    """What the paper says."""
    measured: Measurement | None
    """None if the study does not measure it."""
    verdict: ClaimVerdict | None
    """Of `Claim.verdict`; None without a measurement, with fewer than `FEWEST_DIALOGS` dialogs, and
    for times, which depend on the machine."""
    by_matrix: Mapping[str, "ClaimResult"] = field(default_factory=dict)
    """The same claim with each of `MATRICES`, if it is about alignment and all are measured."""

    @property
    def refuted_by_paper(self) -> bool:
        """Whether it does not hold, by the paper's own numbers either."""
        if self.claim.recomputed is None:
            return False
        low, _, high = self.claim.recomputed
        return self.verdict == self.claim.verdict(low, high) == "does not hold"


def claim_results(study: Study, claims: Sequence[Claim] = CLAIMS) -> list[ClaimResult]:
    """Return the verdict of a study on each claim."""
    return [_result_of_matrices(study, claim) for claim in claims]


def _result_of_matrices(study: Study, claim: Claim) -> ClaimResult:
    """Return the verdict: that of every matrix, or of the paper's own numbers, or `DEPENDS`.

    There is none where a matrix is not measured, as in sweeps.
    """
    result = _result(study, claim)
    if claim.measure.metric != MATRICES["value"]:
        return result
    by_matrix = {}
    for matrix, metric in MATRICES.items():
        measure_of_matrix = replace(claim.measure, metric=metric)
        by_matrix[matrix] = _result(study, replace(claim, measure=measure_of_matrix))
    if any(row.measured is None for row in by_matrix.values()):
        return result if result.refuted_by_paper else replace(result, verdict=None)
    differ = len({row.verdict for row in by_matrix.values()}) > 1
    verdict = DEPENDS if differ and not result.refuted_by_paper else result.verdict
    return replace(result, verdict=verdict, by_matrix=by_matrix)


def _result(study: Study, claim: Claim) -> ClaimResult:
    measured = measure(claim.measure, study)
    finished = map(study.results.dialogs, study.results.measured)
    has_few_dialogs = min(finished, default=0) < FEWEST_DIALOGS
    if measured is None or has_few_dialogs or claim.measure.metric in TIMES:
        return ClaimResult(claim, measured, None)
    # Of a few possible values, all that are not excluded must lead to the same verdict.
    if measured.candidates:
        verdicts = {claim.verdict(value, value) for value in measured.candidates}
        return ClaimResult(claim, measured, verdicts.pop() if len(verdicts) == 1 else "open")
    size = _size(claim, measured, study)
    return ClaimResult(claim, measured, claim.verdict(measured.low, measured.high, size))


def _size(claim: Claim, measured: Measurement, study: Study) -> str | None:
    """Return the verdict on a printed figure by the rules of all figures; None without dialogs."""
    figure = claim.published
    quantity = claim.measure
    if figure is None or not measured.n:
        return None
    change = quantity.kind == "change"
    chance = change and may_be_chance(study.results, quantity.scenario or COMPOSITE)
    size = measured.value, measured.spread, measured.n
    return compare_case(mean_case(*size, figure, chance=chance))


def claims_table(results: Sequence[ClaimResult]) -> pd.DataFrame:
    """Return the claims as a tidy table, numbers unscaled."""
    nan = math.nan
    rows = []
    for result in results:
        claim = result.claim
        measured = result.measured or Measurement(nan, nan, nan)
        printed = nan if claim.published is None else claim.published.value
        recomputed = claim.recomputed or (nan, nan, nan)
        numbers = measured.n or None, measured.value, measured.low, measured.high
        source = claim.claim, claim.source
        rows.append((*source, printed, *recomputed, *numbers, result.verdict, claim.why))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"n": "Int64"})


# ------------------------------------------------------------------------------- in words


def figure_words(quantity: Measure, value: float) -> str:
    """Format a figure of a measure; empty for NaN.

    Examples
    --------
    >>> figure_words(Measure("change", "late_alignment"), 0.451)
    '+45.1 %'
    >>> figure_words(Measure("ratio", "adaptation"), 3.53)
    '3.53×'
    >>> figure_words(Measure("p", "late_alignment"), 1e-9)
    'p < 0.001'
    """
    if math.isnan(value):
        return ""
    match quantity.kind:
        case "change" | "growth":
            return minus(f"{100 * value:+.1f} %")
        case "share" | "swing":
            return f"{decimal(100 * value, 1)} %"
        case "ratio":
            return f"{value:.2f}×"
        case "rank":
            return f"place {value:.0f} of {len(PAPER_POLICIES)}"
        case "settles":
            return f"{value:.0f} turns"
        case "p":
            words = p_value(value)
            return f"p {words}" if words.startswith("<") else f"p = {words}"
        case "t" | "peak":
            return minus(f"{'t = ' if quantity.kind == 't' else ''}{value:.4g}")
    sign = "+" if quantity.kind == "difference" and value > 0 else ""
    unit = unit_named(quantity.metric)
    return f"{sign}{unit.write(value)} {unit.name}".strip()


def found_words(result: ClaimResult) -> str:
    """Say in plain words what was measured of a claim, without its interval."""
    measured = result.measured
    if measured is None:
        return "not measured"
    values = measured.candidates or (measured.value,)
    figures = map(partial(figure_words, result.claim.measure), values)
    return result.claim.found.format(measured.difference or " or ".join(figures))


def measured_words(result: ClaimResult) -> str:
    """Format the measurement of a claim with its interval."""
    measured = result.measured
    quantity = result.claim.measure
    if measured is None:
        return ""
    if measured.candidates:
        return " or ".join(map(partial(figure_words, quantity), measured.candidates))
    return _range_words(quantity, measured.value, measured.low, measured.high)


def recomputed_words(claim: Claim) -> str:
    """Format the figure computed from the paper's own cells, with its rounding range."""
    if claim.recomputed is None:
        return ""
    low, value, high = claim.recomputed
    return _range_words(claim.measure, value, low, high)


def _range_words(quantity: Measure, *figures: float) -> str:
    text, low, high = map(partial(figure_words, quantity), figures)
    return text if low == high else f"{text} ({low} to {high})"


# ------------------------------------------------------------------------------- measuring


def measure(quantity: Measure, study: Study) -> Measurement | None:
    """Compute the quantity that decides a claim; None if the study or its settings do not fit."""
    if not matches_paper(study.results.benchmark):
        return None
    # 1. Numbers of the whole run.
    if quantity.metric in (
        "latency",
        "seconds",
        "score_bytes",
        "parameters",
        "threshold_evictions",
    ):
        value = _of_a_run(quantity, study)
        return None if value is None else Measurement(value, value, value)
    # 2. Kinds that need several policies, a sweep or every turn.
    match quantity.kind:
        case "rank":
            return _rank(quantity, study)
        case "peak":
            return _peak(quantity, study)
        case "settles" | "growth" | "swing":
            return _over_turns(quantity, study)
    # 3. The mean of a policy, or its comparison with the baseline.
    values = _values(quantity, study, quantity.policy)
    if values is None:
        return None
    if quantity.baseline is None:
        return _of(summarize(values))
    reference = _values(quantity, study, quantity.baseline)
    return None if reference is None else _compare(quantity.kind, values, reference)


def _values(quantity: Measure, study: Study, policy: str) -> Values | None:
    """Return one number a dialog (n,)."""
    if quantity.metric in ("highest_score", "same_entries"):
        return study.probes.get(quantity.metric)
    if quantity.turn is not None:
        series = _series(quantity, study, policy)
        return None if series is None else series[:, quantity.turn]
    return study.results.values(quantity.scenario or COMPOSITE, policy, quantity.metric)


def _series(quantity: Measure, study: Study, policy: str) -> Values | None:
    """Return one number a dialog and turn (n, T)."""
    measured = study.results.measured.get(quantity.scenario or "", {}).get(policy)
    return None if measured is None else measured.series.get(quantity.metric)


def _of(summary: Summary) -> Measurement:
    return Measurement(summary.mean, summary.low, summary.high, summary.n, summary.sd)


# Two policies -----------------------------------------------------------------------------------


def _compare(kind: str, first_values: ArrayLike, second_values: ArrayLike) -> Measurement:
    """Compare two policies on the same dialogs."""
    match kind:
        case "ratio":
            return _ratio(first_values, second_values)
        case "change":
            ratio = _ratio(first_values, second_values)
            return replace(
                ratio, value=ratio.value - 1, low=ratio.low - 1, high=ratio.high - 1
            )
        case "share":  # of dialogs in which the first is higher
            is_above = differences(first_values, second_values) > 0
            low, high = share_interval(int(is_above.sum()), is_above.size)
            return Measurement(float(is_above.mean()), low, high, is_above.size)
    test = paired(first_values, second_values)
    if kind == "difference":
        return _of(test)
    if kind == "t":
        words = minus(f"{test.mean:+.2f} (± {test.high - test.mean:.2f})")
        return Measurement(test.t, test.t, test.t, test.n, difference=words)
    return Measurement(test.p, test.p, test.p, test.n)


def _ratio(first_values: ArrayLike, second_values: ArrayLike) -> Measurement:
    """Return the ratio of two means, NaN if the second may be zero.

    Its interval is that of first − ratio·second (delta method).
    """
    second_values = np.asarray(second_values, np.float64)
    base = summarize(second_values)
    if base.low <= 0 <= base.high:  # a ratio to a number near zero says nothing
        return Measurement(math.nan, math.nan, math.nan, base.n)
    reference = second_values.mean()
    ratio = float(np.asarray(first_values, np.float64).mean() / reference)
    spread = summarize(differences(first_values, ratio * second_values) / abs(reference))
    margin = spread.high - spread.mean  # the mean of first − ratio·second is 0
    return Measurement(ratio, ratio - margin, ratio + margin, spread.n, spread.sd)


def _rank(quantity: Measure, study: Study) -> Measurement | None:
    """Rank a policy by its mean; the interval spans the ranks that adjusted paired tests allow."""
    rows = {key: _values(quantity, study, key) for key in PAPER_POLICIES}
    values = rows.pop(quantity.policy)
    # A rank needs all of them.
    other_values = [row for row in rows.values() if row is not None]
    if values is None or len(other_values) < len(rows):
        return None
    tests = [paired(policy_values, values) for policy_values in other_values]
    ahead = [test.mean > 0 for test in tests]
    differs = significant(tests)
    # At best only those significantly ahead rank higher, at worst also all that do not differ.
    best = 1 + sum(map(all, zip(ahead, differs, strict=True)))
    return Measurement(1 + sum(ahead), best, best + len(tests) - sum(differs), len(values))


# Turns and sweeps -------------------------------------------------------------------------------


def _over_turns(quantity: Measure, study: Study) -> Measurement | None:
    series = _series(quantity, study, quantity.policy)
    if series is None:
        return None
    if quantity.kind == "growth":  # from turn 1: before turn 0 the cache is empty
        return _compare("change", series[:, -1], series[:, 1])
    means = series.mean(axis=0, dtype=np.float64)
    if quantity.kind == "swing":
        moves = means[1:]  # before turn 0 the cache is empty
        value = float(np.ptp(moves) / moves.max())
    else:  # the turn from which the mean stays near its last value
        away = np.abs(means - means[-1]) > SETTLED * abs(means[-1])
        value = float(np.flatnonzero(away)[-1] + 1) if away.any() else 0.0
    return Measurement(value, value, value, len(series))


def _peak(quantity: Measure, study: Study) -> Measurement | None:
    """Find the value of a sweep with the highest mean, and all that adjusted tests tie with it."""
    sweep = study.sweeps.get(quantity.parameter or "")
    if sweep is None:
        return None
    rows = {}
    for policy in sweep.benchmark.policies:
        values = sweep.values(quantity.scenario or "", policy.name, quantity.metric)
        if values is None:
            return None
        rows[float(getattr(policy, quantity.parameter or ""))] = values
    # A value whose mean is not significantly lower than the highest may be the peak as well.
    highest = max(rows, key=lambda value: float(rows[value].mean()))
    lower_values = [value for value in rows if value != highest]
    differs = significant([paired(rows[value], rows[highest]) for value in lower_values])
    below = {*compress(lower_values, differs)}
    tied = tuple(value for value in rows if value not in below)
    return Measurement(highest, min(tied), max(tied), len(rows[highest]), candidates=tied)


# Of a run ---------------------------------------------------------------------------------------


def _of_a_run(quantity: Measure, study: Study) -> float | None:
    """Return a number of the run as a whole, which does not vary between dialogs."""
    memory = study.memories.get(quantity.policy)
    match quantity.metric:
        case "latency":
            time = study.latencies.get(quantity.policy)
            base = study.latencies.get(quantity.baseline or quantity.policy)
            if time is None or base is None:
                return None
            return {"ratio": time / base, "difference": time - base}.get(quantity.kind, time)
        case "seconds":
            benchmark = study.results.benchmark
            # The paper's time is of 600 dialogs of one scenario.
            rounds = len(benchmark.scenarios) * benchmark.dialogs / DIALOGS
            return study.results.seconds / rounds if study.results.complete else None
        case "score_bytes":
            return None if memory is None else memory.scores / study.results.benchmark.budget
        case "parameters":
            # Those that the paper explored; w_ρ is 1 − w_c, and so none here.
            parameters = parameters_of(POLICIES[quantity.policy]).values()
            return sum(parameter.paper is not None for parameter in parameters)
    # Entries evicted by the threshold, in all five scenarios.
    entries = 0.0
    for key in BENCHMARK_SCENARIOS:
        scores = study.results.measured.get(key, {}).get(quantity.policy)
        if scores is None:
            return None
        entries += float(scores.series.get("evicted_threshold", np.zeros(1)).sum())
    return entries
