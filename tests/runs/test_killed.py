"""Files of a run are whole, whatever ends the command that writes them, and when."""

import json
import signal
import sys
from pathlib import Path

import pytest

from fdkvc.runs.write import UNFINISHED
from tests.command_line import ended

OLD = {"a.csv": "old a", "c.csv": "old c", "notes.txt": "mine"}
NEW = {"a.csv": "new a", "b.csv": "new b", "c.csv": "new c"}

AT_EACH_STEP = """
import json, os, signal, sys
from pathlib import Path

from fdkvc import __main__ as program
from fdkvc.commands import main as command
from fdkvc.runs import endings, write

scratch, ending, target = Path(sys.argv[1]), signal.Signals[sys.argv[2]], sys.argv[3]
old, new = map(json.loads, sys.argv[4:])
places = {module.__file__ for module in (program, command, endings, write)}

step = 0
while not (scratch / "complete").exists():
    step += 1
    folder = scratch / str(step) / target
    folder.parents[target.count("/")].mkdir()
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

        def count(operation):
            global left
            left -= operation
            if operation and left == 0:
                os.kill(os.getpid(), ending)

        def audit(event, arguments):
            count(event == "open" or event.startswith(("os.", "shutil.")) and event != "os.kill")

        def trace(frame, event, argument):
            if frame.f_code.co_filename in places:
                count(event == "line")
                return trace

        def parser():
            sys.addaudithook(audit)
            for depth in (1, 2):
                sys._getframe(depth).f_trace = trace
            sys.settrace(trace)
            sys.exit(write.write_files(folder, new))

        command.build_parser = parser
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        code = program.run()
        sys.settrace(None)
        if left > 0:
            left = -1
            (scratch / "complete").touch()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Write files again and again, and end the process at the next of its lines and operations."""


def content(folder: Path) -> dict[str, str]:
    """Return the text of each file below a folder, and "" for each folder."""
    return {
        path.relative_to(folder).as_posix(): path.read_text() if path.is_file() else ""
        for path in folder.rglob("*")
    }


@pytest.mark.long
@pytest.mark.parametrize(
    ("target", "old"), [("out", OLD), ("out", {}), ("a/b", {})], ids=["old", "new", "below new"]
)
@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"])
def test_files_are_whole_at_whichever_step_a_command_ends(
    tmp_path: Path, ending: str, target: str, old: dict[str, str]
) -> None:
    """They are all old or all new, unless it is killed while it places them in an old folder.

    And only a command that left them as they were says that it was interrupted.
    """
    texts = json.dumps(old), json.dumps(NEW)
    done = ended(sys.executable, "-c", AT_EACH_STEP, tmp_path, ending, target, *texts)
    assert done.returncode == 0, done.stderr
    *codes, last = map(int, done.stdout.splitlines())
    assert len(codes) >= 60
    assert last == 0

    folders = {"a": "", target: ""} if "/" in target else {target: ""}
    before, after = (
        {**folders, **{f"{target}/{name}": text for name, text in files.items()}} if files else {}
        for files in (old, {**old, **NEW})
    )
    seen, number = [], signal.Signals[ending]
    for step, code in enumerate(codes, start=1):
        contents = content(tmp_path / str(step))
        if ending == "SIGKILL":
            assert code == -number
            contents = {name: text for name, text in contents.items() if UNFINISHED not in name}
        if old and ending == "SIGKILL":
            assert contents.items() <= before.items() | after.items(), (step, contents)
            contents = before if contents != after else after
        assert contents in (before, after), (step, contents)
        if ending != "SIGKILL":
            assert code == (128 + number if contents == before else 0), step
        seen.append(contents == before)
    assert seen == sorted(seen, reverse=True), "once they are new they stay so"
    assert set(seen) == {True, False}
    assert content(tmp_path / str(len(codes) + 1)) == after


AS_ON_WINDOWS = """
import os, shutil, signal, sys

from fdkvc.commands.main import main
from fdkvc.runs.write import write_files

open_ = os.open

def open_no_folder(path, *how, **more):
    if os.path.isdir(path):
        raise PermissionError(13, "Permission denied")
    return open_(path, *how, **more)

os.open, shutil._use_fd_functions = open_no_folder, False
sys.platform = "win32"
del signal.SIGHUP
for text in ("old", "new"):
    write_files(sys.argv[1], {"a.csv": text, "b.csv": text})
sys.exit(main(["--help"]))
"""


def test_files_are_written_where_there_are_no_open_folders_and_no_sighup(tmp_path: Path) -> None:
    assert ended(sys.executable, "-c", AS_ON_WINDOWS, tmp_path).returncode == 0
    assert content(tmp_path) == {"a.csv": "new", "b.csv": "new"}
