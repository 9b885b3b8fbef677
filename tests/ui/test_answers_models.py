"""Answers of other models than the bundled one: a small one with a chat template, and SmolLM2."""

import json
import re
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from benchmarks.recorded_answer import record_answer
from fdkvc.models import local_models
from fdkvc.models.cache_answers import shipped_answer
from fdkvc.models.local_models import LocalModel
from fdkvc.models.numpy import gguf_file
from fdkvc.models.numpy import language_model as loading
from fdkvc.models.numpy.chat import Chat
from fdkvc.models.numpy.decoder import Decoder
from fdkvc.models.numpy.language_model import OWN_MODELS, offered_models
from fdkvc.models.page import conversation, scene
from fdkvc.models.page import loading as models
from fdkvc.models.page.conversation import Answered
from fdkvc.ui.lru import ByteLRU
from fdkvc.ui.markdown import plain
from tests.app_pages import html, link_of, open_page, press, settled, words_of
from tests.command_line import ROOT
from tests.language_models import change_config, write_model
from tests.models.numpy.test_chat_template import CHATML, MARKS
from tests.ui.test_answers_page import lanes, say

FOUR = ["FIFO", "H2O", "FD-KVC", "KeyDiff"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models") / "mine"
    folder = write_model(place, seed=3, marks=MARKS, max_position_embeddings=1024)
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHATML}))
    return folder


