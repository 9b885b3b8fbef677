"""The project as a package; `.ci/run` builds it and installs it elsewhere."""

import json
import os
import re
import runpy
import sys
import tomllib
from pathlib import Path, PurePath

import pytest

import fdkvc
from fdkvc.commands.kinds import read_run
from fdkvc.commands.main import main
from fdkvc.models.numpy import BUNDLED
from fdkvc.models.numpy.language_model import OWN_MODELS
from fdkvc.runs.record import FORMAT
from tests.command_line import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_one_version_everywhere(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"fdkvc {fdkvc.__version__}\n"
    changes = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert re.findall("^## (.+)$", changes, re.MULTILINE)[0] == fdkvc.__version__
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.findall("^version: (.+)$", citation, re.MULTILINE) == [fdkvc.__version__]


def test_every_data_file_of_the_package_is_included() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["fdkvc"]
    folder = ROOT / "fdkvc"
    files = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    data = [file for file in files if file.suffix not in (".py", ".pyc")]

    assert data
    for file in data:
        assert any(PurePath(file.name).match(PurePath(pattern).name) for pattern in patterns), file


def test_what_is_made_from_the_work_of_others_is_named_with_its_terms() -> None:
    notice = (ROOT / "NOTICE").read_text("utf-8")
    named = {
        (ROOT / folder / name).relative_to(ROOT)
        for folder, names in re.findall(r"^  ([\w/]+/)(\S.*)$", notice, re.MULTILINE)
        for name in names.split(", ")
    }
    assert len(named) > 8
    assert all((ROOT / path).is_file() for path in named)
    terms = re.compile("CC BY-SA|Apache|schema-guided", re.IGNORECASE)
    data = {".json", ".jsonl", ".safetensors", ".tsv", ".csv", ".npz"}
    for path in (path for path in (ROOT / "fdkvc").rglob("*") if path.suffix in data):
        if path.parent.name == "bundled" or terms.search(path.read_text("utf-8", "replace")):
            assert path.relative_to(ROOT) in named, path


def test_licences_are_shipped_and_said() -> None:
    project = PROJECT["project"]
    assert project["license"] == "MIT AND CC-BY-SA-4.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    assert (ROOT / "LICENSE").read_text("utf-8").startswith("MIT License\n\nCopyright (c) ")
    assert "https://creativecommons.org/licenses/by-sa/4.0/" in (ROOT / "NOTICE").read_text("utf-8")
    assert "CONTRIBUTING.md" in (ROOT / "MANIFEST.in").read_text("utf-8").split()


def test_dependencies_are_those_of_the_requirements_files() -> None:
    dynamic = PROJECT["tool"]["setuptools"]["dynamic"]
    listed = [dynamic["dependencies"], *dynamic["optional-dependencies"].values()]
    named = {name for requirements in listed for name in requirements["file"]}

    assert named == {path.name for path in ROOT.glob("requirements*.txt")} - {
        "requirements-dev.txt",  # the app's and the tests' together
        "requirements-smollm2.txt",  # installed without what its package asks for
    }


def test_the_app_is_started_on_its_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ["run", str(ROOT / "app.py")]
    monkeypatch.setattr(sys, "argv", ["fdkvc"])
    monkeypatch.setenv(OWN_MODELS, "")

    def serve(module: str, **_: object) -> None:
        assert module == "streamlit"
        raise SystemExit(3)

    monkeypatch.setattr(runpy, "run_module", serve)

    assert main(["app", "--port", "8765"]) == 3  # as the server ended
    assert sys.argv[1:] == [*run, "--server.port", "8765"]
    assert os.environ[OWN_MODELS] == ""
    assert main(["app", "--model", str(BUNDLED), str(ROOT)]) == 3
    assert sys.argv[1:] == run
    assert os.environ[OWN_MODELS] == f"{BUNDLED}\n{ROOT}"

    assert main(["app", "--model", "no-such-folder"]) == 2
    assert "the model 'no-such-folder' does not exist" in capsys.readouterr().err

    assert main(["app", "--port", "0"]) == 2
    assert "port is 0, but must be" in capsys.readouterr().err


def test_the_table_of_formats_has_their_versions() -> None:
    guide = (ROOT / "fdkvc" / "commands" / "README.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| (.+?) \| ([\d.]+) \|", guide.split("| format |")[1], re.MULTILINE))

    assert [*rows.values()] == [str(FORMAT), *([fdkvc.__version__] * 3)]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests" / "earlier_runs").iterdir()), ids=lambda p: p.name
)
def test_runs_of_earlier_versions_are_repeated(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["repeat", str(path / "run.json")]) == 0, capsys.readouterr().err
    assert "the numbers are the same" in capsys.readouterr().out


def test_a_run_of_a_later_format_is_refused_in_a_sentence() -> None:
    (first, *_) = sorted((ROOT / "tests" / "earlier_runs").iterdir())
    run = json.loads((first / "run.json").read_text("utf-8"))

    with pytest.raises(ValueError, match=f"format 3, but version {fdkvc.__version__} reads"):
        read_run(json.dumps({**run, "format": 3}))
