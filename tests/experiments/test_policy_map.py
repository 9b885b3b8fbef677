"""The map of policies: means, ranks and how stable they are, and the page that shows it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import numpy as np
import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.research import agents
from benchmarks.research import page_sizes as pages
from benchmarks.research.policy_map import COLUMNS, policies, rank_policies
from fdkvc.experiments.shipped_tables import AXES, FOLDER, TABLES, shipped_table
from fdkvc.policies import read_policy, synthetic_policies
from fdkvc.report.shipped_agents import agents_report
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.ui import policies as ui
from fdkvc.words import BEST, ranged
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
    points = ui.map_points(table, "call_recall", "nats", frozenset("abc")).set_index("setting")

    assert points.index[points["front"]].tolist() == ["a", "b"]
    assert points[["x", "x_low", "y"]].T["a"].tolist() == pytest.approx([1, 0.9, -3])


def test_every_shipped_table_has_the_columns_that_are_declared() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == TABLES.keys()
    for name, columns in TABLES.items():
        assert list(shipped_table(name).columns) == list(columns), name


def test_what_is_shipped_is_whole() -> None:
    table = shipped_table("policy_map")

    assert set(table.axis) == set(AXES)
    assert {policy.name for policy in policies()} == set(table.policy)
    assert set(synthetic_policies()) <= set(table[table.axis == "call_recall"].policy)
    assert all(read_policy(name).name == name for name in table.policy)
    assert (table.ci_low <= table["mean"] + 1e-6).all()
    assert (table["mean"] <= table.ci_high + 1e-6).all()
    assert (table.rank_low <= table.rank_high).all()
    memory = table[table.axis == "memory"].set_index("policy")["mean"]
    assert memory["retrieval"] == pytest.approx(1)
    assert (memory[["h2o", "snapkv", "fd-kvc"]] == memory["fifo"]).all()
    reads = table[table.axis == "reads"].set_index("policy")["mean"]
    np.testing.assert_allclose(reads["retrieval"], reads["fifo"], rtol=1e-5)


def within_budget(axis: str, other: str) -> pd.DataFrame:
    """Return the axis's rows of the policies on both axes that hold no more than FIFO.

    The oracle, which knows the future, is left out.
    """
    table = shipped_table("policy_map")
    memory = table[table.axis == "memory"].set_index("policy")["mean"]
    both = set(table[table.axis == other].policy) - {"oracle"}
    rows = table[(table.axis == axis) & table.policy.isin(both)]
    least = memory["fifo"]  # a policy that needs words is not on the axis of memory
    held = [memory.get(name, memory.get(read_policy(name).core.key, least)) for name in rows.policy]
    within: pd.DataFrame = rows[np.array(held) <= least + 1e-6]
    return within.sort_values("mean", ascending=AXES[axis].lower_is_better)


def check_answer(app: AppTest, axis: str, other: str) -> None:
    """Compare what the page says of an axis with the shipped rows."""
    (text,) = [each.value for each in app.markdown if "Within the budget" in each.value]
    (line,) = [line for line in text.splitlines() if line.startswith(f"- {AXES[axis].label} (")]
    named, verdict, figures = re.findall(r"\*\*(.+?) (is best|are tied.*)\*\*\. (.*)\.$", line)[0]
    rows = within_budget(axis, other)
    tied = rows[rows.rank_low <= rows.rank_high.iloc[0]]
    assert (verdict == "is best") == (len(tied) == 1), (named, tied)
    titles = {read_policy(name).title for name in tied.policy}
    assert any(named.startswith(title) for title in titles)
    first = figures.split("; ")[0]
    assert any(f"{title} {tied['mean'].iloc[0]:.3f} (" in first for title in titles)
    fifo = rows.set_index("policy")["mean"]["fifo"]
    assert f"FIFO {fifo:.3f} (" in figures


def test_the_page_names_the_best_on_two_axes_and_opens_compare() -> None:
    app = open_page("policies")
    assert not app.exception
    assert f"{RECALL_ONLY} {PROTECT}" in [each.value for each in app.caption]
    assert f"{RECALL_ONLY} {PROTECT}" in unescape(agents_report())
    check_answer(app, "call_recall", "calls_exact_of_full")
    check_answer(app, "calls_exact_of_full", "call_recall")
    app.selectbox(key="policies/axis/other").set_value("nats").run()
    check_answer(app, "call_recall", "nats")
    check_answer(app, "nats", "call_recall")
    app.selectbox(key="policies/axis/one").set_value("memory").run()
    check_answer(app, "nats", "memory")
    app.session_state["policies/picked"] = "turns(snapkv)"
    app.run()

    assert not app.exception
    links = [link.proto for link in app.get("page_link")]
    assert any("turns" in link.query_string for link in links), links


def test_the_figures_of_every_policy_are_those_that_are_shipped() -> None:
    (table,) = (
        each.proto.body for each in open_page("policies").get("html") if "Nats" in each.proto.body
    )
    rows = shipped_table("policy_map")
    (h2o,) = (row for row in table.split("<tr>") if ">H2O<" in row)
    cells = [unescape(cell) for cell in re.findall("<td.*?>(.*?)</td>", h2o)]
    own = rows[rows.policy == "h2o"].set_index("axis")
    names = "mean", "ci_low", "ci_high"
    expected = [ranged(*own.loc[axis, [*names]]) if axis in own.index else "–" for axis in AXES]
    assert cells == ["H2O", *expected, "attention, history, positions"]
    assert table.count("<tr>") == 1 + rows.policy.nunique()


def test_what_pages_cost_is_whole_and_shown() -> None:
    table = shipped_table("page_sizes")
    (shown,) = (
        each.proto.body
        for each in open_page("policies", {"policies/sections": "Page size"}).get("html")
        if "pages of 32" in each.proto.body
    )
    cost = [f"{100 * value:.1f}".replace("-", "−") for value in table.mean_diff if value < 0]
    assert all(value in shown for value in cost)

    assert len(table) == len(pages.INSIDE) * len(pages.SIZES) * len(pages.BUDGETS)
    by_entries = table[table["size"] == 1]
    assert (by_entries.mean_diff == 0).all()
    assert (by_entries.filled > 0.9).all()
    assert (table.diff_low <= table.mean_diff).all()
    assert (table.mean_diff <= table.diff_high).all()
    means = table.merge(by_entries[["policy", "budget", "mean"]], on=["policy", "budget"])
    np.testing.assert_allclose(means.mean_x - means.mean_y, means.mean_diff, atol=3e-6)


def test_agent_results_are_whole_and_no_policy_is_above_the_best() -> None:
    table = shipped_table("agents")

    assert not table.duplicated(["variant", "policy", "budget", "metric"]).any()
    as_read = table[table.variant == agents.AS_READ]
    assert set(as_read.policy) == {*agents.POLICIES, BEST}
    assert len(as_read) == (len(agents.POLICIES) + 1) * len(agents.BUDGETS) * len(agents.METRICS)
    case = ["budget", "metric"]
    best = as_read[as_read.policy == BEST].set_index(case)["mean"]
    highest = best.loc[pd.MultiIndex.from_frame(as_read[case])].to_numpy()
    assert (as_read["mean"] <= highest).all()
    pinned = table[table.variant == agents.PINNED]
    assert set(pinned.policy) == set(agents.POLICIES)
    means = as_read.set_index(["policy", *case])["mean"]
    changed = table[table.variant.isin([agents.PINNED, agents.GENERAL])]
    before = means.loc[pd.MultiIndex.from_frame(changed[["policy", *case]])].to_numpy()
    np.testing.assert_allclose(changed["mean"] - before, changed.mean_diff, atol=3e-6)
    assert (table.ci_low <= table["mean"]).all()
    assert (table["mean"] <= table.ci_high).all()


def test_the_page_shows_agent_results() -> None:
    shown, smallest = (
        each.proto.body
        for each in open_page("policies", {"policies/sections": "Agent conversations"}).get("html")
        if "agent conversations" in each.proto.body
    )
    for row in shipped_table("agents").to_dict("records"):
        if row["variant"] == agents.AS_READ and row["metric"] == agents.METRICS[0]:
            assert f"<td>{100 * row['mean']:.1f} (" in shown
    recall: Any = shipped_table("agents").query("metric == 'call_recall'").set_index("policy")
    assert recall[recall.variant == agents.SGD].loc["fifo", "budget"].tolist() == [
        *agents.SGD_BUDGETS
    ]
    lines = [re.findall("<td.*?>(.*?)</td>", line) for line in smallest.split("</tr>")[1:-1]]
    for policy in ("fifo", "learned", "fd-kvc"):
        words = [read_policy(policy).title]
        for variant in (agents.AS_READ, agents.SGD):
            means = recall[recall.variant == variant].loc[policy].set_index("budget")["mean"]
            for target in (0.9, 0.95, 0.99):
                enough = [at for at in means.index if (means[means.index >= at] >= target).all()]
                words.append(f"{enough[0]:,}" if enough else "–")
        (line,) = (line for line in lines if line[0] == words[0])
        assert [word.split(" entries")[0] for word in line] == words