@pytest.fixture(autouse=True)
def offered(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(models.MODELS, "mine", str(folder))
    monkeypatch.setitem(models.LABELS, "mine", "mine")


def choose(app: AppTest, name: str) -> AppTest:
    return settled(app.selectbox(key="answers/model").set_value(name).run())


def test_the_environment_names_models_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(OWN_MODELS, raising=False)
    assert [*offered_models()] == ["bundled", "smollm2"]
    monkeypatch.setenv(OWN_MODELS, "/a/one\n/b/one.gguf\nsmollm2\n\n/c/bundled")
    assert offered_models() == {
        **offered_models(),
        **{"one": "/a/one", "one (2)": "/b/one.gguf", "bundled (2)": "/c/bundled"},
    }


@pytest.mark.long
def test_another_model_begins_with_its_own_policies_and_is_loaded_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = loading.load_language_model, []

    def counting(name: str, *more: object) -> object:
        loaded.append(name)
        return load(name, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "load_language_model", counting)
    app = choose(open_page("answers"), "mine")
    say(app, "hello")

    assert loaded.count(str(folder)) == 1
    assert list(lanes(app)) == ["Full cache", *FOUR]
    assert link_of(app).items() >= {"model": "mine", "file": "birthday", "budget": "64"}.items()
    assert "What mine writes may be" in words_of(app)
    assert lanes(open_page("answers", **link_of(app))) == lanes(app)
    assert lanes(open_page("answers", model="mine", said="hello")) == lanes(app)
    assert loaded.count(str(folder)) == 1
    press(app, "Take it back")
    choose(app, "bundled")
    assert link_of(app).items() >= {"file": "evening", "budget": "96", "stops": ""}.items()


@pytest.mark.parametrize("begun", [{"file": "nothing"}, {"said": "hello"}, {"budget": "50"}])
def test_another_model_changes_nothing_that_is_chosen_or_written(begun: dict[str, str]) -> None:
    app = open_page("answers", policies="fifo", **begun)
    chosen = {name: link_of(app)[name] for name in ("file", "budget", "said")}
    assert begun.items() <= chosen.items()
    for model in ("mine", "bundled"):
        choose(app, model)
        assert link_of(app).items() >= {**chosen, "model": model}.items()


@pytest.mark.long
def test_a_new_chat_goes_on_with_another_model(folder: Path) -> None:
    app = open_page("answers", file="nothing", policies="fifo")
    say(app, "hello")
    choose(app, "mine")
    assert link_of(app).items() >= {"file": "nothing", "said": "hello", "budget": "96"}.items()
    assert list(lanes(app)) == ["Full cache", "FIFO"]
    assert "earlier turn" not in html(app)


def test_a_link_loads_no_file_that_the_process_was_not_started_with(folder: Path) -> None:
    app = open_page("answers", model=str(folder))

    (error,) = app.error
    assert "Model is" in error.value
    assert "must be one of bundled, smollm2, mine. Using" in error.value
    assert link_of(app)["model"] == "bundled"


def test_without_its_package_a_model_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_SHARED", {})
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    app = open_page("answers", model="smollm2")
    assert not app.error
    assert "Run it live" not in [button.label for button in app.button]
    assert any(plain(gguf_file.NO_MODEL) in caption.value for caption in app.caption)
    assert app.chat_input[0].disabled
    assert len(lanes(choose(app, "bundled"))) == 5


@pytest.mark.long
def test_two_people_chat_in_turn_and_no_answer_is_written_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the caches of each chat have to make room for those of the other."""
    kept: ByteLRU[Answered] = ByteLRU(0)
    monkeypatch.setattr(conversation, "ANSWERS", kept)
    monkeypatch.setattr(scene, "ANSWERS", kept)
    monkeypatch.setattr(conversation, "TEXTS", ByteLRU(1_000_000))
    monkeypatch.setattr(conversation, "MAX_WRITTEN_TOKENS", 8)
    monkeypatch.setattr(Decoder, "large", True)
    answer, begun = Chat.answer, list[int]()

    def counting(chat: Chat, most: int) -> Iterator[dict[str, int]]:
        begun.append(chat.steps)
        yield from answer(chat, most)

    monkeypatch.setattr(Chat, "answer", counting)
    people, shown = [open_page("answers", model="mine") for _ in range(2)], []
    begun.clear()
    for said in ("hello there", "and then?"):
        for app in people:
            say(app, said * (1 + people.index(app)))
            shown.append(lanes(app))
    assert begun == [0] * 4
    for app, first, second in zip(people, shown[:2], shown[2:], strict=True):
        assert lanes(settled(app.run())) == second
        press(app, "Take it back")
        assert lanes(app) == first
    assert begun == [0] * 4
    press(people[0], "Go on")
    longer = lanes(people[0])
    assert begun[4:] == [max(begun)] != [0]
    monkeypatch.setattr(conversation, "TEXTS", ByteLRU(1_000_000))
    monkeypatch.setattr(kept, "_held", OrderedDict())
    assert lanes(open_page("answers", **link_of(people[0]))) == longer


def test_choosing_smollm2_shows_what_eviction_did_without_loading_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The recording has the full cache's word, what three policies lost, and what restores it."""
    monkeypatch.setattr(loading, "_SHARED", {})
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    app = choose(open_page("answers"), "smollm2")

    assert not app.error
    assert re.fullmatch(
        ".Rosalind's. in the true answer: predicted with the full cache and KeyDiff; "
        "lost with FIFO, H2O and FD-KVC",
        app.header[0].value,
    )
    shown = lanes(app)
    assert list(shown) == ["Full cache", *FOUR]
    signs = {name: "✓ Rosalind" in lane for name, lane in shown.items()}
    assert [name for name, right in signs.items() if right] == ["Full cache", "KeyDiff"]
    assert "Rosalind" in shown["Full cache"].partition("writes:")[2]
    assert "system prompt</b> You are a helpful AI" in html(app)
    assert "With *Rosalind* (turn 0) restored, the answer has “Rosalind”, though" in words_of(app)
    assert "scrolls back" in html(app)
    app.selectbox(key="answers/look").set_value("fd-kvc").run()
    assert "Only all 4 restored together bring “" in words_of(settled(app))
    assert not app.error
    settled(app.number_input(key="answers/budget").set_value(65).run())
    assert len(app.error) == 1  # nothing is recorded with it


def test_a_link_to_two_of_the_recorded_policies_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "NAMED_MODELS", {"smollm2": "no_such_package"})
    app = open_page("answers", model="smollm2", policies="fifo,h2o", look="h2o")

    assert not app.exception
    assert list(lanes(app)) == ["Full cache", "FIFO", "H2O"]
    assert app.selectbox(key="answers/look").options == ["FIFO", "H2O"]
    assert "With *Rosalind* (turn 0) restored, the answer has “Rosalind's”" in words_of(app)


