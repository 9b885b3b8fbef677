"""All measured figures with published values and verdicts, from which other tables are made."""

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from fdkvc.core.statistics import (
    Doubles,
    differences,
    paired,
    percentile_interval,
    significant,
    summarize,
)
from fdkvc.engine.metrics import PROJECTED_ALIGNMENTS, late_metric
from fdkvc.engine.summary import FIRST, TIED
from fdkvc.paper.benchmark import (
    ADAPTATION,
    TIMED,
    Benchmark,
    Results,
    Values,
    late_metrics,
    matches_paper,
)
from fdkvc.paper.published import (
    ABLATED_POLICY,
    ABLATED_SCENARIO,
    HYPERPARAMETERS,
    Published,
    published,
    published_ablation,
)
from fdkvc.paper.replication.rules import (
    TWO_SIDED,
    compare_case,
    mean_case,
    percentile_case,
    published_difference,
    t_of_difference,
)
from fdkvc.paper.study import Study
from fdkvc.policies import BASELINE, policy_named, read_policy, usable

BENCHMARK = "benchmark"
PAIR = "difference"
TIME = "latency"
DEFAULT = "default"

DIFFERENCE = f"{ABLATED_POLICY} − {BASELINE}"
"""The policy's name in rows of the differences that the paper's t-tests examine."""

PERCENTILES = {"median": 0.5, "p90": 0.9}


class Fact(NamedTuple):
    """A row of the table: one measured figure."""

    source: str
    """``benchmark`` (late means), ``difference`` (of two of them), ``adaptation``, ``latency``, the
    name of a swept hyperparameter, or ``default`` (of a hyperparameter)."""
    scenario: str
    """Its key."""
    policy: str
    """Its name."""
    metric: str
    """Such as ``late_retention``; a statistic of the adaptation run, or a hyperparameter."""
    n: int
    """Number of dialogs; 0 if it does not depend on dialogs."""
    mean: float
    """The figure."""
    sd: float = math.nan
    """Its standard deviation over dialogs; NaN if undefined, like the ends of its interval."""
    low: float = math.nan
    """The lower end of its 95 % interval."""
    high: float = math.nan
    """The upper end."""
    published: Published | None = None
    """The figure that the paper prints, if it does."""
    verdict: str | None = None
    """Of `fdkvc.paper.replication.rules`."""
    never: bool = False
    """Whether it counts turns to an adaptation that never came; `mean` is then all the turns."""
    place: str = ""
    """`FIRST` if it is the best of its scenario and metric, `TIED` if tied with others."""

    @property
    def constant(self) -> bool:
        """Whether it is the same in every dialog; False for percentiles, which have no `sd`."""
        return self.sd == 0

    @property
    def published_value(self) -> float:
        """The published figure; NaN if there is none."""
        return math.nan if self.published is None else self.published.value

    @property
    def difference(self) -> float:
        """Measured − published; NaN if nothing is published."""
        return self.mean - self.published_value


def facts_table(measured: Study | Results, swept: str = "") -> pd.DataFrame:
    """Return a table with a row for each `Fact` of a run.

    A study also has latencies, ablations and defaults; `swept` is the hyperparameter of a sweep.
    """
    rows = facts(measured, swept)
    verdicts = pd.Series([row.verdict for row in rows], dtype=object)
    published = pd.Series([row.published_value for row in rows], dtype=float)
    table = pd.DataFrame(rows, columns=list(Fact._fields))
    return table.assign(verdict=verdicts, published=published)


def facts(measured: Study | Results, swept: str = "") -> tuple[Fact, ...]:
    """Return the rows of `facts_table`, cached."""
    by_sweep = _FACTS.setdefault(measured, {})
    if swept not in by_sweep:
        by_sweep[swept] = tuple(_facts(measured, swept))
    return by_sweep[swept]


_FACTS: WeakKeyDictionary[Study | Results, dict[str, tuple[Fact, ...]]] = WeakKeyDictionary()
"""The rows of each run for as long as it is in memory."""


def printed(
    benchmark: Benchmark, scenario: str, policy: str, metric: str, swept: str = ""
) -> Published | None:
    """Return the published figure for a run with the paper's settings; else None.

    In a sweep, only its hyperparameter may differ from FD-KVC's defaults.
    """
    if not matches_paper(benchmark):
        return None
    if swept:
        # The paper sweeps one hyperparameter of FD-KVC on one scenario, all others at default.
        variant = read_policy(policy)
        papers = scenario == ABLATED_SCENARIO and variant.key == ABLATED_POLICY
        if not papers or swept not in variant.settings:
            return None
        value = getattr(variant, swept)
        is_reduced = variant == policy_named(ABLATED_POLICY, **{swept: value})
        return published_ablation(swept, value, metric) if is_reduced else None
    if policy == DIFFERENCE:
        return published_difference(scenario)
    return published(scenario, policy, metric)


# ------------------------------------------------------------------------------- the rows


def _facts(measured: Study | Results, swept: str) -> Iterator[Fact]:
    if isinstance(measured, Study):
        yield from facts(measured.results)
        for policy, milliseconds in measured.latencies.items():
            place = TIMED, policy, TIME
            figure = printed(measured.results.benchmark, *place)
            yield Fact(TIME, *place, 0, milliseconds, published=figure)
        for parameter, results in measured.sweeps.items():
            yield from facts(results, parameter)
        yield from _defaults()
    else:
        yield from _late(measured, swept)
        if not swept:
            yield from _adaptations(measured)


