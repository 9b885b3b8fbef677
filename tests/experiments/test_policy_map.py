"""The map of policies: means, ranks and how stable they are, and the page that shows it."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.research.policy_map import policies
from fdkvc.experiments import page_sizes as pages
from fdkvc.experiments.benchmark import Results, run_benchmark
from fdkvc.experiments.policy_map import AXES, COLUMNS, map_points, policy_map, rank_policies
from fdkvc.files.shipped import OVERVIEW, overview
from fdkvc.policies import POLICIES, read_policy
from fdkvc.run.metrics import metric_named
from fdkvc.synthetic.scenarios import BENCHMARK_SCENARIOS
from fdkvc.ui import policies as ui
from tests.app_pages import open_page


def measured(values: dict[str, list[float]]) -> pd.DataFrame:
    rows = [
        (dialog, "AABBCCDD"[dialog], policy, value, 1 + dialog % 2)
        for policy, series in values.items()
        for dialog, value in enumerate(series)
    ]
    return pd.DataFrame(rows, columns=["dialog", "services", "policy", "value", "count"])


def test_ranks_are_as_stable_as_the_order_is() -> None:
    table = measured(
        {"best": [9.0] * 8, "one": [1, 2] * 4, "other": [2, 1] * 4, "worst": [0.0] * 8}
    )
    found = rank_policies(table, "late_retention").set_index("policy")

    assert list(found.columns) == [name for name in COLUMNS if name != "policy"]
    assert found.n.tolist() == [8] * 4
    # Every second dialog counts twice.
    assert found["mean"].tolist() == pytest.approx([9, 5 / 3, 4 / 3, 0])
    assert found["rank"].tolist() == [1, 2, 3, 4]
    ends = found[["rank_low", "rank_high"]].to_numpy().tolist()
    assert ends == [[1, 1], [2, 2], [3, 3], [4, 4]]  # in every kind the same
    assert rank_policies(table, "nats").set_index("policy")["rank"].tolist() == [4, 3, 2, 1]

    mixed = measured({"one": [1, 1, 1, 1, 0, 0, 0, 0], "other": [0, 0, 0, 0, 1, 1, 1, 1]})
    ends = rank_policies(mixed, "late_retention")[["rank_low", "rank_high"]].to_numpy().tolist()
    assert ends == [[1, 2], [1, 2]]


def test_the_front_is_of_those_that_may_be_on_it() -> None:
    rows = [
        (policy, axis, 9, mean, mean - 0.1, mean + 0.1, 1, 1, 2)
        for policy, x, y in (("a", 1.0, 3.0), ("b", 2.0, 2.0), ("c", 1.5, 1.0), ("d", 9.0, 9.0))
        for axis, mean in (("call_recall", x), ("nats", -y))
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    points = map_points(table, "call_recall", "nats", frozenset("abc")).set_index("setting")

    assert points.index[points["front"]].tolist() == ["a", "b"]
    assert points[["x", "x_low", "y"]].T["a"].tolist() == pytest.approx([1, 0.9, -3])


def test_what_is_shipped_is_whole() -> None:
    table = policy_map()

    assert list(table.columns) == list(COLUMNS)
    assert set(table.axis) == set(AXES)
    assert {policy.name for policy in policies()} == set(table.policy)
    assert set(POLICIES) <= set(table[table.axis == "call_recall"].policy)
    assert all(read_policy(name).name == name for name in table.policy)
    assert (table.ci_low <= table["mean"] + 1e-6).all()
    assert (table["mean"] <= table.ci_high + 1e-6).all()
    assert (table.rank_low <= table.rank_high).all()
    memory = table[table.axis == "memory"].set_index("policy")["mean"]
    assert memory["retrieval"] == pytest.approx(1)
    assert (memory[["h2o", "snapkv", "fd-kvc"]] == memory["fifo"]).all()
    reads = table[table.axis == "reads"].set_index("policy")["mean"]
    np.testing.assert_allclose(reads["retrieval"], reads["fifo"], rtol=1e-5)


def told_best(app: AppTest) -> list[tuple[str, str]]:
    """Read off the page which policies it says are the best and the simplest, with their means."""
    said = "".join(each.value for each in app.markdown if "within the budget" in each.value)
    return re.findall(r"\*\*(.+?)\*\*,? .*?([\d.]+) \(", said)


def best_within_budget(across: str, up: str) -> list[tuple[str, str]]:
    means = {axis: rows.set_index("policy")["mean"] for axis, rows in policy_map().groupby("axis")}
    memory = means["memory"]
    within = {
        name: mean
        for name, mean in means[up].items()
        if name in means[across]
        and name != "oracle"
        and memory.get(name, memory.get(read_policy(str(name)).core.key)) <= memory["fifo"] + 1e-6
    }
    best = min if AXES[up].lower_is_better else max
    named = (best(within, key=within.__getitem__), "fifo")
    return [(read_policy(str(name)).title, f"{within[name]:.3f}") for name in named]


def test_the_page_shows_two_axes_and_opens_compare() -> None:
    app = open_page("policies")
    assert not app.exception
    assert any(
        "The front and the ranking are of policies within the budget" in each.value
        for each in app.caption
    )
    assert any(
        "pages cost FIFO what their empty places would" in said.value for said in app.markdown
    )
    assert told_best(app) == best_within_budget("call_recall", "calls_exact_of_full")
    rows = policy_map().query("axis == 'calls_exact_of_full'").set_index("policy")
    ranks = f"rank {rows.rank_low['fifo']} to {rows.rank_high['fifo']}."
    assert any(ranks in each.value for each in app.markdown)
    assert any("tied with FIFO" in each.value for each in app.markdown)  # 0.670 against 0.668
    app.selectbox(key="policies/up").set_value("memory").run()
    assert told_best(app) == best_within_budget("call_recall", "memory")
    app.selectbox(key="policies/across").set_value("memory").run()
    app.selectbox(key="policies/up").set_value("nats").run()
    assert told_best(app) == best_within_budget("memory", "nats")
    app.session_state["policies/picked"] = "turns(snapkv)"
    app.run()

    assert not app.exception
    links = [link.proto for link in app.get("page_link")]
    assert any("turns" in link.query_string for link in links), links


def test_the_overview_is_of_what_is_shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    check_overview("retention", overview())
    # Other metrics are measured; here, of few dialogs.
    monkeypatch.setattr(ui, "OVERVIEW", replace(OVERVIEW, dialogs=2))
    asked = replace(OVERVIEW, dialogs=2, metrics=("attention_loss",))
    check_overview("attention_loss", run_benchmark(asked))


def check_overview(metric: str, results: Results) -> None:
    app = open_page("policies", metrics=",".join(results.benchmark.metrics))
    shown = app.dataframe[0].value.set_index("Policy")[metric_named(metric).label]
    for key, policy in POLICIES.items():
        each = [results.values(name, key, f"late_{metric}") for name in BENCHMARK_SCENARIOS]
        values = [known for known in each if known is not None]
        assert shown[policy.label] == pytest.approx(100 * np.mean(values), abs=1e-4), key


def test_what_pages_cost_is_whole_and_drawn() -> None:
    table = pages.page_sizes()

    assert list(table.columns) == list(pages.COLUMNS)
    assert len(table) == len(pages.INSIDE) * len(pages.SIZES) * len(pages.BUDGETS)
    by_entries = table[table["size"] == 1]
    assert (by_entries.mean_diff == 0).all()
    assert (by_entries.filled > 0.9).all()
    assert (table.diff_low <= table.mean_diff).all()
    assert (table.mean_diff <= table.diff_high).all()
    means = table.merge(by_entries[["policy", "budget", "mean"]], on=["policy", "budget"])
    np.testing.assert_allclose(means.mean_x - means.mean_y, means.mean_diff, atol=3e-6)
