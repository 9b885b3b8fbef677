"""The plan of what is asked of a pretrained model: what its tool computes from rows."""

import re

import numpy as np
import pandas as pd
import pytest

from benchmarks.research import second_model
from benchmarks.research.planned import CELL, PLANS, comparisons, differences, plan, texts, ways
from fdkvc.core.statistics import cluster_mean, holm
from fdkvc.models.judged import CLEARED, HEADS, PLANNED, SIZES, planned_comparisons, planned_ways
from fdkvc.models.report.judged import comparison_name
from fdkvc.policies import read_policy
from fdkvc.policies.ways import MESSAGES
from tests.command_line import ROOT

ASKED = plan()
ROW = ("sample", "decides", "policy", "budget", "dialog", "services", "metric", "value", "count")
SIDES = ("more", "less")
INTERACTION = ASKED["questions"][1]["comparisons"][0]


def rows(dialogs: int, values: int = 5) -> pd.DataFrame:
    """Return rows of the first sample: KL and values right by a seed, two dialogs a cluster."""
    random = np.random.default_rng(3)
    sample = ASKED["samples"]["SGD"]
    cells = [(who, way) for who in ("head", "model") for way in sample[who]]
    return pd.DataFrame(
        [
            ("SGD", who, way, 128, dialog, f"{dialog // 2}", metric, random.random(), count)
            for dialog in range(dialogs)
            for who, way in cells
            for metric, count in (("kl", 100 + dialog), ("values_right_of_full", values))
        ],
        columns=[*ROW],
    )


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_has_at_most_twelve_comparisons_of_ways_that_its_samples_read(name: str) -> None:
    the_plan = plan(name)
    asked = [
        comparison for question in the_plan["questions"] for comparison in question["comparisons"]
    ]
    assert 0 < len(asked) <= 12
    for comparison in asked:
        sample = the_plan["samples"][comparison["sample"]]
        for cell in (*comparison["more"], *comparison["less"]):
            who, _, way = cell.partition(": ")
            assert way in sample[who]
            assert read_policy(way).name == way


def test_an_interaction_is_the_difference_of_two_differences_in_each_dialog() -> None:
    read = rows(8)
    sums, weights, clusters = differences(INTERACTION, "kl", read)

    kl = read[read.metric == "kl"].set_index(["dialog", "decides", "policy"]).value
    for dialog in range(8):
        of_random = kl[dialog, "model", "sinks(random)"] - kl[dialog, "head", "sinks(random)"]
        recency = "sinks(weighted-recency)"
        of_recency = kl[dialog, "model", recency] - kl[dialog, "head", recency]
        assert sums[dialog] == pytest.approx(of_random - of_recency)
    assert weights.tolist() == [100 + dialog for dialog in range(8)]
    assert clusters == [f"{dialog // 2}" for dialog in range(8)]


def test_comparisons_are_tested_by_cluster_and_corrected_over_all() -> None:
    read = rows(12)
    table = comparisons(ASKED, read)

    tested = table[table.metric == "kl"]
    values, weights, clusters = differences(INTERACTION, "kl", read)
    known = cluster_mean(values, clusters, weights)
    assert tested.iloc[2].p == pytest.approx(known.p)
    np.testing.assert_allclose(table.p_holm, holm(table.p))
    assert table[table.metric != "kl"].p.isna().all()
    assert set(table[table["sample"] != "SGD"].verdict) == {"not measured"}


@pytest.mark.parametrize("name", PLANS)
def test_a_shipped_verdict_holds_after_the_correction(name: str) -> None:
    table = planned_comparisons(name)
    tested = table[table.p_holm.notna()]
    assert (tested[tested.verdict.isin(["better", "worse"])].p_holm < 0.05).all()
    assert (tested[tested.verdict == "open after correction"].p < 0.05).all()


