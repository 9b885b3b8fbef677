"""The charts of the benchmark and ablation pages, on their data and their specs."""

import json
import re
from collections.abc import Callable
from itertools import cycle
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest

from fdkvc.charts.picture import picture
from fdkvc.charts.results import (
    budgets_chart,
    curve_chart,
    curve_range,
    dots_chart,
    series_chart,
    topics_data,
)
from fdkvc.charts.theme import DARK, LIGHT, Spec, Theme

POLICIES = ("FIFO", "H2O", "FD-KVC")
SERIES = pd.DataFrame(
    {
        "policy": ["FIFO", "FIFO", "H2O", "H2O"],
        "turn": [0, 1, 0, 1],
        "topic": ["A", "B", "A", "B"],
        "mean": [1.0, 0.6, 1.0, 0.7],
        "ci_low": [1.0, 0.5, 1.0, 0.6],
        "ci_high": [1.0, 0.7, 1.0, 0.8],
    }
)
DOTS = pd.DataFrame(
    {
        "policy": ["FIFO", "FD-KVC γ=0.8", "H2O"],
        "idea": ["The newest stay.", "Scores fade.", "Heavy hitters stay."],
        "mean": [0.1, 0.3, -0.1],
        "ci_low": [0.05, 0.2, -0.2],
        "ci_high": [0.15, 0.4, 0.0],
    }
)
CURVE = pd.DataFrame(
    {
        "metric": ["retention", "retention"],
        "setting": ["a", "b"],
        "value": [0.7, 0.9],
        "mean": [0.5, 0.4],
        "ci_low": [0.4, 0.3],
        "ci_high": [0.6, 0.5],
        "published": [0.45, np.nan],
    }
)
CHARTS: dict[str, Callable[[Theme], Spec]] = {
    "budgets": lambda theme: budgets_chart(
        SERIES.assign(budget=SERIES.turn + 1, n=9),
        "Recall",
        theme,
        policies=POLICIES,
        marks=pd.DataFrame(
            {"label": ["today"], "policy": POLICIES[:1], "budget": [2], "mean": [0.5]}
        ),
        readings=SERIES[:2].assign(budget=2),
    ),
    "few readings": lambda theme: budgets_chart(
        SERIES.assign(budget=SERIES.turn + 1, n=9),
        "Recall",
        theme,
        policies=POLICIES,
        marks=pd.DataFrame(columns=["label", "policy", "budget", "mean"]),
        readings=SERIES[:2].assign(budget=2, ci_low=np.nan, ci_high=np.nan),
    ),
    "series": lambda theme: series_chart(
        SERIES, "AB", "Shift", "Alignment", POLICIES, (0.0, 1.0), theme
    ),
    "dots": lambda theme: dots_chart(DOTS, "t", "s", theme),
    "curve": lambda theme: curve_chart(CURVE, "retention", "t", "Decay", 0.88, theme),
}


def fields_of(node: Any) -> set[str]:
    """Return every field that a spec reads."""
    if isinstance(node, dict):
        fields = {node["field"]} if isinstance(node.get("field"), str) else set()
        return fields.union(*(fields_of(value) for value in node.values()))
    if isinstance(node, list):
        return set().union(*(fields_of(item) for item in node))
    return set()


@pytest.mark.long
@pytest.mark.parametrize(("name", "theme"), [*zip(CHARTS, cycle((LIGHT, DARK)), strict=False)])
def test_a_chart_is_drawn_from_its_data_alone(name: str, theme: Theme) -> None:
    chart = CHARTS[name](theme)
    alt.Root.validate({key: part for key, part in chart.items() if key != "datasets"})
    drawn = picture(chart, theme, 400)
    assert drawn.count("<path") > 3
    assert "NaN" not in drawn
    assert "interval from: null" not in drawn
    assert not re.search(r"\d%", drawn)
    assert "https://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", drawn)


@pytest.mark.long
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_reads_only_fields_that_its_data_have(name: str) -> None:
    chart = CHARTS[name](LIGHT)
    known = {field for frame in chart["datasets"].values() for field in frame}
    assert fields_of(chart) <= known | {"place"}


@pytest.mark.long
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_takes_an_empty_table(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in ("SERIES", "DOTS", "CURVE"):
        monkeypatch.setitem(globals(), table, globals()[table][:0])
    chart = CHARTS[name](LIGHT)
    alt.Root.validate({key: part for key, part in chart.items() if key != "datasets"})
    assert "NaN" not in picture(chart, LIGHT, 400)


@pytest.mark.parametrize("name", ["series", "dots"])
def test_policies_are_told_apart_by_more_than_colour(name: str) -> None:
    text = json.dumps(CHARTS[name](LIGHT), default=str)
    assert "strokeDash" in text or '"shape"' in text


def test_policies_have_their_colours() -> None:
    text = json.dumps(CHARTS["dots"](LIGHT), default=str)
    assert json.dumps([LIGHT.policies[place] for place in (0, 3, 2)]) in text


def test_curves_of_one_sweep_share_an_axis_unless_a_metric_has_another_size() -> None:
    table = pd.DataFrame(
        {
            "metric": ["alignment", "alignment", "retention", "token_age"],
            "ci_low": [-0.1, 0.2, 0.3, 4.0],
            "ci_high": [0.1, 0.4, 1.0, 7.0],
            "published": [-0.2, np.nan, np.nan, np.nan],
        }
    )
    assert curve_range(table, "alignment") == curve_range(table, "retention") == (-0.2, 1.0)
    assert curve_range(table, "token_age") == (0.0, 7.0)


def test_runs_of_a_topic() -> None:
    runs = topics_data("AABBBA")
    assert runs.topic.tolist() == ["A", "B", "A"]
    assert runs.left.tolist() == [-0.5, 1.5, 4.5]
    assert runs.right.tolist() == [1.5, 4.5, 5.5]
    assert runs.middle.tolist() == [0.5, 3.0, 5.0]
    assert runs.shaded.tolist() == [False, True, False]
