"""A policy and a format of another installed package work like the built-in ones."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fdkvc.conversations.formats import FORMATS
from fdkvc.conversations.formats import register as register_format
from fdkvc.core import extensions
from fdkvc.core.extensions import register_installed
from fdkvc.policies import POLICIES, register
from fdkvc.policies.fifo import Fifo
from fdkvc.runs.endings import ENDINGS
from tests.command_line import ROOT, ended

PAGES = """
import json, sys
from tests.app_pages import open_page
found = {}
for page, link in json.loads(sys.argv[1]).items():
    app = open_page(page, **link)
    for switch in app.toggle if page == "policies" else ():
        app = switch.set_value(True).run()
    assert not app.error, app.error[0].value
    found[page] = "Nearest" in str(app)
print(json.dumps(found))
"""


def blocks(document: str, language: str, word: str) -> str:
    """Return the one code block of a guide that contains this word."""
    text = (ROOT / document).read_text(encoding="utf-8")
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (code,) = (block for block in blocks if word in block)
    return str(code)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Install the packages of both guides, as an installer would leave them."""
    code = {
        "nearest": ("fdkvc/policies/README.md", "class Nearest"),
        "tab_dialogs": ("fdkvc/conversations/README.md", "FORMAT"),
    }
    for name, (document, word) in code.items():
        (tmp_path / f"{name}.py").write_text(blocks(document, "python", word))
        project = tomllib.loads(blocks(document, "toml", name))["project"]
        ((group, points),) = project["entry-points"].items()
        about = tmp_path / f"{name}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"[{group}]", *(f"{key} = {value}" for key, value in points.items())]
        (about / "entry_points.txt").write_text("\n".join(lines))
    return tmp_path


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return ended(sys.executable, *arguments, folder=folder, found_in=(folder, ROOT))


@pytest.mark.long
def test_the_guides_packages_work_in_commands_and_their_workers(installed: Path) -> None:
    (installed / "own.tsv").write_text("User\tbook a table\nSystem\twhere do you want it\n")
    policies = ("--policies", "fifo", "sinks(nearest, n=1)", "--out", "out")
    options = (*policies, "--dialogs", "40", "--workers", "2")

    drawn = run(installed, "-m", "fdkvc", "benchmark", *options)
    said = run(installed, "-m", "fdkvc", "dialogs", "--dialogs", "own.tsv", *policies[:3])

    assert drawn.returncode == 0, drawn.stderr
    assert "sinks(nearest" in (installed / "out/summary.csv").read_text()
    assert said.returncode == 0, said.stderr
    assert "1 dialog" in said.stdout


@pytest.mark.long
def test_the_guides_policy_works_on_pages(installed: Path) -> None:
    links = {
        "step": {"policy": "nearest"},
        "compare": {"policies": "fifo,nearest"},
        "policies": {},
        "benchmark": {"section": "ablation"},
    }

    done = run(installed, "-c", PAGES, json.dumps(links))

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["policies"]


@pytest.mark.long
def test_an_extension_that_fails_is_left_out_with_a_warning(installed: Path) -> None:
    (installed / "nearest.py").write_text("raise OSError('no disk')")
    (installed / "tab_dialogs.py").write_text("import sys; sys.exit(0)")

    done = run(installed, "-m", "fdkvc", "benchmark", "--policies", "nearest", "--out", "out")

    assert done.returncode == 2
    assert "'nearest' is left out, OSError: no disk" in done.stderr
    assert "policy 'nearest' is unknown" in done.stderr
    done = run(installed, "-m", "fdkvc", "dialogs", "--dialogs", "nowhere")
    assert done.returncode == 2
    assert "is left out, SystemExit: 0" in done.stderr
    assert "the file 'nowhere' cannot be read" in done.stderr


class Unusual(BaseException):
    """What is no `Exception`."""


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("raise SystemExit('bye')", "SystemExit: bye"),
        ("import sys; sys.exit(0)", "SystemExit: 0"),
        ("exit()", "SystemExit: None"),
        ("import os; os._exit(0)", r"SystemExit: os._exit(0,)"),
        ("import os; os.abort()", "SystemExit: os.abort()"),
        ("from tests.core.test_extensions import Unusual; raise Unusual('odd')", "Unusual: odd"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt: "),
        ("raise GeneratorExit", "GeneratorExit: "),
    ],
)
def test_what_ends_the_process_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, reason: str
) -> None:
    (tmp_path / "ending_one.py").write_text(code)
    points = [
        EntryPoint("ends", "ending_one:P", "a.group"),
        EntryPoint("works", "fdkvc.policies.fifo:Fifo", "a.group"),
    ]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    monkeypatch.syspath_prepend(tmp_path)
    exit_now = os._exit
    registered: list[object] = []

    with pytest.warns(UserWarning, match="is left out") as caught:
        register_installed("a.group", registered.append)

    assert str(caught.pop().message) == f"a.group 'ends' is left out, {reason}"
    assert registered == [Fifo]
    assert os._exit is exit_now


def test_a_signal_while_an_extension_is_imported_ends_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def signalled(policy: object) -> None:
        ENDINGS(signal.SIGTERM)

    for name in ("number", "is_writing", "is_complete"):
        monkeypatch.setattr(ENDINGS, name, 0)
    points = [EntryPoint("slow", "fdkvc.policies.fifo:Fifo", "a.group")]
    monkeypatch.setattr(extensions, "entry_points", lambda group: points)
    with pytest.raises(KeyboardInterrupt):
        register_installed("a.group", signalled)


@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        (type("Taken", (Fifo,), {"key": "h2o"}), ValueError, "'h2o' is taken"),
        (type("Odd", (Fifo,), {"key": "a(b)"}), ValueError, "'a(b)' is not allowed"),
        (type("None", (Fifo,), {}), TypeError, "with its own key"),
        (Fifo(), TypeError, "not a class derived from Policy"),
    ],
)
def test_what_is_no_policy_is_not_registered(kind: type, error: type, words: str) -> None:
    before = dict(POLICIES)
    with pytest.raises(error, match=re.escape(words)):
        register(kind)
    assert before == POLICIES
    assert register(Fifo) is Fifo  # once more is no mistake


@pytest.mark.parametrize("changed", ["key", "field"])
def test_a_format_takes_no_others_place(changed: str) -> None:
    by_field = (row for row in FORMATS.values() if row.field and row.recognizes is None)
    first = next(by_field)
    new = replace(first, **{"key": "new", "field": "new"} | {changed: getattr(first, changed)})
    with pytest.raises(ValueError, match=f"format {changed} '{getattr(first, changed)}' is taken"):
        register_format(new)
    assert register_format(first) is first  # once more is no mistake
