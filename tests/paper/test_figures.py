"""The paper's figures are reproduced: constants exactly, others within sampling error."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np
import pytest

from fdkvc.core.dialogs import DialogBatch
from fdkvc.engine.metrics import late, metric_named, retention
from fdkvc.engine.simulate import simulate
from fdkvc.paper.published import (
    ABLATION_DIALOGS,
    DIALOGS,
    published,
    published_ablation,
    published_sweep,
)
from fdkvc.policies import PAPER_POLICIES, policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS, SCENARIOS
from tests.worlds import adaptation_in

BUDGET = 56
SAMPLE = 200
EXACT = ("fifo", "sink", "h2o")
"""Their retention and diversity are the same in every dialog."""

METRICS = ("retention", "diversity")
Late = Mapping[tuple[str, str, str], np.ndarray]


@pytest.fixture(scope="module")
def late_values() -> Late:
    """Late metrics of every dialog (n,), by scenario, policy and metric."""
    values = {}
    for scenario in BENCHMARK_SCENARIOS:
        dialogs = generate(SCENARIOS[scenario], SAMPLE, seed=2026)
        for key in PAPER_POLICIES:
            trace = simulate(policy_named(key), dialogs, BUDGET, entries=False)
            for metric in METRICS:
                series = metric_named(metric).late(trace, dialogs)
                values[scenario, key, metric] = series.astype(float)
    for key in PAPER_POLICIES:
        for metric in METRICS:
            by_scenario = [values[scenario, key, metric] for scenario in BENCHMARK_SCENARIOS]
            values["composite", key, metric] = np.mean(by_scenario, axis=0)
    return values


def assert_within_sampling_error(
    values: np.ndarray, expected: float, rounding: float, dialogs: int
) -> None:
    """Assert that the mean is within 4 standard errors of another sample's mean."""
    error = values.std(ddof=1) * math.sqrt(1 / len(values) + 1 / dialogs)
    assert values.mean() == pytest.approx(expected, abs=4 * error + rounding)


# ------------------------------------------------------------------------------- exact figures

# Retention and diversity, mean over the last three turns of 32 tokens in a cache of 56.
LATE = {
    ("fifo", "shift"): (Fraction(1), Fraction(1, 2)),
    ("fifo", "return"): (Fraction(6, 7), Fraction(2, 3)),
    ("fifo", "mixed"): (Fraction(6, 7), Fraction(4, 9)),
    ("fifo", "complex"): (Fraction(6, 7), Fraction(4, 15)),
    ("fifo", "gradual"): (Fraction(1), Fraction(1, 2)),
    ("sink", "shift"): (Fraction(13, 14), Fraction(1)),
    ("sink", "return"): (Fraction(37, 42), Fraction(2, 3)),
    ("sink", "mixed"): (Fraction(17, 21), Fraction(2, 3)),
    ("sink", "complex"): (Fraction(5, 6), Fraction(1, 3)),
    ("sink", "gradual"): (Fraction(13, 14), Fraction(1)),
    ("h2o", "shift"): (Fraction(1, 2), Fraction(1)),
    ("h2o", "return"): (Fraction(1), Fraction(1, 2)),
    ("h2o", "mixed"): (Fraction(1, 2), Fraction(2, 3)),
    ("h2o", "complex"): (Fraction(2, 3), Fraction(1, 3)),
    ("h2o", "gradual"): (Fraction(1, 2), Fraction(1)),
}


@pytest.mark.parametrize(("key", "scenario"), LATE)
def test_the_frozen_policies_figures_are_exact_in_every_dialog(
    key: str, scenario: str, late_values: Late
) -> None:
    for metric, expected in zip(("retention", "diversity"), LATE[key, scenario], strict=True):
        values = late_values[scenario, key, metric]
        np.testing.assert_allclose(values, float(expected), rtol=1e-6)
        printed = published(scenario, key, f"late_{metric}")
        if printed:
            assert abs(float(expected) - printed.value) <= printed.rounding


# ------------------------------------------------------------------------------- sampled figures


@pytest.mark.parametrize(
    ("scenario", "metric"),
    [
        *((key, "diversity") for key in ("shift", "return", "mixed", "complex", "composite")),
        ("composite", "retention"),
    ],
)
def test_fd_kvcs_figures_are_the_published_ones(
    scenario: str, metric: str, late_values: Late
) -> None:
    printed = published(scenario, "fd-kvc", f"late_{metric}")
    assert printed is not None
    values = late_values[scenario, "fd-kvc", metric]
    assert_within_sampling_error(values, printed.value, printed.rounding, DIALOGS)


def test_fd_kvc_always_holds_both_topics_of_gradual_evolution(late_values: Late) -> None:
    assert (late_values["gradual", "fd-kvc", "diversity"] == 1).all()


# ------------------------------------------------------------------------------- adaptation


@pytest.fixture(scope="module")
def shifted() -> DialogBatch:
    return generate(SCENARIOS["adaptation"], SAMPLE, seed=2026)


@pytest.mark.parametrize("key", EXACT)
def test_adaptation_of_the_frozen_policies_is_exact(key: str, shifted: DialogBatch) -> None:
    result = adaptation_in(simulate(policy_named(key), shifted, BUDGET, entries=False), shifted)

    for statistic in ("mean", "median", "p90"):
        printed = published("adaptation", key, statistic)
        assert printed is not None
        assert (result.turns == printed.value).all()
    assert (result.never == (key == "h2o")).all()


def test_fd_kvc_adapts_in_four_to_five_turns(shifted: DialogBatch) -> None:
    trace = simulate(policy_named("fd-kvc"), shifted, BUDGET, entries=False)
    result = adaptation_in(trace, shifted)
    printed = published("adaptation", "fd-kvc", "mean")
    assert printed is not None

    assert not result.never.any()
    assert_within_sampling_error(
        result.turns.astype(float), printed.value, printed.rounding, DIALOGS
    )
    assert np.median(result.turns) in (4, 4.5, 5)  # it flips with the seed
    assert np.percentile(result.turns, 90) == 5


# ------------------------------------------------------------------------------- ablations


@pytest.fixture(scope="module")
def mixed() -> DialogBatch:
    return generate(SCENARIOS["mixed"], ABLATION_DIALOGS, seed=2026)


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("w_c", "gamma") for value in published_sweep(name)],
)
def test_ablations_of_fd_kvc_on_mixed(name: str, value: float, mixed: DialogBatch) -> None:
    trace = simulate(policy_named("fd-kvc", **{name: value}), mixed, BUDGET, entries=False)
    printed = published_ablation(name, value, "late_retention")
    assert printed is not None

    values = late(retention(trace, mixed), mixed).astype(float)

    assert_within_sampling_error(values, printed.value, printed.rounding, ABLATION_DIALOGS)


def test_the_learning_rate_hardly_moves_and_the_loss_does_not_settle(mixed: DialogBatch) -> None:
    trace = simulate(policy_named("fd-kvc"), mixed, BUDGET, entries=False)
    loss = trace.state["ownership_loss"].mean(axis=0)
    rate = trace.state["learning_rate"].mean(axis=0)

    # Eq. 6 is said to stabilise; it rises from about .08 to .13, and α stays near .29.
    assert loss[1] == pytest.approx(0.08, abs=0.01)
    assert loss[-3:].mean() > 1.3 * loss[1:4].mean()
    assert rate[1:].min() > 0.28
    assert rate[1:].max() < 0.295
