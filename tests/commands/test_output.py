"""Output that cannot be written ends any command with a sentence and exit code 2."""

import ast
import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdkvc.commands.main import main
from fdkvc.runs.console import visible
from tests.command_line import ROOT, ended

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
    return ended("sh", "-c", command)


@pytest.mark.parametrize("line", ["--help", "trace --help"])
def test_help_that_cannot_be_written_ends_in_a_sentence(line: str) -> None:
    for streams, sentence in ((">/dev/full", FULL), (">&-", CLOSED)):
        done = shell(line, streams)
        assert (done.returncode, done.stderr) == (2, sentence), streams


@pytest.mark.long
@pytest.mark.parametrize("line", PRINTS.values(), ids=PRINTS)
def test_results_that_cannot_be_written_end_in_a_sentence(tmp_path: Path, line: str) -> None:
    done = shell(line.format(out=tmp_path / "out"), ">/dev/full")
    assert done.returncode == 2
    assert done.stderr.endswith(FULL)
    assert "Traceback" not in done.stderr
    if "{out}" in line:
        assert any((tmp_path / "out").iterdir())  # what goes into files is there


def test_nothing_runs_where_its_output_is_closed(tmp_path: Path) -> None:
    done = shell(f"trace --out {tmp_path}/out", ">&-")
    assert (done.returncode, done.stderr) == (2, CLOSED)
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


UNSEEN = "\u202e\u200b\u2066\ufeff\u061c\u00ad\ufe0f\u115f\x1b[2J\x07\u2028\x85"
"""Characters that turn the direction of a line, take no place, or that a terminal obeys."""


@given(st.text())
def test_a_terminal_gets_only_what_it_shows(text: str) -> None:
    shown = visible(text)
    assert all(letter == "\n" or letter.isprintable() for letter in shown)
    assert not set(UNSEEN[:8]) & set(shown)
    assert visible(shown) == shown
    assert text.count("\n") == shown.count("\n")


def test_what_a_terminal_would_not_show_is_written_as_its_number() -> None:
    assert visible("gr\u00fc\u00df ± 3\n\u202efdp\u200b\x1b\u00a0.\U000e0001") == (
        "gr\u00fc\u00df ± 3\n\\u202efdp\\u200b\\x1b .\\U000e0001"
    )


def test_nothing_reaches_the_terminal_raw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    book = {"function": {"name": f"book{UNSEEN}", "arguments": '{"city": "Rome"}'}}
    said = [
        {"role": f"guest{UNSEEN}", "content": "I want to go to Rome. " + 20 * "Then more words. "},
        {"role": "assistant", "content": f"Fine{UNSEEN}.", "tool_calls": [book]},
    ]
    ids = f"one{UNSEEN}", f"two{UNSEEN}"
    chats = [{"id": chat_id, "messages": said} for chat_id in ids]
    chats.append({"id": f"three{UNSEEN}", "messages": [{"role": f"guest{UNSEEN}", "content": ""}]})
    file = Path(f"chats{UNSEEN[:4]}.json")
    file.write_text(json.dumps(chats))
    broken = Path(f"broken{UNSEEN[:4]}.json")
    broken.write_text(json.dumps([{"id": UNSEEN, "messages": [{"role": UNSEEN, "content": 3}]}]))
    shown, few = "", ("--policies", "fifo", "--budgets", "8")
    for line in (
        ["dialogs", "--dialogs", file, *few, "--tables", "--out", UNSEEN[:4]],
        ["dialogs", "--dialogs", broken],
        ["dialogs", "--dialogs", UNSEEN],
        ["dialogs", "--policies", UNSEEN],
        ["dialogs", UNSEEN],
        ["trace", "--out", f"{file}/{UNSEEN}"],
        ["repeat", UNSEEN],
        ["repeat", broken],
        [UNSEEN],
    ):
        main(list(map(str, line)))
        seen = capsys.readouterr()
        shown += seen.out + seen.err
    assert all(f"{name}\ufffd\\u200b" in shown for name in ("one", "book", "three"))
    assert "Written to \\u202e\\u200b\\u2066\\ufeff\n" in shown
    assert not {letter for letter in shown if letter != "\n" and not letter.isprintable()}
    assert not set(UNSEEN[:8]) & set(shown)


def test_only_the_console_prints() -> None:
    """Its functions escape what a terminal would not show."""
    prints = [
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "fdkvc").rglob("*.py")
        if "print(" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
        and "file" not in [keyword.arg for keyword in node.keywords]
    ]
    by_a_process = "fdkvc/models/numpy/render_template.py"  # whose output its parent reads
    assert {*prints} == {"fdkvc/runs/console.py", by_a_process}
