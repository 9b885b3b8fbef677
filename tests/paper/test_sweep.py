"""A sweep runs one policy with many values of a hyperparameter on the same dialogs."""

import pytest

from fdkvc.core.parameters import parameters_of
from fdkvc.paper.benchmark import Results, run_benchmark
from fdkvc.paper.published import published_ablation, published_sweep
from fdkvc.paper.results import SweepRun
from fdkvc.paper.sweep import Sweep, read_values, suggested_values, sweepable
from fdkvc.policies import POLICIES, policy_named


@pytest.fixture(scope="module")
def one() -> tuple[Sweep, Results]:
    sweep = Sweep(dialogs=4)
    return sweep, run_benchmark(sweep.benchmark)


def test_the_table_has_each_setting_with_the_published_figure(one: tuple[Sweep, Results]) -> None:
    sweep, results = one
    table = SweepRun(sweep, results).table
    assert table.gamma.unique().tolist() == list(published_sweep("gamma"))
    figure = published_ablation("gamma", 0.8, "late_retention")
    assert figure is not None
    row = table[(table.gamma == 0.8) & (table.metric == "late_retention")].iloc[0]
    assert (row.setting, row.published) == ("fd-kvc gamma=0.8", figure.value)


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
    ("parameter", "values", "sentence"),
    [
        ("gamma", (), "gamma has no values to sweep"),
        ("gamma", (1.5,), "gamma is 1.5, but must be"),
        ("delta", (1.5,), "parameter 'delta' is unknown to fd-kvc"),
    ],
)
def test_what_cannot_be_swept_is_said(
    parameter: str, values: tuple[float, ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Sweep(parameter=parameter, values=values)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "gamma has no values to sweep: give some"),
        ("0.5 half", "gamma has the value 'half', but takes numbers"),
        ("1_0 0.5", "gamma has the value '1_0', but takes numbers"),
        ("0.5 nan", "gamma has the value 'nan', but takes numbers"),
        ("0.1 0.2 0.3 0.4", "gamma has 4 values, but at most 3 are"),
    ],
)
def test_values_that_cannot_be_read(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        read_values(text, "fd-kvc", "gamma", max_values=3)


def test_values_are_read_in_order_and_once() -> None:
    assert read_values("4, 2 2", "sink", "sinks", 5) == (2, 4)
