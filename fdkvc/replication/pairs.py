"""Compare the same policies in two runs."""

from itertools import product

import pandas as pd

from fdkvc.experiments.benchmark import Results, late_metrics
from fdkvc.experiments.statistics import paired, unpaired
from fdkvc.replication.tables import tested

PAIR_OF_RUNS = (
    *("scenario", "policy", "metric", "one", "n_one", "other", "n_other"),
    *("difference", "ci_low", "ci_high", "p_holm", "words"),
)


def same_dialogs(one: Results, other: Results) -> bool:
    """Whether dialog i is the same in both runs."""
    a, b = one.benchmark, other.benchmark
    return (a.seed, a.world) == (b.seed, b.world)


def runs_table(one: Results, other: Results) -> pd.DataFrame:
    """Return the differences of two runs, one − other, for all that they have in common.

    Columns `PAIR_OF_RUNS`. Tests are paired over the dialogs that both finished, or Welch's if the
    dialogs differ; p is adjusted for the number of tests in this table.
    """
    rows, tests = [], []
    shared = [policy for policy in one.benchmark.policies if policy in other.benchmark.policies]
    names = [policy.name for policy in shared]
    for place in product(one.reported, names, late_metrics(one.benchmark)):
        values, others = one.values(*place), other.values(*place)
        if values is not None and others is not None:
            both = min(len(values), len(others))
            test = (
                paired(values[:both], others[:both])
                if same_dialogs(one, other)
                else unpaired(values, others)
            )
            means = (float(values.mean()), len(values), float(others.mean()), len(others))
            rows.append((*place, *means, test.mean, test.low, test.high, None, ""))
            tests.append(test)
    return tested(pd.DataFrame(rows, columns=list(PAIR_OF_RUNS)), tests)
