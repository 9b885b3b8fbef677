"""A dialog on the page Dialogs with a model's own vectors, read in the background."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from fdkvc.conversations.page.files import DialogFile, read_dialog_file, shipped_file
from fdkvc.models.numpy import gguf_file
from fdkvc.models.page import loading as models
from fdkvc.runs.jobs import Progress
from fdkvc.ui.lru import STORE
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import shared_jobs
from fdkvc.verdict.page import vectors as page
from fdkvc.verdict.page.vectors import VECTORS, DialogToRead, ReadDialog, read_heads
from tests.app_pages import html, link_of, open_page, press, settled
from tests.language_models import write_model
from tests.ui.test_dialogs_page import no_stage, text_of, words_said

NAME = "mine"
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


def read(file: DialogFile, model: str = NAME, **execution: Any) -> ReadDialog | None:
    """Let a model read the first dialog of a file."""
    return read_heads(DialogToRead(file.key, 0, model, file), **execution)


@pytest.mark.long
def test_a_model_reads_a_dialog_in_the_background_and_its_heads_are_shown() -> None:
    app = open_page("dialogs", file="dialogues", policies="fifo,h2o")
    assert "H2O: by letters of words, not meaning." in html(app)
    settled(app.selectbox(key="dialogs/vectors").set_value(NAME).run())
    assert no_stage(app)
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
    assert no_stage(app), "another dialog is read on request"
    settled(app.selectbox(key="dialogs/vectors").set_value("lexical").run())
    assert words_said(app) == "".join(FILE.transcripts[1].texts)


@pytest.mark.long
def test_a_link_opens_on_its_turn_once_the_dialog_is_read() -> None:
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
    press(app, f"Read this dialog with {NAME}")
    while no_stage(app):
        time.sleep(0.1)  # or the page would take the time of what it waits for
        settled(app.run())
        assert not app.error
    return app


def test_what_does_not_fit_is_not_read_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Progress] = []
    dialog = read(FILE, on_progress=seen.append)
    assert dialog is not None
    assert len(dialog.heads) == len(dialog.recordings) == 6
    tokens = dialog.recordings[0].starts[-1]
    assert seen[-1].finished_jobs == seen[-1].total == tokens
    assert seen[-1].title == f"mine has read {tokens:,} of {tokens:,} tokens"

    bytes_of_token = 3 * 4 * (24 + 4 * 6 + 2 * 2 * 6)
    monkeypatch.setattr(page, "MAX_READ_MEGABYTES", (tokens - 1) * bytes_of_token / 1e6)
    STORE.__init__(STORE.most)  # type: ignore[misc]
    app = open_page("dialogs", file="dialogues", vectors=NAME)
    press(app, f"Read this dialog with {NAME}")
    while no_stage(app):
        time.sleep(0.1)
        settled(app.run())
    said = app.error[0].value
    assert plain(f"{FILE.transcripts[0].name}: it has {tokens:,} tokens to read, but") in said
    assert said.endswith("Showing letters of words instead.")


def test_a_cancelled_reading_keeps_nothing() -> None:
    cancelled = threading.Event()
    cancelled.set()
    assert read(FILE, cancelled=cancelled) is None


def test_without_its_package_letters_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    app = open_page("dialogs", file="dialogues", vectors="smollm2", budget=48)
    words = f"{gguf_file.NO_MODEL}. Showing letters of words instead."
    assert [error.value for error in app.error] == [plain(words)]
    assert not no_stage(app)


@pytest.mark.smollm2
def test_smollm2_attends_to_its_first_token_and_letters_do_not() -> None:
    file = read_dialog_file(b"User: A table for two at six, please.\nSystem: Which town?", "a.txt")
    dialog = read(file, "smollm2")
    assert dialog is not None
    assert [*dialog.heads.values()][::3] == [
        "layer 7, head 0",
        "layer 15, head 0",
        "layer 22, head 0",
    ]
    shares = [row.dialogs.full_attention[:, 1, 0].mean() for row in dialog.recordings]
    assert min(shares) > 0.25
    letters: Any = file.recording(0).dialogs.full_attention
    assert letters[0, 1, 0] < 0.15
