"""A search of hyperparameters: its settings, its journal, its front and its files."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.commands.main import main
from fdkvc.commands.parser import build_parser
from fdkvc.experiments.tuning import FRESH_SEED, Tuning, remeasured_front, suggested, tune
from fdkvc.files.record import digest, read_run
from fdkvc.files.repeat import compare, found_by
from fdkvc.files.studies import tuning_files
from fdkvc.files.text import tuning_text
from fdkvc.policies import policy_named, read_policy
from fdkvc.ui.ablation import search
from tests.app_pages import link_of, open_page, press, run_until, settled

SMALL = Tuning(policy_named("h2o"), scenarios=("shift", "mixed"), trials=6, dialogs=2, fresh=4)


class Highest:
    """A trial that suggests the highest of everything."""

    def suggest_float(self, name: str, low: float, high: float) -> float:
        return high

    def suggest_int(self, name: str, low: int, high: int) -> int:
        return high

    def suggest_categorical(self, name: str, choices: list[str]) -> str:
        return choices[-1]


def test_any_declared_hyperparameter_is_searched_also_of_what_is_around() -> None:
    around = Tuning(read_policy("blocks(h2o, size=8)"))
    found = suggested(around, Highest())

    assert found.name == "blocks(h2o window=1.0 queries=each, size=80, score=largest)"
    only = Tuning(read_policy("blocks(h2o, size=8)"), names=("size",))
    assert suggested(only, Highest()).name == "blocks(h2o, size=80)"
    for name in ("fd-kvc", "whitelist(snapkv)", "ada-heads(scissorhands)", "retrieval"):
        tuning = Tuning(read_policy(name))
        assert suggested(tuning, Highest()).settings.keys() == tuning.policy.settings.keys()


def test_the_dialogs_of_the_report_are_others_than_those_of_the_search() -> None:
    policy = policy_named("random")
    one, other = (
        SMALL.measured(4, seed, [policy])["random"]
        for seed in (SMALL.seed, SMALL.seed + FRESH_SEED)
    )
    assert not np.array_equal(one, other)


def test_what_was_found_is_told_on_fresh_dialogs() -> None:
    start, other = SMALL.policy, policy_named("h2o", window=0.9)
    searched = SMALL.measured(SMALL.dialogs, SMALL.seed, [start, other])
    fresh = SMALL.measured(SMALL.fresh, SMALL.seed + FRESH_SEED, [start, other])
    tried = [(name, numbers.mean(axis=1).tolist()) for name, numbers in searched.items()]

    tuned = remeasured_front(SMALL, [*tried, tried[1]])

    assert tuned.trials.setting.tolist() == [start.name, other.name, other.name]
    assert tuned.trials.front.tolist() == [False, True, True]
    row, gain = (
        next(
            each
            for each in table.to_dict("records")
            if (each["setting"], each["goal"]) == (other.name, "retention")
        )
        for table in (tuned.front, tuned.gains)
    )
    assert row["searched"] == pytest.approx(searched[other.name][0].mean())
    assert row["mean"] == pytest.approx(fresh[other.name][0].mean())
    assert row["n"] == 4
    difference = fresh[other.name][0] - fresh[start.name][0]
    assert gain["mean_diff"] == pytest.approx(difference.mean())
    assert "h2o window=0.9" in tuning_text(tuned)

    files = tuning_files(SMALL, tuned)
    record = read_run(files["run.json"])
    assert (record.kind, record.settings) == ("search", SMALL)
    assert compare(record, files).repeated
    run = json.loads(files["run.json"])
    run["parameters"]["policies"] = [{"key": "fifo"}]
    with pytest.raises(
        ValueError, match=r"parameters\.policies: it is unknown; known are policy, names, metrics"
    ):
        read_run(json.dumps(run))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"policy": policy_named("fifo")}, "fifo has no hyperparameters to search"),
        ({"names": ("gamma",)}, "'gamma' is not a searchable hyperparameter of h2o: choose from"),
        ({"metrics": ()}, "a search needs at least one goal, such as retention"),
        ({"metrics": ("beauty",)}, "metric 'beauty' is unknown: choose from"),
        ({"scenarios": ("adaptation",)}, "scenario 'adaptation' cannot be searched: choose from"),
        ({"trials": 0}, "trials is 0, but must be a whole number from 1 to 10000"),
        ({"fresh": 1}, "fresh is 1, but must be a whole number from 2 to 5000"),
    ],
)
def test_what_cannot_be_searched_is_said_in_a_sentence(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        Tuning(**{"policy": policy_named("h2o"), **changes})


def test_without_optuna_the_command_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)

    assert main(["tune", "--policy", "h2o", "--trials", "1", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        "fdkvc: tuning needs Optuna: install requirements-tune.txt, or the extra tune\n"
    )


# ------------------------------------------------------------------------------- on the page


LINK = {
    "section": "search",
    "policy": "blocks(h2o,size=8)",
    "names": "size,window",
    "metrics": "retention,diversity",
    "scenarios": "mixed",
    "trials": "3",
    "dialogs": "2",
    "fresh": "3",
    "seed": "1",
    "budget": "40",
}


def test_without_optuna_the_page_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    app = open_page("ablation", section="search")

    (said,) = app.info
    assert "requirements-tune.txt" in said.value
    assert [button.label for button in app.button] == []


def some_of(tuning: Tuning, **_: Any) -> Any:
    """Try pages of three sizes, as a search would."""
    tried = [tuning.policy.variant(size=size) for size in (4, 8, 20)]
    numbers = tuning.measured(tuning.dialogs, tuning.seed, tried)
    return remeasured_front(
        tuning, [(name, each.mean(axis=1).tolist()) for name, each in numbers.items()]
    )


def test_the_page_searches_and_opens_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "optuna_package", lambda: None)
    monkeypatch.setattr(search, "tune", some_of)
    app = open_page("ablation", **LINK)
    assert not app.error
    assert link_of(app) == LINK
    _, _, _, *command = shlex.split(app.code[0].value)
    asked = build_parser().parse_args(command)
    assert (asked.policy, asked.names) == ("blocks(h2o,size=8)", ["window", "size"])
    assert (asked.metrics, asked.scenarios) == (["retention", "diversity"], ["mixed"])
    run_until(press(app, "Start the search"), "Shown: Blocks (H2O, size=8) for retention and")

    settings = app.dataframe[0].value
    assert settings[""].tolist()[:2] == ["original", "A"]
    assert all("(" in words for words in settings["Retention"])
    assert set(settings["Page size (b)"]) <= {"4", "8", "20"}
    found = Tuning(read_policy("blocks(h2o, size=8)"), scenarios=("mixed",), trials=3, dialogs=2)
    best = str(some_of(dataclasses.replace(found, seed=1, budget=40)).trials.setting.iloc[-1])
    app.session_state["ablation-search/picked"] = best
    settled(app.run())
    (link,) = [each.proto.query_string for each in app.get("page_link")]
    step = open_page("step", **dict(parse_qsl(link)))
    assert not step.error
    size = read_policy(best).settings["size"].default
    assert (link_of(step)["around"], link_of(step)["size"]) == ("blocks", str(size))
    again = open_page("ablation", **link_of(app))  # as a reload does
    assert not again.error
    assert len(again.dataframe) == 1
    assert link_of(again) == link_of(app)


def test_a_search_of_the_command_is_opened_from_its_run_json_also_without_optuna(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    tuning = Tuning(read_policy("blocks(h2o, size=8)"), ("size",), trials=3, dialogs=2, fresh=3)
    found = some_of(tuning)
    files = tuning_files(tuning, found)
    assert tuning_files(tuning, found_by(read_run(files["run.json"]).with_texts(files))) == files
    for some in (files, {name: files[name] for name in ("run.json", "front.csv", "gains.csv")}):
        app = open_page("ablation", section="search")
        bring(app, some)

        assert any(
            "Of 3 settings, those on the Pareto front" in each.value for each in app.markdown
        )
        assert not app.warning
        assert len(app.dataframe[0].value) == found.front.setting.nunique()
        app.session_state["ablation-search/picked"] = found.front.setting.iloc[-1]
        assert [each.proto.query_string for each in settled(app.run()).get("page_link")]

    for some, sentence in (
        ({"front.csv": files["front.csv"]}, "run.json is missing: choose it together with"),
        ({"run.json": files["run.json"]}, "its front.csv is missing, or not as the run wrote it"),
        ({**files, "gains.csv": "other"}, "its gains.csv is missing, or not as the run wrote it"),
        (
            {"run.json": files["run.json"].replace('"search"', '"study"')},
            "the file is a run of kind 'study'",
        ),
    ):
        bring(app, some)
        assert app.error[0].value.startswith(f"This file cannot be opened: {sentence}")


def bring(app: AppTest, files: Mapping[str, str]) -> None:
    loaded = [(name, text.encode(), "text/plain") for name, text in files.items()]
    settled(app.file_uploader[0].set_value(loaded).run())


@pytest.mark.parametrize(
    ("name", "old", "new", "sentence"),
    [
        ("front.csv", "setting,", "sitting,", "its front.csv is missing, or not as"),
        ("front.csv", None, "", "its front.csv is missing, or not as"),
        ("front.csv", "diversity", "regret", "front.csv is not of this search"),
        ("front.csv", ",4,", ",four,", "front.csv is not of this search"),
        ("front.csv", ",4,", ",inf,", "front.csv is not of this search"),
        ("front.csv", "h2o window=0.25", "tova", "front.csv is of another policy"),
        ("gains.csv", "retention", "diversity", "gains.csv is not of this search"),
    ],
)
def test_tables_that_are_not_of_the_search_are_not_opened(
    name: str, old: str | None, new: str, sentence: str
) -> None:
    found = remeasured_front(SMALL, [("h2o window=0.25", [1.0, 1.0])])
    files = tuning_files(SMALL, found)
    run = json.loads(files["run.json"])
    for file in ("front.csv", "gains.csv") if new == "tova" else (name,):
        files[file] = new if old is None else files[file].replace(old, new)
        run["digests"][file] = digest(files[file])

    with pytest.raises(ValueError, match=sentence):
        found_by(read_run(json.dumps(run)).with_texts(files))


def test_what_has_nothing_to_search_is_said_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "optuna_package", lambda: None)
    app = open_page("ablation", **LINK | {"policy": "fifo", "names": ""})
    assert app.error[0].value.startswith("fifo has no hyperparameters to search.")


# ------------------------------------------------------------------------------- with Optuna


@pytest.fixture
def optuna() -> Any:
    if os.environ.get("FDKVC_REQUIRE_TUNE") == "1":
        import optuna

        return optuna
    reason = "Optuna is not installed: get it with `pip install -r requirements-tune.txt`"
    return pytest.importorskip("optuna", reason=reason)


def test_a_search_that_goes_on_is_as_if_never_interrupted(optuna: Any, tmp_path: Path) -> None:
    whole = tune(SMALL)
    stopped: list[int] = []

    def stop(progress: Any) -> None:
        stopped.append(progress.done)
        if progress.done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(SMALL, tmp_path / "journal.log", stop)
    went_on = tune(SMALL, tmp_path / "journal.log", lambda progress: stopped.append(progress.done))

    assert stopped == [1, 2, 3, 4, 5, 6]
    assert tuning_files(SMALL, whole) == tuning_files(SMALL, went_on)
    assert whole.trials.setting.iloc[0] == "h2o"  # the policy as it is comes first
    assert whole.trials.setting.nunique() > 3
    other = Tuning(policy_named("snapkv"), trials=6, dialogs=2, fresh=4)
    with pytest.raises(ValueError, match="is the journal of another search: choose another folder"):
        tune(other, tmp_path / "journal.log")


def test_the_command_writes_what_repeats_it(
    optuna: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--trials", "4", "--dialogs", "2", "--fresh", "4", "--scenarios", "shift"]

    assert main(["tune", "--policy", "window(tova)", *small, "--out", str(tmp_path)]) == 0
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"trials.csv", "front.csv", "gains.csv", "run.json", "journal.log"}
    assert main(["repeat", str(tmp_path / "run.json")]) == 0
    assert "the same, byte for byte, in trials.csv, front.csv" in capsys.readouterr().out


def test_a_search_that_is_cancelled_tells_what_it_found(optuna: Any) -> None:
    cancelled = threading.Event()

    def stop(progress: Any) -> None:
        if progress.done == 2:
            cancelled.set()

    tuned = tune(SMALL, on_progress=stop, cancelled=cancelled)
    assert len(tuned.trials) == 2
    assert SMALL.policy.name in set(tuned.front.setting)
    nothing = tune(SMALL, cancelled=cancelled)
    assert nothing.trials.empty
    assert set(nothing.front.setting) == {SMALL.policy.name}
