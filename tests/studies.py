"""Studies that several tests share, each run once."""

from functools import cache

from fdkvc.paper import published as tables
from fdkvc.paper.benchmark import Benchmark, Results, Values
from fdkvc.paper.replication.cells import MeasuredTable, measured_tables
from fdkvc.paper.study import Study, run_study

PRINTED = (
    *(tables.LATE_ALIGNMENT, tables.ADAPTATION, tables.LATE_DIVERSITY),
    *(tables.RETENTION_AND_LATENCY, tables.ABLATIONS["w_c"], tables.ABLATIONS["gamma"]),
)
"""Tables 1 to 6 of the paper; Table 7 is `HYPERPARAMETERS`."""


@cache
def paper_study() -> Study:
    """Return a study with the paper's settings and just enough dialogs for verdicts."""
    return run_study(Benchmark(dialogs=100, seed=0))


@cache
def paper_tables() -> list[MeasuredTable]:
    """Return that study's tables."""
    return measured_tables(paper_study())


def scores_of(results: Results, scenario: str, policy: str, metric: str) -> Values:
    """Return the values of a metric, which the results have."""
    scores = results.values(scenario, policy, metric)
    assert scores is not None
    return scores


@cache
def few_dialogs() -> Study:
    """Return a study with too few dialogs for verdicts."""
    return run_study(Benchmark(dialogs=6, seed=4))


@cache
def other_budget() -> Study:
    """Return a study that is not the paper's."""
    return run_study(Benchmark(dialogs=5, budget=40))
