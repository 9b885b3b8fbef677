"""Output that cannot be written ends any command with a sentence and exit code 2."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.test_command_line import COMMANDS as NAMES

ROOT = Path(__file__).parents[2]
COMMANDS = NAMES.replace("'", "").split(", ")

PRINTS = {
    "benchmark": "benchmark --dialogs 1 --scenarios shift --policies fifo",
    "sweep": "sweep --parameter gamma --values 0.8 --dialogs 1 --metrics retention --out {out}",
    "dialogs": "dialogs --policies fifo --budgets 32",
    "trace": "trace --schedule AB --out {out}",
}
"""Of the commands, those that soon have something to print; all print alike."""

FULL = "fdkvc: the output cannot be written: no space left on device\n"
CLOSED = "fdkvc: the output cannot be written: standard output is closed\n"


def shell(line: str, streams: str) -> subprocess.CompletedProcess[str]:
    command = f"exec {shlex.quote(sys.executable)} -m fdkvc {line} {streams}"
    return subprocess.run(
        ["sh", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("line", ["--help", *(f"{name} --help" for name in COMMANDS)])
def test_help_that_cannot_be_written_ends_in_a_sentence(line: str) -> None:
    for streams, sentence in ((">/dev/full", FULL), (">&-", CLOSED)):
        ended = shell(line, streams)
        assert (ended.returncode, ended.stderr) == (2, sentence), streams


@pytest.mark.long
@pytest.mark.parametrize("line", PRINTS.values(), ids=PRINTS)
def test_results_that_cannot_be_written_end_in_a_sentence(tmp_path: Path, line: str) -> None:
    ended = shell(line.format(out=tmp_path / "out"), ">/dev/full")
    assert ended.returncode == 2
    assert ended.stderr.endswith(FULL)
    assert "Traceback" not in ended.stderr
    if "{out}" in line:
        assert any((tmp_path / "out").iterdir())  # what goes into files is there


def test_nothing_runs_where_its_output_is_closed(tmp_path: Path) -> None:
    ended = shell(f"trace --out {tmp_path}/out", ">&-")
    assert (ended.returncode, ended.stderr) == (2, CLOSED)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("streams", ["2>&-", "2>/dev/full", "<&- 2>&-"])
def test_nobody_needs_to_hear_what_is_said_beside(tmp_path: Path, streams: str) -> None:
    ran = shell(f"trace --schedule AB --out {tmp_path}/out", streams)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.endswith(f"Written to {tmp_path}/out\n")
    for mistake in ("benchmark --budget 0", "lru", ""):
        ended = shell(mistake, streams)
        assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", "")
    assert shell("--help", f">&- {streams}").returncode == 2
    assert shell("--help", f">/dev/full {streams}").returncode == 2
