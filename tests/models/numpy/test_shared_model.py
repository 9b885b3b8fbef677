"""Models that a process shares: one is loaded once, and holds up nobody who uses another."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from fdkvc.models.numpy import language_model as loading
from fdkvc.models.numpy.language_model import LanguageModel, shared_language_model

SECONDS = 10

Load = Callable[..., LanguageModel]


@pytest.fixture(autouse=True)
def unshared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_SHARED", {})


def model_of(name: str) -> LanguageModel:
    return LanguageModel(name, None, None, "")  # type: ignore[arg-type]


def test_who_uses_one_model_does_not_wait_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on, loaded = threading.Event(), threading.Event(), list[str]()

    def load(name: str, on_progress: object) -> LanguageModel:
        loaded.append(name)
        if name == "slow":
            begun.set()
            assert go_on.wait(SECONDS)
        return model_of(name)

    monkeypatch.setattr(loading, "load_language_model", load)
    got: list[LanguageModel] = []
    slow = [
        threading.Thread(target=lambda: got.append(shared_language_model("slow")), daemon=True)
        for _ in range(2)
    ]
    slow[0].start()
    assert begun.wait(SECONDS)
    slow[1].start()
    others = [shared_language_model("quick"), shared_language_model("quick")]
    assert got == []
    go_on.set()
    for thread in slow:
        thread.join(SECONDS)
    assert others[0] is others[1]
    assert len(got) == 2
    assert got[0] is got[1]
    assert loaded == ["slow", "quick"]


def test_a_model_that_failed_is_loaded_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tries: list[str] = []

    def load(name: str | Path, on_progress: object) -> LanguageModel:
        tries.append(str(name))
        if not (tmp_path / "config.json").exists():
            raise ValueError(f"try {len(tries)} failed")
        return model_of(str(name))

    monkeypatch.setattr(loading, "load_language_model", load)
    for number in (1, 2):
        with pytest.raises(ValueError, match=f"^try {number} failed$"):
            shared_language_model(tmp_path)

    (tmp_path / "config.json").write_text("{}")
    assert shared_language_model(tmp_path) is shared_language_model(tmp_path)
    assert len(tries) == 3


def test_a_model_that_is_gone_and_one_beyond_the_memory_are_named_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for _ in range(2):
        with pytest.raises(ValueError, match="cannot be loaded"):
            shared_language_model(tmp_path / "none")

    def too_large(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(loading, "checked_arrays", too_large)
    with pytest.raises(ValueError, match="it needs more memory than is available"):
        shared_language_model(tmp_path)