def test_a_difference_that_the_correction_takes_back_is_open() -> None:
    read = rows(24)
    read.loc[(read.policy == "sinks(random)") & (read.decides == "head"), "value"] += 0.25
    table = comparisons(ASKED, read).query("metric == 'kl' and verdict != 'not measured'")
    assert (table.verdict == "open after correction").any()
    significant = (table.p < 0.05) & (table.p_holm >= 0.05)
    assert (table.verdict == "open after correction").eq(significant).all()


@pytest.mark.long
def test_values_right_have_no_figure_where_the_full_cache_gets_few_of_them_right() -> None:
    for values, figures in ((2, 0), (3, 11)):
        read = rows(10, values)
        table = ways(ASKED, read).query("sample == 'SGD' and decides == 'model'")
        right = table[table.metric == "values_right_of_full"]
        assert right["mean"].notna().sum() == figures
        compared = comparisons(ASKED, read).query("sample == 'SGD' and metric != 'kl'")
        assert compared.mean_diff.notna().all() == bool(figures)


@pytest.mark.parametrize("name", PLANS)
def test_the_shipped_results_are_those_of_the_plan(name: str) -> None:
    the_plan = plan(name)
    asked = [
        (question["asks"], comparison["sample"], *(" + ".join(comparison[side]) for side in SIDES))
        for question in the_plan["questions"]
        for comparison in question["comparisons"]
    ]
    table = planned_comparisons(name)
    columns = ["asks", "sample", "more", "less"]
    for metric in ("kl", "values_right_of_full"):
        of_metric = table[table.metric == metric]
        assert [*of_metric[columns].itertuples(index=False, name=None)] == asked
    np.testing.assert_allclose(table.p_holm, holm(table.p), atol=2e-5)
    for row in table.itertuples():
        assert comparison_name(str(row.more), str(row.less))

    known = planned_ways(name)
    for title, sample in the_plan["samples"].items():
        for who in ("head", "model"):
            part = known[(known["sample"] == title) & (known.decides == who)]
            assert [*dict.fromkeys(part.policy)] == sample[who]
            assert (part.n.dropna() <= sample["conversations"]).all()


def test_a_way_that_two_plans_read_on_the_same_dialogs_has_the_same_figures() -> None:
    cells, figures = CELL[:-1], ["mean", "ci_low", "ci_high"]
    plans = [planned_ways(name).set_index(cells)[figures] for name in (PLANNED, CLEARED)]
    first, second = (table[table["mean"].notna()] for table in plans)
    both = first.index.intersection(second.index)
    assert {cell[2] for cell in both} == {"messages(fifo)", "reread(messages(fifo))"}
    pd.testing.assert_frame_equal(first.loc[both], second.loc[both], atol=2e-6)


def test_documents_have_the_shipped_figures() -> None:
    results = (ROOT / "fdkvc" / "results.md").read_text("utf-8")
    tables = texts()
    others = [*texts(SIZES).values(), *texts(HEADS).values(), texts(CLEARED)["comparisons"]]
    others += second_model.texts()
    for table in (*tables.values(), *others):
        assert table in results


def test_the_first_page_has_the_shares_of_values_that_stay_right() -> None:
    ways = planned_ways().query("metric == 'values_right_of_full' and sample == 'SGD'")
    shares = ways.set_index(["decides", "policy"])["mean"]
    linked = [("head", "sink"), ("head", "fd-kvc"), ("model", MESSAGES)]
    others = [("head", "sinks(random)"), ("head", "fd-kvc alpha_0=0.0")]

    readme = (ROOT / "README.md").read_text("utf-8")
    first_links = re.findall(r"\[(\d+) %\]", readme)[: len(linked)]
    assert first_links == [f"{100 * shares[way]:.0f}" for way in linked]
    text = re.sub(r"\s+", " ", readme)
    random, unreinforced = (f"{100 * shares[way]:.0f} %" for way in others)
    assert f"random ones {random}" in text
    assert f"without it {unreinforced}" in text
    assert f"{100 * shares[linked[-1]]:.0f} %" == random, "as random tokens do"
