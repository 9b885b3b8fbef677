"""A sweep runs one policy over a grid of settings on the same dialogs."""

from __future__ import annotations

import pytest

from fdkvc.core.parameters import parameters_of
from fdkvc.paper.benchmark import Results, run_benchmark
from fdkvc.paper.published import published_ablation, published_sweep
from fdkvc.paper.results import SweepRun
from fdkvc.paper.sweep import Sweep, read_values, suggested_values, sweepable
from fdkvc.policies import POLICIES, policy_named

GRID = Sweep(axes=(("gamma", (0.8, 0.88)), ("w_c", (0.2, 0.5, 0.8))), dialogs=3)


@pytest.fixture(scope="module")
def one() -> tuple[Sweep, Results]:
    sweep = Sweep(dialogs=4)
    return sweep, run_benchmark(sweep.benchmark)


@pytest.fixture(scope="module")
def two() -> tuple[Sweep, Results]:
    return GRID, run_benchmark(GRID.benchmark)


def test_two_hyperparameters_make_a_grid() -> None:
    assert [policy.name for policy in GRID.variants] == [
        *("fd-kvc gamma=0.8 w_c=0.2", "fd-kvc gamma=0.8 w_c=0.5", "fd-kvc gamma=0.8 w_c=0.8"),
        *("fd-kvc w_c=0.2", "fd-kvc w_c=0.5", "fd-kvc w_c=0.8"),
    ]


def test_the_table_has_each_setting_with_the_published_figure(one: tuple[Sweep, Results]) -> None:
    sweep, results = one
    table = SweepRun(sweep, results).table
    assert table.gamma.unique().tolist() == list(published_sweep("gamma"))
    figure = published_ablation("gamma", 0.8, "late_retention")
    assert figure is not None
    row = table[(table.gamma == 0.8) & (table.metric == "late_retention")].iloc[0]
    assert (row.setting, row.published) == ("fd-kvc gamma=0.8", figure.value)


def test_a_grid_is_published_nowhere(two: tuple[Sweep, Results]) -> None:
    table = SweepRun(*two).table
    assert table.published.isna().all()
    grid = table[table.metric == "late_diversity"]
    assert len(grid) == 6
    values = two[1].values("mixed", "fd-kvc gamma=0.8 w_c=0.2", "late_diversity")
    assert values is not None
    assert grid["mean"].iloc[0] == pytest.approx(values.mean())


@pytest.mark.parametrize("key", POLICIES)
def test_suggested_values_are_valid_for_every_hyperparameter_of_every_policy(key: str) -> None:
    for name in sweepable(key):
        values = suggested_values(key, name)
        assert len(values) >= 2
        for value in values:
            known = parameters_of(POLICIES[key])[name]
            assert known.low <= value <= known.high
            policy_named(key, **{name: value})


@pytest.mark.parametrize(
    ("axes", "sentence"),
    [
        ((), "hyperparameters are none, but must be one or"),
        ((("gamma", (0.8,)), ("gamma", (0.9,))), "gamma, gamma, but must be one or two"),
        ((("gamma", ()),), "gamma has no values to sweep"),
        ((("gamma", (1.5,)),), "gamma is 1.5, but must be"),
        ((("delta", (1.5,)),), "parameter 'delta' is unknown to fd-kvc"),
    ],
)
def test_what_cannot_be_swept_is_said(
    axes: tuple[tuple[str, tuple[float, ...]], ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Sweep(axes=axes)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "gamma has no values to sweep: give some"),
        ("0.5 half", "gamma has the value 'half', but takes numbers"),
        ("1_0 0.5", "gamma has the value '1_0', but takes numbers"),
        ("0.5 nan", "gamma has the value 'nan', but takes numbers"),
        ("0.1 0.2 0.3 0.4", "gamma has 4 values, but at most 3 run here"),
    ],
)
def test_values_that_cannot_be_read(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_values(text, "fd-kvc", "gamma", max_values=3)


def test_values_are_read_in_order_and_once() -> None:
    assert read_values("4, 2 2", "sink", "sinks", 5) == (2, 4)
