"""How many dialogs are of services that the model knows, counted by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from fdkvc.experiments.answers import CUT_TEXT, FULL, MEASURED, Answers, AnswerScores
from fdkvc.experiments.known_services import (
    NOT_NAMED,
    by_services,
    known_sentence,
    known_services,
)
from fdkvc.experiments.proxies import answers_tables
from fdkvc.kinds.answers import answers_text
from fdkvc.lm import BUNDLED, BUNDLED_SERVICES
from fdkvc.report.document import answers_parts

TRAINED_ON = {"Banks_1", "Buses_1"}


def answers() -> pd.DataFrame:
    """Five dialogs; the calls of each, and how many of them the full cache writes."""
    dialogs = [
        ("one", "Banks_1", 4, 3),
        ("two", "Banks_1 + Buses_1", 1, 0),
        ("three", "Banks_1 + Trains_1", 2, 1),
        ("four", "Trains_1", 5, 1),
        ("five", "five", 0, 0),
    ]
    rows = []
    for name, services, calls, exact in dialogs:
        for policy, budget in ((FULL, 8), (FULL, 16), ("fifo", 8), (CUT_TEXT, 8)):
            rows.append((name, services, policy, budget, "nats", 1.5, 40))
            if calls:
                share = exact / calls if policy == FULL else 0.0
                rows.append((name, services, policy, budget, "calls_exact", share, calls))
                rows.append((name, services, policy, budget, "values_right", share / 2, 2 * calls))
    return pd.DataFrame(rows, columns=list(MEASURED))


def test_dialogs_and_calls_are_counted_by_what_the_model_knows() -> None:
    table = known_services(answers(), TRAINED_ON)

    assert table.drop(columns=["calls_exact", "values_right"]).to_numpy().tolist() == [
        ["all", 2, 2, 5, 10],
        ["some", 1, 1, 2, 4],
        ["none", 1, 1, 5, 10],
        [NOT_NAMED, 1, 1, 0, 0],
    ]
    assert (table.values_right[:3] == table.calls_exact[:3] / 2).all()
    assert table.calls_exact.tolist() == pytest.approx([3 / 5, 1 / 2, 1 / 5, np.nan], nan_ok=True)
    assert known_sentence(table) == (
        "By what the model was trained on, with the full cache: all services known: 2 dialogs in 2 "
        "clusters, 30.0 % of 10 values right, 60.0 % of 5 calls exact; some services known: 1 "
        "dialog in 1 cluster, 25.0 % of 4 values right, 50.0 % of 2 calls exact; no service known: "
        "1 dialog in 1 cluster, 10.0 % of 10 values right, 20.0 % of 5 calls exact; services not "
        "named: 1 dialog in 1 cluster, – of no values right, – of no calls exact."
    )


def test_values_and_calls_are_averaged_for_each_group() -> None:
    table = by_services(answers(), TRAINED_ON)

    assert table.known.unique().tolist() == ["all", "some", "none"]
    rows = table[(table.known == "all") & (table.policy == FULL) & (table.budget == 16)]
    assert dict(zip(rows.metric, rows["mean"], strict=True)) == pytest.approx(
        {"calls_exact": 3 / 5, "values_right": 3 / 10}
    )
    assert rows["count"].tolist() == [5, 10]
    assert by_services(answers(), frozenset()).empty


def test_the_text_and_the_report_show_each_group() -> None:
    tables = answers_tables(
        AnswerScores(answers(), pd.DataFrame(columns=list(MEASURED))), FULL, TRAINED_ON
    )

    text = answers_text(tables)
    lines = text.partition("by whether the model was trained on")[2].split("\n")
    (unknown,) = [line.split() for line in lines if line.startswith("no service known")]
    assert unknown[3:] == [FULL, "10.0", "10.0"]
    (part, _) = answers_parts(Answers(budgets=(8, 16)), tables, "bundled", {})
    assert "Values right, %, by services that the model knows" in part.body
    assert f"<td>no service known</td><td>{FULL}</td>" in part.body


def test_only_the_bundled_model_has_a_sentence_about_its_services() -> None:
    assert known_services(answers(), frozenset()).empty
    assert known_sentence(known_services(answers(), frozenset())) == ""


def test_the_bundled_models_services_have_their_source() -> None:
    record = json.loads((BUNDLED / "services.json").read_text("utf-8"))

    assert "Schema-Guided Dialogue" in record["source"]
    assert "11,674" in record["source"]
    assert "11,674" in (BUNDLED / "README.md").read_text("utf-8")
    assert frozenset(record["services"]) == BUNDLED_SERVICES
    assert len(BUNDLED_SERVICES) == 26
