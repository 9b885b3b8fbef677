"""What is shipped is what this code measures, and the paper's run says when it was made."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import date

import numpy as np

import fdkvc
from benchmarks.research.ship import packed
from fdkvc.core.attention import TOLERANCE
from fdkvc.paper.benchmark import Results, Values
from fdkvc.paper.claims import TIMES
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.shipped import BENCHMARK, FOLDER, papers_run, unpacked
from fdkvc.paper.study import run_study

FEW = 3
"""Dialogs that are measured again; a dialog's numbers do not depend on how many there are."""


def rows(results: Results) -> Iterator[tuple[str, Values]]:
    for scenario, by_policy in results.measured.items():
        for policy, measured in by_policy.items():
            for name, values in {**measured.values, **measured.series}.items():
                yield f"{scenario} {policy} {name}", values


def assert_begins_with(shipped: Results, fresh: Results) -> None:
    again = dict(rows(fresh))
    stored = dict(rows(shipped))
    assert set(stored) == set(again)
    for name, values in stored.items():
        np.testing.assert_allclose(values[:FEW], again[name], atol=TOLERANCE, err_msg=name)


def test_the_study_begins_with_what_a_small_one_measures() -> None:
    study = papers_run().study
    fresh = run_study(replace(BENCHMARK, dialogs=FEW))
    assert (study.results.benchmark, study.results.complete) == (BENCHMARK, True)
    assert_begins_with(study.results, fresh.results)
    assert set(study.sweeps) == set(fresh.sweeps)
    for parameter, results in study.sweeps.items():
        assert_begins_with(results, fresh.sweeps[parameter])
    assert study.memories == fresh.memories
    for name, values in fresh.probes.items():
        np.testing.assert_allclose(study.probes[name], values, atol=TOLERANCE)
    assert {*fresh.probes} == {*study.probes} == {"highest_score", "same_entries"}


def test_it_decides_every_claim_that_is_not_of_time_or_measured_with_one_matrix() -> None:
    for result in claim_results(papers_run().study):
        measure = result.claim.measure
        one_matrix = (measure.kind, measure.metric) == ("peak", "late_alignment")
        unjudged = measure.metric in TIMES or one_matrix
        assert (result.verdict is None) == unjudged, result.claim.key
        assert result.verdict != "open", result.claim.key


def test_it_is_dated_small_and_the_same_after_being_read() -> None:
    run = papers_run()
    assert date.fromisoformat(run.date).isoformat() == run.date
    again = "measure it again: python -m benchmarks.research.ship"
    assert run.version.split(".")[:2] == fdkvc.__version__.split(".")[:2], again
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000
    read = unpacked(packed(run.study, run.date))
    for one, other in zip(
        (run.study.results, *run.study.sweeps.values()),
        (read.study.results, *read.study.sweeps.values()),
        strict=True,
    ):
        assert (one.benchmark, one.seconds) == (other.benchmark, other.seconds)
        for (name, values), (name_again, values_again) in zip(rows(one), rows(other), strict=True):
            assert name == name_again
            assert np.array_equal(values, values_again)
    assert (read.study.latencies, read.date) == (run.study.latencies, run.date)
