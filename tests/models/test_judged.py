"""What policies cost SmolLM2: the shipped table, what is said of it, and where it is shown."""

from __future__ import annotations

from html import unescape

import pandas as pd

from benchmarks.research import judged as script
from fdkvc.models import judged
from fdkvc.models.judged import (
    COMPARED,
    SHIPPED,
    first_rows,
    judged_sentence,
    judged_table,
    planned_comparisons,
)
from fdkvc.models.report.judged import TITLE, judged_report, planned_grid
from fdkvc.policies import read_policy
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


def test_the_sentence_names_the_best_policy_without_attention_and_how_sure_it_is() -> None:
    head, model = (first_rows(who).set_index("policy") for who in ("head", "model"))
    text = [name for name in map(str, head.index) if "attention" not in read_policy(name).looks_at]
    best = str(head.loc[text]["mean"].idxmin())

    sentence = judged_sentence()
    assert f"{read_policy(best).title} changes SmolLM2's predictions least" in sentence
    for rows in (head, model):
        for name in (best, COMPARED):
            assert f"{rows['mean'][name]:.3f}" in sentence
    for name in ("fd-kvc", "fd-kvc alpha_0=0.0"):
        assert f"{head['mean'][name]:.3f}" in sentence
    table = planned_comparisons()
    (row,) = table[
        (table["sample"] == "SGD")
        & (table.more == f"model: {best}")
        & (table.less == f"model: {COMPARED}")
        & (table.metric == "kl")
    ].itertuples()
    assert f"({row.ci_low:.3f} to ".replace("-", "−") in sentence

    worse = table[
        (table.more == f"model: {best}")
        & (table.less == f"model: {COMPARED}")
        & (table.metric == "values_right_of_full")
        & (table.verdict == "worse")
    ]
    assert sentence.count("In longer conversations, of ") == len(worse)
    for data in worse["sample"]:
        assert f"of {data}, fewer values are right" in sentence


def test_page_and_report_show_the_table() -> None:
    shown = unescape(html(open_page("policies")))
    report = unescape(judged_report())
    for row in judged_table().to_dict("records"):
        scale, digits = (1, 3) if row["metric"] == "kl" else (100, 1)
        mean, low, high = (
            f"{scale * row[end]:.{digits}f}".replace("-", "−")
            for end in ("mean", "ci_low", "ci_high")
        )
        figure = mean if low == "nan" else f"{mean} ({low} to {high})"
        for words in (shown, report):
            assert f"<td>{figure}</td>" in words
    for cells in planned_grid().rows:
        for cell in cells[3:]:
            assert cell in shown
            assert cell in report
    assert TITLE in report
    assert "<svg" in report
    assert judged.judged_sentence() in report