def _late(results: Results, swept: str) -> Iterator[Fact]:
    benchmark = results.benchmark
    firsts = _firsts(results)
    places = [*product(results.reported, benchmark.names, late_metrics(benchmark))]
    if not swept:  # the differences that the paper's t-tests examine
        places += product(results.reported, [DIFFERENCE], ["late_alignment"])
    for place in places:
        values = _values(results, *place)
        if values is not None:
            source = PAIR if DIFFERENCE in place else swept or BENCHMARK
            figure = printed(benchmark, *place, swept)
            chance = source == PAIR and figure is not None and may_be_chance(results, place[0])
            fact = _mean_fact(source, place, values, figure, chance)
            yield fact._replace(place=firsts.get(place, ""))


def _firsts(results: Results) -> dict[tuple[str, str, str], str]:
    """Return the mark of each mean that is the best of its scenario and metric, or tied with it.

    Policies tie if their paired difference from the best is not significant. The full cache and
    policies that see the future do not compete.
    """
    marks: dict[tuple[str, str, str], str] = {}
    names = [policy.name for policy in usable(results.benchmark.policies)]
    for scenario, metric in product(results.reported, late_metrics(results.benchmark)):
        rows = {}
        for name in names:
            values = results.values(scenario, name, metric)
            if values is not None and len(values) > 1:
                rows[name] = values
        if len(rows) > 1:
            highest = min if late_metric(metric).lower_is_better else max
            best = highest(rows.values(), key=lambda values: float(values.mean()))
            tied = [name for name in rows if not significant([paired(rows[name], best)])[0]]
            mark = TIED if len(tied) > 1 else FIRST
            marks |= dict.fromkeys(product([scenario], tied, [metric]), mark)
    return marks


def may_be_chance(results: Results, scenario: str) -> bool:
    """Whether the published difference in alignment (FD-KVC − H2O) is not significant."""
    t = t_of_difference(scenario, unrelated_spread(results, scenario, DIFFERENCE))
    return abs(t) < TWO_SIDED


def unrelated_spread(results: Results, scenario: str, policy: str) -> float:
    """Return the standard deviation over dialogs of an alignment of unrelated vectors.

    Measured with the topic projected by W_K and W_Q, since a mean over turns and scenarios
    deviates less than the 1/√h of a single cosine. NaN if the run did not measure it. The policy
    may be `DIFFERENCE`.
    """
    spreads = []
    for key in PROJECTED_ALIGNMENTS:
        values = _values(results, scenario, policy, f"late_{key}")
        if values is not None and len(values) > 1:
            spreads.append(float(values.std(ddof=1, dtype=np.float64)))
    # The mean of the variances of both projections.
    return float(np.sqrt(np.mean(np.square(spreads)))) if spreads else math.nan


def _values(
    results: Results, scenario: str, policy: str, metric: str
) -> Values | Doubles | None:
    """Return one number for each dialog (n,), also for `DIFFERENCE`."""
    if policy != DIFFERENCE:
        return results.values(scenario, policy, metric)
    pair = results.pair(scenario, metric, ABLATED_POLICY, BASELINE)
    return None if pair is None else differences(*pair)


def _adaptations(results: Results) -> Iterator[Fact]:
    for policy in results.benchmark.policies:
        values = results.values(ADAPTATION, policy.name, ADAPTATION)
        if values is None:
            continue
        place = ADAPTATION, policy.name, "mean"
        fact = _mean_fact(ADAPTATION, place, values, printed(results.benchmark, *place))
        never = results.values(ADAPTATION, policy.name, "never")
        share_never = 0.0 if never is None else float(never.mean())
        yield fact._replace(never=share_never == 1)
        # A percentile is "never" if more dialogs than lie above it never adapt.
        for name, share in PERCENTILES.items():
            place = ADAPTATION, policy.name, name
            figure = printed(results.benchmark, *place)
            turns = float(np.quantile(values.astype(np.float64), share))
            low, high = percentile_interval(values, share)
            case = None if figure is None else percentile_case(values, share, figure)
            yield Fact(
                ADAPTATION,
                *place,
                len(values),
                turns,
                low=low,
                high=high,
                published=figure,
                verdict=compare_case(case),
                never=share_never > 1 - share,
            )


def _defaults() -> Iterator[Fact]:
    """Compare the defaults of Table 7 with the defaults here."""
    policy = policy_named(ABLATED_POLICY)
    for printed in HYPERPARAMETERS:
        value = getattr(policy, printed.key)
        figure = Published(printed.default, 0.0, f"{printed.default:.2f}", "Table 7", 0)
        place = "", policy.name, printed.key
        yield Fact(DEFAULT, *place, 0, value, published=figure)


def _mean_fact(
    source: str,
    place: tuple[str, str, str],
    values: ArrayLike,
    figure: Published | None,
    chance: bool = False,
) -> Fact:
    s = summarize(values)
    case = None if figure is None else mean_case(s.mean, s.sd, s.n, figure, chance=chance)
    return Fact(source, *place, s.n, s.mean, s.sd, s.low, s.high, figure, compare_case(case))
