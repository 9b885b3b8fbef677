"""The charts of the benchmark and ablation pages, on their data and their specs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
import pytest

from fdkvc.charts.picture import picture
from fdkvc.charts.results import (
    FILL,
    bars_data,
    budgets_chart,
    damage_chart,
    dots_chart,
    means_data,
    series_chart,
    spread_chart,
    spread_range,
    topics_data,
)
from fdkvc.charts.sweep import PICK, curve_chart, curve_range, heat_chart, tradeoff_chart
from fdkvc.charts.theme import DARK, LIGHT, Spec, Theme, with_data
from fdkvc.charts.timeline import overlap_spec

POLICIES = ("FIFO", "H2O", "FD-KVC")
VALUES = {
    "FIFO": np.full(50, 0.5, np.float32),
    "H2O": np.linspace(0, 1, 50, dtype=np.float32),
}

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
        "row": ["Shift", "Shift", "Mixed", "Mixed"],
        "name": ["FIFO", "H2O", "FIFO", "H2O"],
        "mean": [0.1, 0.3, -0.1, 0.2],
        "ci_low": [0.05, 0.2, -0.2, 0.1],
        "ci_high": [0.15, 0.4, 0.0, 0.3],
        "words": ["a", "b", "c", "d"],
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
CELLS = pd.DataFrame(
    {
        "setting": ["a", "b"],
        "x": [0.7, 0.9],
        "y": [0.1, 0.1],
        "mean": [0.5, 0.4],
        "ci_low": [0.4, 0.3],
        "ci_high": [0.6, 0.5],
        "label": ["50", "40"],
        "default": [True, False],
    }
)
POINTS = pd.DataFrame(
    {
        "setting": ["a", "b"],
        "group": ["FIFO", "H2O"],
        "name": ["FIFO", ""],
        "x": [0.7, 0.9],
        "x_low": [0.6, 0.8],
        "x_high": [0.8, 1.0],
        "y": [0.5, 0.4],
        "y_low": [0.4, 0.3],
        "y_high": [0.6, 0.5],
        "front": [True, True],
    }
)
CHARTS: dict[str, Callable[[Theme], Spec]] = {
    "budgets": lambda theme: budgets_chart(
        SERIES.assign(budget=SERIES.turn + 1, n=9), "Retention", theme
    ),
    "series": lambda theme: series_chart(
        SERIES, "AB", "Shift", "Alignment", POLICIES, (0.0, 1.0), theme
    ),
    "damage": lambda theme: damage_chart(
        SERIES[["policy", "turn"]].assign(speaker="calls", tokens=3, kl=SERIES["mean"]),
        POLICIES,
        theme,
    ),
    "spread": lambda theme: spread_chart(VALUES, "Shift", "", theme),
    "dots": lambda theme: dots_chart(DOTS, "t", "s", theme),
    "curve": lambda theme: curve_chart(CURVE, "retention", "t", "Decay", 0.88, theme),
    "heat": lambda theme: heat_chart(CELLS, "t", ("Decay", "Weight"), theme),
    "tradeoff": lambda theme: tradeoff_chart(
        POINTS, ("Retention", "Diversity"), POLICIES, (False, True), theme
    ),
}


def fields_of(node: Any) -> set[str]:
    """Return every field that a spec reads."""
    if isinstance(node, dict):
        own = {node["field"]} if isinstance(node.get("field"), str) else set()
        return own.union(*(fields_of(each) for each in node.values()))
    if isinstance(node, list):
        return set().union(*(fields_of(each) for each in node))
    return set()


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_from_its_data_alone(name: str, theme: Theme) -> None:
    chart = CHARTS[name](theme)
    alt.Root.validate({key: part for key, part in chart.items() if key != "datasets"})
    drawn = picture(chart, theme, 400, "svg").decode()
    assert drawn.count("<path") > 3
    assert "NaN" not in drawn
    assert "https://" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", drawn)
    assert picture(chart, theme, 400, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_reads_only_fields_that_its_data_have(name: str) -> None:
    chart = CHARTS[name](LIGHT)
    known = {field for frame in chart["datasets"].values() for field in frame}
    assert fields_of(chart) <= known | {"place"}


def test_the_spec_of_a_stage_is_built_once_and_does_not_change_with_the_data() -> None:
    spec = overlap_spec(2, LIGHT)
    before = json.dumps(spec)
    joined = with_data(spec, {"overlap": SERIES})
    assert json.dumps(spec) == before
    assert set(joined["datasets"]) == {"overlap"}
    assert overlap_spec(2, LIGHT) is spec


@pytest.mark.parametrize("name", ["curve", "heat", "tradeoff"])
def test_a_person_can_pick_a_setting(name: str) -> None:
    params = re.findall(r'"name": "(\w+)"', json.dumps(CHARTS[name](LIGHT)["params"]))
    assert PICK in params
    assert "setting" in json.dumps(CHARTS[name](LIGHT)["params"])


@pytest.mark.parametrize("name", ["series", "dots", "tradeoff"])
def test_policies_are_told_apart_by_more_than_colour(name: str) -> None:
    text = json.dumps(CHARTS[name](LIGHT), default=str)
    assert "strokeDash" in text or '"shape"' in text


def test_rows_that_are_policies_have_their_colours() -> None:
    rows = ("FIFO", "FD-KVC γ=0.8", "H2O")
    table = DOTS[:3].assign(row=rows, name="policies")
    text = json.dumps(dots_chart(table, "t", "s", LIGHT, "policy"), default=str)
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


def test_bars_count_every_dialog_once() -> None:
    bars = bars_data(VALUES)
    assert bars.groupby("policy").dialogs.sum().to_dict() == {"FIFO": 50, "H2O": 50}
    low, high = spread_range(VALUES)
    assert low <= bars.left.min()
    assert bars.right.max() <= high + 1e-12
    highest = bars.assign(height=bars.bottom - bars.top).groupby("policy").height.max()
    assert highest.tolist() == pytest.approx([FILL, FILL])


def test_means_stand_in_their_policys_row() -> None:
    means = means_data(VALUES)
    assert means["mean"].tolist() == pytest.approx([0.5, 0.5])
    assert means.bottom.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [0.0, 0.5, -3.0])
def test_one_value_for_all_still_has_an_axis(value: float) -> None:
    low, high = spread_range({"FIFO": np.full(3, value, np.float32)})
    assert low < value < high


def test_names_on_a_map_are_written_where_they_have_room() -> None:
    names = ["First", "Second", "Third, which is long", "Fourth"]
    points = pd.DataFrame(
        {
            "setting": names,
            "group": "FIFO",
            "name": names,
            "front": [True, False, False, False],
            **{f"x{end}": [0.5, 0.52, 0.56, 0.9] for end in ("", "_low", "_high")},
            **{f"y{end}": [0.5, 0.5, 0.505, 0.1] for end in ("", "_low", "_high")},
        }
    )

    def written(width: int) -> set[str]:
        chart = tradeoff_chart(points, ("x", "y"), POLICIES, (False, False), LIGHT)
        drawn = picture(chart, LIGHT, width, "svg").decode()
        return {name for name in names if f">{name}<" in drawn}

    wide, narrow = written(1200), written(260)
    assert wide == set(names)
    assert {"First", "Fourth"} <= narrow < wide  # the front's, and who stands alone
