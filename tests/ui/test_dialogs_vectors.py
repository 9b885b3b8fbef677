"""A file on the page Dialogs with a model's own vectors, read in the background."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.commands.kinds import KINDS, read_run
from fdkvc.conversations.page.files import read_dialog_file, shipped_file
from fdkvc.conversations.replay import ARGUMENTS, REPLAYED, Replay, replay_arguments
from fdkvc.conversations.sources import Sources
from fdkvc.models.numpy import gguf_file
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.head_recordings import read_dialog
from fdkvc.models.numpy.language_model import shared_language_model
from fdkvc.models.page import loading as models
from fdkvc.policies import policy_named
from fdkvc.runs.jobs import Progress
from fdkvc.ui.downloads import files_of
from fdkvc.ui.lru import STORE
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import shared_jobs
from fdkvc.verdict.page import vectors as page
from fdkvc.verdict.page.replay import FileRun, replay_file
from fdkvc.verdict.page.vectors import VECTORS, read_file
from tests.app_pages import html, link_of, open_page, press, settled
from tests.language_models import write_model
from tests.ui.test_dialogs_page import card, no_stage, text_of, words_of, words_said

NAME = "mine"
SETTINGS = Replay((policy_named("fifo"), policy_named("h2o")), (1,), ("kv",))
FILE = shipped_file("dialogues")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / NAME
    return write_model(folder, num_hidden_layers=5, max_position_embeddings=8192)


@pytest.fixture(autouse=True)
def offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.MODELS, NAME, str(folder))
    monkeypatch.setitem(VECTORS.choices, NAME, NAME)  # type: ignore[arg-type]
    STORE.__init__(STORE.most)  # type: ignore[misc]
    shared_jobs.clear()


def test_a_model_reads_a_file_in_the_background_and_its_heads_are_shown() -> None:
    app = open_page("dialogs", file="dialogues", policies="fifo,h2o")
    assert "Vectors: lexical embedding" in html(app)
    settled(app.selectbox(key="dialogs/vectors").set_value(NAME).run())
    assert no_stage(app)
    assert "mine has not read this dialog yet." in words_of(app)
    assert link_of(app)["vectors"] == NAME

    app = read_with(app)
    assert f"Vectors: the {NAME} model, layer 1, KV head 0" in html(app)
    assert words_said(app) == "".join(FILE.transcripts[0].texts)
    labels = app.selectbox(key="dialogs/kv").options
    assert labels == [f"layer {layer}, head {head}" for layer in (1, 2, 3) for head in (0, 1)]
    settled(app.selectbox(key="dialogs/kv").set_value(5).run())
    assert f"the {NAME} model, layer 2, KV head 1" in html(app)
    again = open_page("dialogs", **link_of(app))
    assert link_of(again) == link_of(app)
    assert text_of(again) == text_of(app)
    settled(app.selectbox(key="dialogs/dialog").set_value(1).run())
    assert words_said(app) == "".join(FILE.transcripts[1].texts)
    settled(app.selectbox(key="dialogs/vectors").set_value("lexical").run())
    assert "Vectors: lexical embedding" in html(app)


def test_a_link_opens_on_its_turn_once_the_file_is_read() -> None:
    link = {"file": "dialogues", "vectors": NAME, "kv": 7, "policies": "fifo"}
    app = open_page("dialogs", **link, turn=5, entry=700)
    assert no_stage(app)
    assert link_of(app).items() >= {"turn": "5", "entry": "700"}.items()
    app = read_with(app)
    assert link_of(app).items() >= {"turn": "5", "entry": "700", "kv": "7"}.items()
    assert f"the {NAME} model, layer 3, KV head 1" in html(app)
    assert not app.error

    STORE.__init__(STORE.most)  # type: ignore[misc]
    app = read_with(open_page("dialogs", **link))
    assert link_of(app)["turn"] != "0", "it opens where a call failed"


def read_with(app: AppTest) -> AppTest:
    press(app, f"Read with {NAME}")
    while no_stage(app):
        time.sleep(0.1)  # or the page would take the time of what it waits for
        settled(app.run())
        assert not app.error
    return app


def test_a_run_is_the_mean_of_the_heads() -> None:
    vectors = NAME
    run = FileRun(SETTINGS, 0.95, FILE.key, vectors, Encoding(), FILE)
    done = replay_file(run, workers=1)
    assert done is not None
    model = shared_language_model(models.MODELS[NAME])
    tables = []
    for at, dialog in enumerate(FILE.transcripts):
        for recording in read_dialog(model, dialog, (1, 2, 3)):
            table, arguments = replay_arguments(done.settings, [recording], workers=1)
            ran = [*zip(done.table.policy, done.table.budget, strict=True)]
            table, arguments = (
                rows[[pair in ran for pair in zip(rows.policy, rows.budget, strict=True)]]
                for rows in (table, arguments)
            )
            tables += [(at, table.assign(head=0), arguments)]
    assert len(tables) == 12
    assert [*done.table] == [*REPLAYED]
    assert [*done.arguments] == [*ARGUMENTS]
    for at, dialog in enumerate(FILE.transcripts):
        of_dialog = [parts for parts in tables if parts[0] == at]
        values = np.mean([table.value for _, table, _ in of_dialog], axis=0)
        mine = done.table[done.table.dialog == dialog.name]
        case = ["policy", "budget", "metric"]
        assert mine[case].to_numpy().tolist() == of_dialog[0][1][case].to_numpy().tolist()
        np.testing.assert_allclose(mine.value, values, rtol=1e-6)
        pairs = done.arguments[done.arguments.dialog == dialog.name]
        held = np.mean([arguments.held for _, _, arguments in of_dialog], axis=0)
        assert pairs.held.tolist() == pytest.approx(held.tolist())
        lost = np.stack([arguments.lost for _, _, arguments in of_dialog])
        first = np.where(lost < 0, 999, lost).min(axis=0)
        assert pairs.lost.tolist() == np.where(first == 999, -1, first).tolist()
    assert len(done.recordings) == len(FILE.transcripts)
    words = f"the {NAME} model, mean of the 6 KV heads of layers 1, 2 and 3"
    assert done.source == json.loads(files_of(done)["run.json"])["parameters"]["source"] == words
    record = read_run(files_of(done)["run.json"])
    with pytest.raises(ValueError, match="with vectors=mine"):
        KINDS["replay"].again(record, Sources())


def test_a_verdict_has_the_models_vectors_once_it_has_read_the_file() -> None:
    app = read_with(open_page("dialogs", file="dialogues", vectors=NAME, policies="fifo,h2o"))
    card(app)
    done: Any = shared_jobs().find(app.session_state["dialogs/verdict"])
    assert done.result.model == NAME
    assert done.result.settings.heads == ("kv",)
    letters = "Estimate by letters"
    assert letters not in words_of(app)
    settled(app.selectbox(key="dialogs/vectors").set_value("lexical").run())
    assert letters in words_of(card(app))


def test_what_does_not_fit_is_not_read_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = NAME
    seen: list[Progress] = []
    read = read_file(chosen, FILE, 1, on_progress=seen.append)
    assert [*read.recordings] == [1, 0]
    assert len(read.heads) == len(read.recordings[0]) == 6
    last = seen[-1]
    tokens = sum(row[0].starts[-1] for row in read.recordings.values())
    assert last.finished_jobs == last.total == tokens
    assert last.title == f"mine has read {last.total:,} of {last.total:,} tokens"
    assert read_file(chosen, FILE, 0) is read

    first, second = (read.recordings[at][0].starts[-1] for at in range(2))
    bytes_of_token = 3 * 4 * (24 + 4 * 6 + 2 * 2 * 6)
    monkeypatch.setattr(page, "MAX_READ_MEGABYTES", (first + 1) * bytes_of_token / 1e6)
    STORE.__init__(STORE.most)  # type: ignore[misc]
    read = read_file(chosen, FILE)
    assert [*read.recordings] == [0]
    reason = f"{FILE.transcripts[1].name}: {second:,} tokens in 3 layers, but "
    assert read.skipped[1].startswith(reason)
    app = open_page("dialogs", file="dialogues", dialog=1, vectors=NAME)
    assert app.error[0].value.startswith(plain(reason))
    assert app.error[0].value.endswith("Showing letters of words instead.")
    assert not no_stage(app)


def test_a_cancelled_reading_keeps_the_dialogs_that_are_whole() -> None:
    cancelled, seen = threading.Event(), list[Progress]()

    def cancel_late(progress: Progress) -> None:
        seen.append(progress)
        share = progress.finished_jobs / progress.total
        if progress.title.startswith("mine has read") and share > 0.8:
            cancelled.set()

    read = read_file(NAME, FILE, on_progress=cancel_late, cancelled=cancelled)
    assert [*read.recordings] == [0]
    assert read.recordings[0][0].starts[-1] < seen[-1].finished_jobs < seen[-1].total

    STORE.__init__(STORE.most)  # type: ignore[misc]
    run = FileRun(SETTINGS, 0.95, FILE.key, NAME, Encoding(), FILE)
    assert replay_file(run, cancelled=cancelled) is None


def test_without_its_package_letters_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    app = open_page("dialogs", file="dialogues", vectors="smollm2", budget=48)
    words = f"{gguf_file.NO_MODEL}. Showing letters of words instead."
    assert [error.value for error in app.error] == [plain(words)]
    assert not no_stage(app)


@pytest.mark.smollm2
def test_smollm2_attends_to_its_first_token_and_letters_do_not() -> None:
    file = read_dialog_file(b"User: A table for two at six, please.\nSystem: Which town?", "a.txt")
    read = read_file("smollm2", file)
    assert [*read.heads.values()][::3] == [
        "layer 7, head 0",
        "layer 15, head 0",
        "layer 22, head 0",
    ]
    shares = [row.dialogs.full_attention[:, 1, 0].mean() for row in read.recordings[0]]
    assert min(shares) > 0.25
    letters: Any = file.recording(0).dialogs.full_attention
    assert letters[0, 1, 0] < 0.15