def test_a_starter_begins_a_chat() -> None:
    app = open_page("answers", file="nothing", policies="fifo")
    starter = "I am looking for a restaurant in San Jose."
    press(app, starter)

    assert link_of(app)["said"] == starter
    assert starter in html(app)
    assert starter not in [button.label for button in app.button]


@pytest.mark.long
@pytest.mark.smollm2
def test_the_recorded_answer_is_what_the_model_gives_live() -> None:
    recorded = shipped_answer()
    again = record_answer("birthday", "smollm2", ("fifo", "h2o"))  # those of *Start*

    assert replace(again, answers={}, restored={}) == replace(recorded, answers={}, restored={})
    for name, answer in recorded.answers.items():
        other = again.answers[name]
        assert [(*word[:2],) for word in other.predicted] == [
            (*word[:2],) for word in answer.predicted
        ]
        assert other.passages[0][1].split()[:2] == answer.passages[0][1].split()[:2]
    for name, tried in again.restored.items():
        restoration = recorded.restored[name]
        assert tried.word == restoration.word
        assert [attempt.spans[0].text for attempt in tried.attempts] == [
            attempt.spans[0].text for attempt in restoration.attempts
        ]


@pytest.mark.smollm2
def test_smollm2_answers_under_five_caches() -> None:
    app = open_page("answers", model="smollm2", file="nothing")
    say(app, "What is the capital of Slovenia?")

    assert list(lanes(app)) == ["Full cache", *FOUR]
    assert lanes(app)["Full cache"].endswith("The capital of Slovenia is Ljubljana. ")
    assert "system prompt</b> You are a helpful AI" in html(app)
    assert link_of(app).items() >= {"model": "smollm2", "budget": "64"}.items()
    before = lanes(app)
    say(app, "And of Austria?")
    assert "Vienna" in lanes(app)["Full cache"]
    press(app, "Take it back")
    assert lanes(app) == before


@pytest.mark.long
@pytest.mark.smollm2
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_a_chat_of_five_caches_takes_little_memory() -> None:
    """Peak memory of a process with a chat, and another that is too long: 1.6 GB at most.

    What it keeps of chats counts within `fdkvc.core.limits.MAX_STORED_MEGABYTES`.
    """
    script = "from tests.app_pages import open_page; import re; said = ' '.join(['word'] * 34); "
    script += "new = dict(model='smollm2', file='nothing'); "
    script += "open_page('answers', **new, said='Hello, who are you?', stops='1:9'); "
    script += "stops = ','.join(f'{at}:2' for at in range(1, 12)); app = open_page('answers', "
    script += "**new, said='\\n'.join([said] * 11), stops=stops, "
    script += "policies='h2o,fd-kvc,fifo,sinks(surprisal)'); "
    script += "print(app.error[0].value); "
    script += "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT)
    error, peak = done.stdout.splitlines()
    assert re.fullmatch(
        r"The text has \d+ tokens, but with 5 caches at most \d+ fit into memory: choose fewer "
        "policies, or a shorter chat\\\\?.",
        error,
    ), error
    assert int(peak) * 1024 < 1.6e9


@pytest.mark.long
def test_stored_models_are_offered_with_their_memory_and_others_named_with_the_reason(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = write_model(tmp_path / "other", seed=1)
    change_config(other, model_type="unheard")
    places = {"ollama:tiny:1b": folder, "hf:someone/other": other}
    stored = {name: LocalModel(name, place, 8, "") for name, place in places.items()}
    monkeypatch.setattr(models, "STORED", stored)
    monkeypatch.setattr(local_models, "local_models", lambda: stored)
    for name in stored:
        monkeypatch.setitem(models.MODELS, name, name)
        monkeypatch.setitem(models.LABELS, name, name)

    app = open_page("answers", model="ollama:tiny:1b")
    labels = app.selectbox(key="answers/model").options
    assert "ollama:tiny:1b (0.0 in memory)" in labels
    assert not any("other" in label for label in labels)
    assert "someone/other: its type is 'unheard'" in words_of(app)
    say(app, "hello")
    assert list(lanes(app)) == ["Full cache", *FOUR]
