"""The plan of a second model: its comparisons on both models, and between them."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks.research.planned import plan
from benchmarks.research.second_model import comparisons, second_plan, ways
from fdkvc.models.judged import (
    DIFFERENCE,
    SECOND_MODEL,
    finding,
    planned_comparisons,
    second_model_sentence,
)
from fdkvc.policies import read_policy

WAYS = second_plan()["ways"]


def rows(dialogs: int) -> pd.DataFrame:
    """Return KL of both models by a seed, on SGD; random eviction costs the second 0.5 more."""
    random = np.random.default_rng(5)
    columns = ["model", "decides", "policy", "dialog", "value", "count"]
    measured = [
        (model, decides, way, dialog, random.random() / 50, 100 + dialog)
        for model in ("second", "first")
        for decides, names in WAYS["SGD"].items()
        for way in names
        for dialog in range(dialogs)
    ]
    table = pd.DataFrame(measured, columns=columns)
    costly = (table.model == "second") & (table.policy == "sinks(random)")
    table.loc[costly & (table.decides == "model"), "value"] += 0.5
    services = (table.dialog // 2).astype(str)
    return table.assign(sample="SGD", metric="kl", budget=128, services=services)


def test_the_plan_reads_every_way_that_a_comparison_of_the_first_needs() -> None:
    for question in plan()["questions"]:
        for comparison in question["comparisons"]:
            for cell in (*comparison["more"], *comparison["less"]):
                decides, _, way = cell.partition(": ")
                assert way in WAYS[comparison["sample"]][decides]
                assert read_policy(way).name == way


def test_a_difference_between_the_models_is_that_of_their_differences_in_each_dialog() -> None:
    read = rows(16)
    table = comparisons(read)
    pair = (table.more == "model: sinks(weighted-recency)") & (table.less == "model: sinks(random)")
    by_model: Any = table[pair & (table.metric == "kl")].set_index("model")

    assert by_model.loc["second", "mean_diff"] == pytest.approx(-0.5, abs=0.02)
    assert by_model.loc["first", "verdict"] == "equivalent"
    change = by_model.loc["second", "mean_diff"] - by_model.loc["first", "mean_diff"]
    assert by_model.loc[DIFFERENCE, "mean_diff"] == pytest.approx(change)
    assert finding(by_model.verdict, 8) == "differs"
    assert finding(by_model.verdict, 3) == "open"
    assert set(ways(read).model) == {"second", "first"}


def test_a_finding_holds_on_both_models_only_with_the_same_settled_answer() -> None:
    for verdicts, expected in (
        (("worse", "worse", "worse"), "holds on both"),
        (("equivalent", "equivalent", "equivalent"), "holds on both"),
        (("open", "open", "equivalent"), "open"),
        (("better", "equivalent", "open"), "open"),
        (("better", "equivalent", "open after correction"), "open"),
    ):
        by_model = pd.Series(dict(zip(("second", "first", DIFFERENCE), verdicts, strict=True)))
        assert finding(by_model, 20) == expected


def test_the_sentence_says_which_advice_holds_on_the_second_model() -> None:
    rows = planned_comparisons(SECOND_MODEL).query("model == 'second'")
    for more, less in (
        ("model: messages(fifo)", "model: sinks(weighted-recency)"),
        ("head: fd-kvc", "head: fd-kvc alpha_0=0.0"),
    ):
        pair = rows[(rows["sample"] == "SGD") & (rows.more == more) & (rows.less == less)]
        verdicts = pair.set_index("metric").verdict
        assert (verdicts["kl"], verdicts["values_right_of_full"]) == ("worse", "worse")
    assert not {"model: sink", "head: sink"} & {*rows.more, *rows.less}
    assert second_model_sentence() == (
        "A second model, Qwen2.5-Coder-0.5B: FD-KVC's reinforcement costs it 43 points (12 "
        "dialogs). Dropped messages (keys kept) cost it 12 against Weighted recency + sinks (20 "
        "dialogs). Of 12 comparisons of next words, it answers 3 otherwise than SmolLM2."
    )
