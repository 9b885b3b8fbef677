"""Policies worse than random eviction, by paired tests in the metric's direction."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fdkvc.experiments.benchmark import Benchmark, PolicyScores, Results
from fdkvc.policies import policy_named
from fdkvc.replication.random_eviction import behind_random
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS

N = 40
NOISE = np.random.default_rng(3).normal(0, 0.1, (3, N))


def results(metric: str, means: dict[str, float], dialogs: int = N) -> Results:
    """Return a run in which every scenario has the same numbers, around these means."""
    values = {
        policy: {f"late_{metric}": (mean + noise[:dialogs]).astype(np.float32)}
        for noise, (policy, mean) in zip(NOISE, means.items(), strict=True)
    }
    return Results(
        Benchmark(
            scenarios=tuple(SCENARIOS[key] for key in BENCHMARK_SCENARIOS),
            policies=tuple(policy_named(key) for key in means),
            dialogs=dialogs,
            metrics=(metric,),
        ),
        {
            key: {policy: PolicyScores(own, {}) for policy, own in values.items()}
            for key in BENCHMARK_SCENARIOS
        },
        seconds=1.0,
    )


@pytest.mark.parametrize("lead", [0.5, 0.06, 0.03, 0.0, -0.5])
def test_only_a_difference_that_leaves_out_zero_is_told(lead: float) -> None:
    run = results("retention", {"random": 0.5 + lead, "h2o": 0.5, "fifo": 2.0})
    differences = NOISE[1] - NOISE[0] - lead
    # Two tests are made, and H2O's is the less sure of them.
    p = stats.ttest_1samp(differences, 0, alternative="two-sided").pvalue

    (said,) = behind_random(run) or [""]

    assert ("H2O" in said) == (p < 0.05 and lead > 0)
    assert "FIFO" not in said


@pytest.mark.parametrize(("metric", "better"), [("retention", 0.9), ("attention_loss", 0.1)])
def test_better_is_what_the_metric_says(metric: str, better: float) -> None:
    run = results(metric, {"random": better, "h2o": 0.5, "fifo": 0.5})

    (said,) = behind_random(run)

    assert said.endswith("is ahead of all others.")
    assert not behind_random(results(metric, {"random": 1 - better, "h2o": 0.5, "fifo": 0.5}))


def test_one_dialog_or_no_random_eviction_gives_no_sentence() -> None:
    assert not behind_random(results("retention", {"random": 0.9, "h2o": 0.1, "fifo": 0.1}, 1))
    assert not behind_random(results("retention", {"sink": 0.9, "h2o": 0.1, "fifo": 0.1}))
