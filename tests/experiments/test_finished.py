"""A killed run goes on where it stopped, with the numbers of one that was not."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from conftest import NO_LLAMA, NO_TRANSFORMERS
from fdkvc.commands.main import main
from fdkvc.corpora.formats import EXAMPLES
from fdkvc.experiments import answers
from fdkvc.experiments.finished import Finished
from tests.models import write_model

ROOT = Path(__file__).parents[2]

KILLED = """
import os, signal, sys
from fdkvc.commands.main import main
from fdkvc.experiments import answers
from fdkvc.experiments.finished import Finished

class Fatal(Finished):
    def add(self, number, result):
        super().add(number, result)
        if len(self.results) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

import fdkvc.commands.answers as command
command.Finished, answers.CHUNK = Fatal, 1
main(sys.argv[1:])
"""
"""A command that is killed once two dialogs are finished."""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("killed")
    dialogs = [
        {**dialog, "dialogue_id": f"{turns}_{at}", "turns": dialog["turns"][:turns]}
        for turns in (4, 6)
        for at, dialog in enumerate(json.loads((EXAMPLES / "dialogues.json").read_text("utf-8")))
    ]
    (folder / "dialogs.json").write_text(json.dumps(dialogs), "utf-8")
    write_model(folder / "model", seed=5)
    options = ["--model", str(folder / "model"), "--dialogs", str(folder / "dialogs.json")]
    return [*options, "--policies", "fifo", "h2o", "--budgets", "12"]


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each dialog that is read."""
    names: list[str] = []
    work = answers.run_job

    def counting(settings: Any, model: Any, dialogs: Sequence[Any], *rest: Any, **more: Any) -> Any:
        names.extend(dialog.name for dialog in dialogs)
        return work(settings, model, dialogs, *rest, **more)

    monkeypatch.setattr(answers, "run_job", counting)
    return names


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_killed_run_goes_on_bit_for_bit(
    case: list[str], workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["answers", *case, "--workers", workers, "--out"]
    whole, killed = tmp_path / "whole", tmp_path / "new" / "killed"
    monkeypatch.setattr(answers, "CHUNK", 1)
    names = counted(monkeypatch) if workers == "1" else []  # a function of workers is importable
    assert main([*arguments, str(whole)]) == 0
    assert list(tmp_path.iterdir()) == [whole]
    every, names[:] = [*names], []

    line = [sys.executable, "-c", KILLED, *arguments, str(killed)]
    code = subprocess.run(line, cwd=ROOT, capture_output=True, check=False).returncode
    assert code == -signal.SIGKILL
    kept = killed.with_name("killed.unfinished")
    assert [*killed.parent.iterdir()] == [kept]
    numbers = {json.loads(line)[0] for line in kept.read_bytes().splitlines()[1:]}
    assert len(numbers) == 2

    assert main([*arguments, str(killed)]) == 0
    if workers == "1":
        assert names == [name for at, name in enumerate(every) if at not in numbers]
        assert len(names) == 2
    assert [*killed.parent.iterdir()] == [killed]
    for file in whole.glob("*.csv"):
        assert (killed / file.name).read_bytes() == file.read_bytes(), file.name


def interrupting(self: Finished, number: int, result: Any) -> None:
    """Add a result, and end the run."""
    ADD(self, number, result)
    raise KeyboardInterrupt


ADD = Finished.add


@pytest.mark.long
def test_live_goes_on(case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason=NO_TRANSFORMERS)
    names, ended = counted(monkeypatch), tmp_path / "ended"
    assert main(["live", *case, "--out", str(tmp_path / "whole")]) == 0
    for step in range(3):
        names.clear()
        monkeypatch.setattr(Finished, "add", interrupting if step < 2 else ADD)
        assert main(["live", *case, "--out", str(ended)]) == (130 if step < 2 else 0)
        assert len(names) == (1 if step < 2 else 2)
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "ended"}
    numbers = (tmp_path / "whole" / "answers.csv").read_bytes()
    assert (ended / "answers.csv").read_bytes() == numbers


@pytest.mark.long
@pytest.mark.smollm2
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_live_in_llama_goes_on_after_it_was_killed(
    case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("llama_cpp", reason=NO_LLAMA)
    names, ended = counted(monkeypatch), tmp_path / "ended"
    arguments = ["live", "--engine", "llama.cpp", "--model", "smollm2", *case[2:4], "--policies"]
    arguments += ["sink", "--budgets", "12", "--decides", "model", "--out"]
    assert main([*arguments, str(tmp_path / "whole")]) == 0
    assert len(names) == 4
    names.clear()

    line = [sys.executable, "-c", KILLED, *arguments, str(ended)]
    code = subprocess.run(line, cwd=ROOT, capture_output=True, check=False).returncode
    assert code == -signal.SIGKILL
    assert main([*arguments, str(ended)]) == 0
    assert len(names) == 2
    numbers = (tmp_path / "whole" / "answers.csv").read_bytes()
    assert (ended / "answers.csv").read_bytes() == numbers


def test_only_the_same_command_goes_on(
    case: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "CHUNK", 1)
    names = counted(monkeypatch)
    out = ["--workers", "1", "--out", str(tmp_path / "out")]
    for settings, again in (([], 0), ([], 1), (["--every", "5"], 0), (["--every", "5"], 1)):
        names.clear()
        monkeypatch.setattr(Finished, "add", interrupting)
        assert main(["answers", *case, *out, *settings]) == 130
        monkeypatch.setattr(Finished, "add", ADD)
        assert len(names) == 1, (settings, again)
        assert len(finished_numbers(tmp_path)) == again + 1


def finished_numbers(folder: Path) -> list[int]:
    lines = (folder / "out.unfinished").read_bytes().splitlines()[1:]
    return [json.loads(line)[0] for line in lines]


def test_a_line_that_was_cut_short_is_computed_again(tmp_path: Path) -> None:
    value = [[["näme", 0.1 + 0.2, float("inf"), 3]], []]
    finished = Finished(tmp_path / "out", "key")
    finished.add(0, value)
    finished.add(2, value)
    whole = finished.path.read_bytes()
    for end in range(len(whole), whole.index(b"\n[2"), -1):
        finished.path.write_bytes(whole[:end])
        again = Finished(tmp_path / "out", "key")
        assert again.results == ({0: value, 2: value} if end == len(whole) else {0: value})
        again.add(3, value)
        assert Finished(tmp_path / "out", "key").results == {**again.results, 3: value}
    assert Finished(tmp_path / "out", "other").results == {}
    finished.remove()
    assert not [*tmp_path.iterdir()]


def test_another_file_of_this_name_is_left_alone(tmp_path: Path) -> None:
    (path := tmp_path / "out.unfinished").write_text("my own notes")
    with pytest.raises(ValueError, match=r"out\.unfinished is not from an earlier run"):
        Finished(tmp_path / "out", "key")
    assert path.read_text() == "my own notes"
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"out\.unfinished: Is a directory"):
        Finished(tmp_path / "out", "key")
