"""The alignment question: three projections beside the published figures."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fdkvc.paper.benchmark import Benchmark, run_benchmark
from fdkvc.paper.replication.tables import (
    ALIGNMENTS,
    PROJECTIONS,
    PUBLISHED,
    alignments_table,
    differences_table,
)
from fdkvc.policies import policy_named
from tests.studies import paper_study

SIX = ("shift", "return", "mixed", "complex", "gradual", "composite")


def test_every_scenario_and_policy_under_every_projection() -> None:
    table = alignments_table(paper_study().results)
    assert tuple(table.columns) == ALIGNMENTS
    assert len(table) == len(SIX) * 4 * (len(PROJECTIONS) + 1)


def test_only_the_value_matrix_gives_alignments_that_are_not_zero() -> None:
    table = alignments_table(paper_study().results)
    value = table[table.projection == "value"]
    assert (value.ci_low > 0.5).all()
    other = table[table.projection.isin(["key", "query"])]
    assert (other["mean"].abs() < 0.1).all()
    single = other[other.scenario != "composite"]
    assert single.sd.between(0.15, 0.30).all()


def test_published_alignments_have_the_interval_of_unrelated_vectors() -> None:
    table = alignments_table(paper_study().results)
    row = table[(table.projection == PUBLISHED) & (table.policy == "fifo")].iloc[0]
    assert (row.n, row["mean"]) == (600, 0.02)
    assert row.sd == pytest.approx(0.25, abs=0.04)
    assert row.ci_high - row["mean"] == pytest.approx(1.96 * row.sd / math.sqrt(600))
    five = table[(table.projection == PUBLISHED) & (table.scenario == "composite")]
    assert five.sd.between(0.13, 0.2).all()  # the mean of five varies less


def test_differences_are_paired_and_the_published_ones_follow_the_t_tests() -> None:
    study = paper_study()
    table = differences_table(study.results)
    columns = "scenario projection policy baseline n mean_diff ci_low ci_high t p"
    assert list(table.columns) == columns.split()
    assert len(table) == len(SIX) * (len(PROJECTIONS) + 1)
    rows = table.set_index(["scenario", "projection"])
    one, other = (
        study.results.values("mixed", policy, "late_alignment") for policy in ("fd-kvc", "h2o")
    )
    assert one is not None
    assert other is not None
    test = stats.ttest_rel(one.astype(np.float64), other.astype(np.float64))
    assert rows.loc[("mixed", "value"), "t"] == pytest.approx(test.statistic, rel=1e-5)
    shift = table[(table.scenario == "shift") & (table.projection == PUBLISHED)].iloc[0]
    assert (shift.t, round(shift.p, 2)) == (1.31, 0.19)
    assert shift.ci_low < 0 < shift.ci_high
    assert (rows.xs(PUBLISHED, level="projection").t.abs() < 1.96).all()
    assert (rows.xs("value", level="projection").t.abs() > 5).all()


def test_without_both_policies_there_is_no_difference() -> None:
    results = run_benchmark(Benchmark(policies=(policy_named("fifo"),), dialogs=2))
    assert differences_table(results).empty
    assert not alignments_table(results).empty
