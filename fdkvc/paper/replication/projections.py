"""Alignment with the topic projected by W_V, W_K and W_Q, beside the published figures.

The paper compares the attention output with "the projected ground-truth topic vector" and does not
name the matrix. The output is a mean of values, so only the value matrix compares vectors of one
space.
"""

import math
from itertools import product

import pandas as pd

from fdkvc.core.statistics import paired, summarize
from fdkvc.paper.benchmark import Results
from fdkvc.paper.published import ABLATED_POLICY
from fdkvc.paper.replication.facts import DIFFERENCE, printed, unrelated_spread
from fdkvc.paper.replication.rules import TWO_SIDED, t_of_difference
from fdkvc.paper.replication.tables import PAIR
from fdkvc.policies import BASELINE

PROJECTIONS = {
    "value": "late_alignment",
    "key": "late_alignment_key",
    "query": "late_alignment_query",
}
"""The metric of each matrix."""

PUBLISHED = "published"
"""The projection's name in rows of published figures."""

ALIGNMENTS = ("scenario", "projection", "policy", "n", "mean", "sd", "ci_low", "ci_high")
DIFFERENCES = ("scenario", "projection", *PAIR)


def alignments_table(results: Results) -> pd.DataFrame:
    """Return late alignments under each projection, and the published ones.

    Columns `ALIGNMENTS`. The paper prints no intervals: the one of a published figure is that of a
    mean over as many dialogs of unrelated vectors, by their spread in this run.
    """
    rows: list[tuple[object, ...]] = []
    for scenario, policy in product(results.reported, _names(results)):
        for projection, metric in PROJECTIONS.items():
            values = results.values(scenario, policy, metric)
            if values is not None:
                s = summarize(values)
                rows.append((scenario, projection, policy, s.n, s.mean, s.sd, s.low, s.high))
        figure = printed(results.benchmark, scenario, policy, "late_alignment")
        if figure is not None:
            n, mean = figure.dialogs, figure.value
            chance = unrelated_spread(results, scenario, policy)
            reach = TWO_SIDED * chance / math.sqrt(n)
            rows.append((scenario, PUBLISHED, policy, n, mean, chance, mean - reach, mean + reach))
    return pd.DataFrame(rows, columns=list(ALIGNMENTS))


def differences_table(results: Results) -> pd.DataFrame:
    """Return the difference in late alignment (FD-KVC − H2O), by projection and as published.

    Columns `DIFFERENCES`; t of a published difference is printed in Section 5.6 or computed from
    the spread of unrelated vectors in this run. Empty unless both policies ran.
    """
    rows: list[tuple[object, ...]] = []
    pair = (ABLATED_POLICY, BASELINE)
    for scenario in results.reported if set(pair) <= set(_names(results)) else ():
        for projection, metric in PROJECTIONS.items():
            if values := results.pair(scenario, metric, *pair):
                c = paired(*values)
                rows.append((scenario, projection, *pair, c.n, c.mean, c.low, c.high, c.t, c.p))
        figure = printed(results.benchmark, scenario, DIFFERENCE, "late_alignment")
        if figure is not None:
            spread = unrelated_spread(results, scenario, DIFFERENCE)
            mean, t = figure.value, t_of_difference(scenario, spread)
            reach = abs(TWO_SIDED * mean / t)  # t is mean / error
            p = math.erfc(abs(t) / math.sqrt(2))  # over 600 dialogs t is normal to three digits
            low, high = mean - reach, mean + reach
            rows.append((scenario, PUBLISHED, *pair, figure.dialogs, mean, low, high, t, p))
    return pd.DataFrame(rows, columns=list(DIFFERENCES))


def _names(results: Results) -> list[str]:
    return [policy.name for policy in results.benchmark.policies]
