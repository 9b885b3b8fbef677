"""Files of a run are all old or all new, whatever ends the command that writes them, and when."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fdkvc.files.write import check_folder

ROOT = Path(__file__).parents[2]

OLD = {"a.csv": "old a", "c.csv": "old c", "notes.txt": "mine"}
NEW = {"a.csv": "new a", "b.csv": "new b", "c.csv": "new c"}

AT_EACH_STEP = """
import json, os, signal, sys
from pathlib import Path

from fdkvc.commands import main as command
from fdkvc.files.write import write_files

scratch, ending = Path(sys.argv[1]), signal.Signals[sys.argv[2]]
old, new = map(json.loads, sys.argv[3:])
command.build_parser = lambda: sys.exit(write_files(folder, new))

step = 0
while True:
    step += 1
    folder = scratch / str(step)
    if old:
        folder.mkdir()
        for name, text in old.items():
            (folder / name).write_text(text)
    child = os.fork()
    if child == 0:
        # As a terminal would start it, also where these tests were started in the background.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        left = step

        def audit(event, arguments):
            global left
            if event == "open" or event.startswith(("os.", "shutil.")) and event != "os.kill":
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), ending)

        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.addaudithook(audit)
        os._exit(command.main([]))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps(code), flush=True)
    if code == 0:
        break
"""
"""Write files again and again, and end the process at the next of its operations on files."""


def content(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()} if folder.exists() else {}


@pytest.mark.long
@pytest.mark.parametrize("old", [OLD, {}], ids=["into a folder", "into a new one"])
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_files_are_all_old_or_all_new_at_whichever_step_a_command_ends(
    tmp_path: Path, ending: str, old: dict[str, str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", AT_EACH_STEP, tmp_path, ending, json.dumps(old), json.dumps(NEW)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    *codes, last = map(json.loads, ended.stdout.splitlines())
    number = signal.Signals[ending]
    assert set(codes) == {-number if ending == "SIGKILL" else 128 + number}
    assert len(codes) >= 15
    assert last == 0

    seen = []
    for step in range(1, len(codes) + 1):
        folder = tmp_path / str(step)
        if ending == "SIGKILL":
            check_folder(folder)  # as the next run does before it begins
        found = content(folder)
        assert found in (old, {**old, **NEW}), (step, found)
        assert folder.exists() == bool(found) or ending == "SIGKILL"
        seen.append(found == old)
    assert seen == sorted(seen, reverse=True), "once they are new they stay so"
    assert set(seen) == {True, False}
    assert content(tmp_path / str(len(codes) + 1)) == {**old, **NEW}


def test_two_commands_write_to_a_folder_one_after_the_other(tmp_path: Path) -> None:
    code = (
        "import sys; from fdkvc.files.write import write_files\n"
        "for _ in range(50): write_files(sys.argv[1], {'a': sys.argv[2], 'b': sys.argv[2]})"
    )
    writers = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, name], cwd=ROOT) for name in "12"
    ]
    assert [writer.wait() for writer in writers] == [0, 0]
    found = content(tmp_path)
    assert found in ({"a": "1", "b": "1"}, {"a": "2", "b": "2"})


AS_ON_WINDOWS = """
import os, shutil, signal, sys

from fdkvc.commands.main import main
from fdkvc.files.write import write_files

open_ = os.open

def open_no_folder(path, *how, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied")
    return open_(path, *how, **more)

os.open, shutil._use_fd_functions = open_no_folder, False
sys.platform, sys.modules["fcntl"] = "win32", None
del signal.SIGHUP
for text in ("old", "new"):
    write_files(sys.argv[1], {"a.csv": text, "b.csv": text})
sys.exit(main(["--help"]))
"""


def test_files_are_written_where_there_are_no_locks_no_open_folders_and_no_sighup(
    tmp_path: Path,
) -> None:
    subprocess.run([sys.executable, "-c", AS_ON_WINDOWS, tmp_path], cwd=ROOT, check=True)
    assert content(tmp_path) == {"a.csv": "new", "b.csv": "new"}
