"""A study is the benchmark and all that the paper's other tables and claims need."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from fdkvc.engine.metrics import alignment, late
from fdkvc.engine.simulate import simulate
from fdkvc.paper.benchmark import Benchmark
from fdkvc.paper.published import ABLATION_DIALOGS, published_sweep
from fdkvc.paper.study import ablation, run_study, timed_policies
from fdkvc.policies import policy_named
from fdkvc.runs.jobs import Progress
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.studies import few_dialogs, other_budget


@pytest.mark.parametrize("space", ["key", "query"])
def test_it_knows_the_alignment_of_every_projection(space: str) -> None:
    study = few_dialogs()
    dialogs = generate(SCENARIOS["mixed"], 6, 4)
    trace = simulate(policy_named("h2o"), dialogs, 56, entries=False)
    expected = late(alignment(trace, dialogs, space), dialogs)
    measured = study.results.values("mixed", "h2o", f"late_alignment_{space}")
    assert measured is not None
    np.testing.assert_allclose(measured, expected, atol=1e-6)


def test_it_keeps_every_turn() -> None:
    measured = few_dialogs().results.measured["mixed"]["fd-kvc"]
    turns = len(SCENARIOS["mixed"].schedule)
    for name in ("alignment", "retention", "ownership_loss", "learning_rate", "evicted_budget"):
        assert measured.series[name].shape == (6, turns)


def test_the_ablations_are_the_papers() -> None:
    sweeps = few_dialogs().sweeps
    assert list(sweeps) == ["w_c", "gamma"]
    for parameter, results in sweeps.items():
        values = [getattr(policy, parameter) for policy in results.benchmark.policies]
        assert values == list(published_sweep(parameter))
        assert results.dialogs("mixed") == 6
    assert ablation("gamma", Benchmark(dialogs=900)).dialogs == ABLATION_DIALOGS


def test_with_another_budget_there_is_nothing_of_the_papers() -> None:
    study = other_budget()
    assert (dict(study.sweeps), dict(study.probes)) == ({}, {})
    assert {*study.latencies} == {"fifo", "sink", "h2o", "fd-kvc"}


def test_fifo_is_timed_also_where_it_does_not_run() -> None:
    benchmark = Benchmark(policies=(policy_named("h2o"),))
    assert [policy.key for policy in timed_policies(benchmark)] == ["fifo", "h2o"]
    assert [policy.key for policy in timed_policies(Benchmark())] == [
        *("fifo", "sink", "h2o", "fd-kvc")
    ]


def test_progress_never_goes_back_and_ends_at_the_whole() -> None:
    seen: list[Progress] = []
    run_study(Benchmark(dialogs=4, scenarios=(SCENARIOS["shift"],)), on_progress=seen.append)
    shares = [progress.finished_jobs / progress.total for progress in seen]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    titles = " ".join(progress.title for progress in seen)
    ablations = ("Ablation: Cumulative weight (w_c)", "Ablation: Recency decay (γ)")
    for part in ("Benchmark", *ablations, "Latency"):
        assert part in titles


def test_cancel_keeps_what_is_finished() -> None:
    cancelled = threading.Event()
    study = run_study(
        Benchmark(dialogs=500, scenarios=(SCENARIOS["shift"],)),
        workers=1,
        on_progress=lambda _: cancelled.set(),
        cancelled=cancelled,
    )
    assert 0 < study.results.dialogs("shift") < 500
    assert not study.results.complete
    assert not {*study.latencies, *study.memories, *study.probes}


def test_the_probes_are_what_they_say() -> None:
    probes = few_dialogs().probes
    assert (probes["highest_score"] > 1).all()
    # At the first turn both hold tokens of that turn only; they part at once after it.
    assert 0 < probes["same_entries"].mean() < 0.2
