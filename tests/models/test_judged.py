"""What policies cost SmolLM2: the shipped table, what is said of it, and where it is shown."""

from html import unescape

import pandas as pd

from benchmarks.research import judged as script
from fdkvc.charts.theme import LIGHT
from fdkvc.models.judged import (
    COMPARED,
    HEADS,
    SHIPPED,
    UNREINFORCED,
    WITH_RESULTS,
    judged_notes,
    judged_table,
    planned_comparisons,
    planned_ways,
    recommendation,
    results_grid,
    right_rows,
)
from fdkvc.models.report.judged import judged_chart, planned_grid
from fdkvc.policies.ways import MESSAGES
from tests.app_pages import html, open_page


def test_the_table_has_what_the_script_measures() -> None:
    table = pd.read_csv(SHIPPED)

    assert COMPARED in table.policy.to_numpy()
    assert not table.duplicated(["data", "policy", "budget", "metric"]).any()
    for asked in script.PARTS:
        for budget in asked.budgets:
            part = table[(table.data == asked.name) & (table.budget == budget)]
            assert set(part.policy) == {"full", *asked.policies}
    assert set(table.data) == {asked.name for asked in script.PARTS}
    sure = table[table.ci_low.notna()]
    assert (sure.ci_low <= sure["mean"]).all()
    assert (sure["mean"] <= sure.ci_high).all()
    full = table[table.policy == "full"].set_index("metric")["mean"]
    assert (full.loc["kl"] == 0).all()
    assert (full.loc["values_right_of_full"] == 1).all()


def test_the_sentence_says_what_to_keep_with_the_shares_of_the_plan() -> None:
    table = planned_ways().query("metric == 'values_right_of_full'")
    shares = table.set_index(["sample", "decides", "policy"])["mean"]

    words = " ".join([recommendation(), *judged_notes()])
    for sample, decides, name in (
        ("SGD", "head", "sink"),
        ("SGD", "model", MESSAGES),
        ("SGD", "head", "fd-kvc"),
        ("SGD", "head", UNREINFORCED),
    ):
        assert f"{100 * shares[sample, decides, name]:.0f} %" in words
    best = right_rows().iloc[0]
    newest = shares["SGD", "head", "sink"]
    assert best.policy == "sinks(regions)"
    assert best.ci_low < newest < best["mean"], "so its interval includes what is recommended"
    low, high = (f"{100 * end:.0f}" for end in (best.ci_low, best.ci_high))
    assert f"By region + sinks keeps 79 % ({low} % to {high} %). This interval includes" in words
    lead = "of 114 service dialogs, 128 tokens each, SmolLM2 still gets 76 % of the values right"
    assert lead in words
    assert shares["SGD", "model", MESSAGES] < newest


def test_what_got_most_attention_is_recommended_on_no_more_data_than_it_was_better_on() -> None:
    right = "metric == 'values_right_of_full'"
    both_ways = f"more == 'head: sink' and less == 'head: {COMPARED}'"
    pairs = planned_comparisons(HEADS).query(f"{right} and {both_ways}").set_index("sample")
    verdicts = {"BFCL": "worse", "ToolTalk, 20 %": "better", "τ-bench": "open"}
    assert pairs.verdict.to_dict() == verdicts
    assert set(WITH_RESULTS) == set(verdicts)

    rows = results_grid().rows
    assert [row[1] for row in rows] == [
        "H2O + sinks: +6.9 (+0.9 to +12.8)",
        "Sink+Window: +12.9 (+5.9 to +20.0)",
        "not settled: +18.9 (−9.4 to +47.1)",
    ]
    shares = planned_ways(HEADS).query(f"{right} and decides == 'head'")
    means = shares.set_index(["sample", "policy"])["mean"]
    for sample, row in zip(WITH_RESULTS, rows, strict=True):
        assert row[0].startswith(sample.partition(",")[0])
        assert row[2:] == [f"{100 * means[sample, way]:.0f} %" for way in ("sink", COMPARED)]
    assert rows[-1][0].endswith("(20)")


def test_the_lines_above_the_chart_fit_on_a_phone() -> None:
    lines = judged_chart(LIGHT)["title"]["subtitle"]
    assert "95 % intervals" in lines[-1]
    assert max(map(len, lines)) < 60, "Vega cuts a longer line at 390 pixels"


def test_ways_without_attention_decide_alike_in_all_heads() -> None:
    """So the chart may show them beside policies under which each head decides by itself."""
    table = planned_ways().query("sample == 'SGD' and metric == 'values_right_of_full'")
    shares = table.pivot(index="policy", columns="decides", values="mean").dropna()
    for name in ("sink", "sinks(weighted-recency)"):
        assert shares["head"][name] == shares["model"][name]
    rows = right_rows()
    assert rows["mean"].is_monotonic_decreasing
    assert not rows.policy.duplicated().any()


def test_the_page_shows_the_table() -> None:
    shown = unescape(html(open_page("policies", {"policies/all": True})))
    for row in judged_table().to_dict("records"):
        scale, digits = (1, 3) if row["metric"] == "kl" else (100, 1)
        mean, low, high = (
            f"{scale * row[end]:.{digits}f}".replace("-", "−")
            for end in ("mean", "ci_low", "ci_high")
        )
        figure = mean if low == "nan" else f"{mean} ({low} to {high})"
        assert f"<td>{figure}</td>" in shown
    for cells in planned_grid().rows:
        for cell in cells[3:]:
            assert cell in shown
