"""How many dialogs are of services that the model knows, counted by hand."""

import json

import numpy as np
import pandas as pd
import pytest

from fdkvc.experiments.answers import CUT_TEXT, FULL, MEASURED
from fdkvc.experiments.known_services import NOT_NAMED, known_sentence, known_services
from fdkvc.lm import BUNDLED, BUNDLED_SERVICES

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
    return pd.DataFrame(rows, columns=list(MEASURED))


def test_dialogs_and_calls_are_counted_by_what_the_model_knows() -> None:
    table = known_services(answers(), TRAINED_ON)

    assert table.drop(columns="calls_exact").to_numpy().tolist() == [
        ["all", 2, 5],
        ["some", 1, 2],
        ["none", 1, 5],
        [NOT_NAMED, 1, 0],
    ]
    assert table.calls_exact.tolist() == pytest.approx([3 / 5, 1 / 2, 1 / 5, np.nan], nan_ok=True)
    assert known_sentence(table) == (
        "2 dialogs (5 calls; full cache: 60.0 % exact) use only services that the model was "
        "trained on, 1 dialog (2 calls; full cache: 50.0 % exact) also use other services, "
        "1 dialog (5 calls; full cache: 20.0 % exact) use only services that it was not trained "
        "on and 1 dialog (no calls) name no services."
    )


def test_only_the_bundled_model_has_a_sentence_about_its_services() -> None:
    assert known_services(answers(), frozenset()).empty
    assert known_sentence(known_services(answers(), frozenset())) == ""
    unnamed = answers().query("dialog == 'five'")
    assert "name no services" in known_sentence(known_services(unnamed, TRAINED_ON))


def test_the_bundled_models_services_have_their_source() -> None:
    record = json.loads((BUNDLED / "services.json").read_text("utf-8"))

    assert "Schema-Guided Dialogue" in record["source"]
    assert "11,674" in record["source"]
    assert "11,674" in (BUNDLED / "README.md").read_text("utf-8")
    assert frozenset(record["services"]) == BUNDLED_SERVICES
    assert len(BUNDLED_SERVICES) == 26
