"""A killed run goes on where it stopped, with the numbers of one that was not."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from conftest import NO_TRANSFORMERS
from fdkvc.commands.main import FILES, main
from fdkvc.commands.parser import build_parser
from fdkvc.conversations.formats import EXAMPLES
from fdkvc.models import answers
from fdkvc.runs.finished import Finished
from tests.command_line import ROOT, ended
from tests.language_models import write_model
from tests.refusals import refused

CAPTURED = pytest.CaptureFixture[str]

KILLED = """
import os, signal, sys
from fdkvc.commands.main import main
from fdkvc.models import answers
from fdkvc.runs.finished import Finished

class Fatal(Finished):
    def add(self, number, result):
        super().add(number, result)
        if len(self.results) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

from fdkvc.runs import finished
finished.Finished, answers.CHUNK = Fatal, 1
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


@pytest.mark.long
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

    done = ended(sys.executable, "-c", KILLED, *arguments, killed)
    assert done.returncode == -signal.SIGKILL
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
    monkeypatch.setattr(answers, "CHUNK", 1)
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
        lines = (tmp_path / "out.unfinished").read_bytes().splitlines()[1:]
        assert len([json.loads(line)[0] for line in lines]) == again + 1


@contextmanager
def finished_of(out: Path, key: str = "key") -> Iterator[Finished]:
    """Yield what a run has of an earlier one, and end it before it is done."""
    with suppress(KeyboardInterrupt), Finished(out) as finished:
        finished.take_over(key)
        yield finished
        raise KeyboardInterrupt


def test_a_line_that_was_cut_short_is_computed_again(tmp_path: Path) -> None:
    value = [[["näme", 0.1 + 0.2, float("inf"), 3]], []]
    with finished_of(tmp_path / "out") as finished:
        finished.add(0, value)
        finished.add(2, value)
    whole = finished.path.read_bytes()
    for end in range(len(whole), whole.index(b"\n[2"), -1):
        finished.path.write_bytes(whole[:end])
        with finished_of(tmp_path / "out") as again:
            assert again.results == ({0: value, 2: value} if end == len(whole) else {0: value})
            again.add(3, value)
        with finished_of(tmp_path / "out") as once_more:
            assert once_more.results == {**again.results, 3: value}
    with finished_of(tmp_path / "out", "other") as other:
        assert other.results == {}
    assert finished.path.read_bytes().startswith(whole[:end]), "kept until another job is finished"
    with Finished(tmp_path / "out"):
        pass
    assert [*tmp_path.iterdir()] == [finished.path], "another command leaves what it did not read"
    with Finished(tmp_path / "out") as ended:
        ended.take_over("key")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "left",
    [
        *(b"", b"fdk", b"fdkvc ", b"fdkvc 12", b"fdkvc 12\n[3, [[], []]]"),
    ],
)
def test_what_an_earlier_run_left_never_blocks_the_next(tmp_path: Path, left: bytes) -> None:
    (tmp_path / "out.unfinished").write_bytes(left)
    with finished_of(tmp_path / "out") as finished:
        assert finished.results == {}
        finished.add(1, [2])
    with finished_of(tmp_path / "out") as again:
        assert again.results == {1: [2]}


def test_a_run_that_finished_nothing_leaves_nothing(tmp_path: Path) -> None:
    with finished_of(tmp_path / "new" / "folder" / "out"):
        assert (tmp_path / "new" / "folder" / "out.unfinished").exists()
    assert not [*tmp_path.iterdir()]


def writing_commands() -> list[str]:
    commands = build_parser().commands.items()
    return [name for name, parser in commands if "--out" in parser._option_string_actions]


@pytest.mark.parametrize("command", writing_commands())
def test_a_second_run_is_told_at_its_start_that_another_writes_there(
    tmp_path: Path, capsys: CAPTURED, command: str
) -> None:
    """Before it reads anything: what else it is given does not exist."""
    parser = build_parser().commands[command]
    required = [action for action in parser._actions if action.required and action.dest != "out"]
    given = [[*action.option_strings[:1], "9"] for action in required]
    name = f"out{FILES.get(command, '')}"
    (tmp_path / f"link{name}").symlink_to(tmp_path / name)
    with finished_of(tmp_path / name) as finished:
        finished.add(0, [])
        for path in (tmp_path / name, tmp_path / f"link{name}"):
            line = [command, *chain(*given), "--out", str(path)]
            assert main(line) == 2
            assert f"another run writes to {tmp_path / name} now" in capsys.readouterr().err
        finished.add(1, [])
    with finished_of(tmp_path / name) as again:
        assert again.results == {0: [], 1: []}


def test_every_command_that_writes_is_among_them() -> None:
    known = set(build_parser().commands)
    assert {*writing_commands()} == known - {"app", "repeat"}


HELD = """
import sys
from fdkvc.commands.main import main
from fdkvc.paper import commands

def wait(*_):
    print("begun", flush=True)
    sys.stdin.read()

commands.check_values = wait
main(sys.argv[1:])
"""
"""A command that never gets to its end."""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="this system has no SIGKILL")
def test_two_processes_do_not_write_to_one_folder_unless_the_first_was_killed(
    tmp_path: Path, capsys: CAPTURED
) -> None:
    command = ["trace", "--schedule", "AB", "--out", str(tmp_path / "out")]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", HELD, *command], cwd=ROOT, **pipes) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"begun\n"
        assert main(command) == 2
        assert "another run writes to" in capsys.readouterr().err
        first.kill()
    assert main(command) == 0
    assert [*tmp_path.iterdir()] == [tmp_path / "out"]


NO_LOCKS = Mock(LOCK_EX=2, LOCK_NB=4, flock=Mock(side_effect=OSError(errno.ENOLCK, "")))


@pytest.mark.parametrize("module", [NO_LOCKS, None], ids=["this file system", "Windows"])
def test_where_nothing_can_be_locked_a_sentence_says_so_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: CAPTURED, module: Mock | None
) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", module)
    assert main(["trace", "--schedule", "AB", "--out", str(tmp_path / "out")]) == 0
    assert "out.unfinished cannot be locked: " in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [tmp_path / "out"]


@pytest.mark.parametrize("reason", [errno.EROFS, errno.EACCES, errno.ENAMETOOLONG])
def test_where_nothing_can_be_written_beside_the_folder_the_file_is_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: int
) -> None:
    (tmp_path / "out").mkdir()
    opened = Path.open

    def refuse(path: Path, *how: Any, **more: Any) -> Any:
        if path.parent == tmp_path:
            raise OSError(reason, os.strerror(reason), str(path))
        return opened(path, *how, **more)

    monkeypatch.setattr(Path, "open", refuse)
    with finished_of(tmp_path / "out") as finished:
        finished.add(0, [])
    assert finished.path == tmp_path / "out" / "out.unfinished"
    with finished_of(tmp_path / "out") as again:
        assert again.results == {0: []}
    with refused(r"new\.unfinished' cannot be written: "):
        Finished(tmp_path / "new")


def test_another_file_of_this_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "out.unfinished"
    for text in ("my own notes", "\nmy own notes", "[1, 2]", "fdk!", "\n\n["):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"out\.unfinished is not from an earlier run"):
            Finished(tmp_path / "out")
        assert path.read_text() == text
    path.unlink()
    for make in (path.mkdir, partial(os.mkfifo, path)):
        make()
        with pytest.raises(ValueError, match=r"out\.unfinished is not from an earlier run"):
            Finished(tmp_path / "out")
        (path.rmdir if path.is_dir() else path.unlink)()
