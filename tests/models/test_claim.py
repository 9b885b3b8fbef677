"""A policy in a file of one's own, against the leading ways."""

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pandas as pd
import pytest

from fdkvc.commands.main import main
from fdkvc.models.claim import LEADING, against, drawn, policy_in
from fdkvc.models.numpy import BUNDLED
from fdkvc.policies import POLICIES
from tests.command_line import ROOT

EXAMPLES = ROOT / "fdkvc" / "conversations" / "formats" / "examples"
GUIDE = (ROOT / "fdkvc" / "policies" / "README.md").read_text("utf-8")
NEAREST = GUIDE.partition("```python\n")[2].partition("```")[0]


@pytest.fixture(autouse=True)
def unregistered() -> Iterator[None]:
    yield
    POLICIES.pop("nearest", None)


@pytest.mark.long
def test_the_guides_command_compares_its_policy_with_every_leading_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = re.findall(r"^\$ python -m fdkvc (claim .*)$", GUIDE, re.MULTILINE)
    shutil.copy(EXAMPLES / "dialogues.json", tmp_path / "dialogues_001.json")
    (tmp_path / "nearest.py").write_text(NEAREST, "utf-8")
    with contextlib.chdir(tmp_path):
        code = main([*command.split(), "--model", str(BUNDLED)])
    assert code == 0, capsys.readouterr().err

    table = pd.read_csv(tmp_path / "claim.csv")
    for _, part in table.groupby(["policy", "metric"]):
        assert part.baseline.tolist() == [*LEADING]
    assert set(table.policy) == {"nearest", "sinks(nearest)"}
    assert set(table.verdict) == {"open"}  # two clusters have no interval
    assert "against" in capsys.readouterr().out


def test_a_difference_is_the_own_way_minus_the_other() -> None:
    ways = ("mine", *LEADING)
    rows = pd.DataFrame(
        [
            (way, 128, "kl", dialog, str(dialog), 0.5 - 0.1 * index + 0.01 * (dialog % 2), 10)
            for index, way in enumerate(ways)
            for dialog in range(8)
        ],
        columns=["policy", "budget", "metric", "dialog", "services", "value", "count"],
    )
    table = against(["mine"], rows).set_index("baseline")
    assert table.mean_diff.tolist() == pytest.approx([0.1 * index for index in range(1, 7)])
    assert set(table.verdict) == {"worse"}
    assert (table.own - table.other).tolist() == pytest.approx(table.mean_diff.tolist())


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("x = 1", "has none"),
        (f"{NEAREST}\n\nclass Other(Nearest):\n    key = 'other'\n", "Nearest, Other"),
        ("def", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Ends(BaseException): pass\nraise Ends", "Ends$"),
        ("class Mute(Exception):\n    def __str__(self): return 1 / 0\nraise Mute", "Mute$"),
        (NEAREST.replace('    key = "nearest"\n', ""), "Nearest in .* needs a key"),
    ],
)
def test_a_file_without_one_policy_is_refused_by_name(
    tmp_path: Path, content: str, named: str
) -> None:
    (file := tmp_path / "claimed.py").write_text(content, "utf-8")
    with pytest.raises(ValueError, match=named) as refused:
        policy_in(file)
    assert "claimed.py" in str(refused.value)


def test_what_is_no_file_of_python_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "claimed.txt").write_text(NEAREST, "utf-8")
    for name, said in (("claimed.txt", ".py"), ("missing.py", "missing.py")):
        assert main(["claim", str(tmp_path / name)]) == 2
        assert said in capsys.readouterr().err


TERMS = '{"similarity": turn.similarity(cache.token)}'


def scoring(terms: str) -> str:
    """Return a file whose policy returns other terms."""
    assert NEAREST.count(TERMS) == 1
    return NEAREST.replace(TERMS, terms)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (NEAREST.replace("def terms", "def score"), "does not define terms"),
        (NEAREST.replace('label = "Nearest"', "label = 1"), "needs a label"),
        (NEAREST.replace('("similarity",)', '("likeness",)'), r"looks_at = \('likeness',\)"),
        (NEAREST.replace('("similarity",)', "None"), "looks_at = None"),
        (scoring("{'s': cache.token * float('nan')}"), "turn 0 its scores must be finite"),
        (scoring("{'s': turn.similarity(cache.token)[0]}"), r"turn 0 .* must have \(4, 67\)"),
        (scoring("{'s': cache.token.astype(str)}"), "turn 0 .* a number for each entry"),
        (scoring("None"), "terms are None"),
        (scoring("{}"), "terms are {}"),
        (scoring("1 / 0"), r"claimed.py fails in line \d+, ZeroDivisionError"),
    ],
)
def test_a_policy_that_cannot_score_gets_one_sentence(
    tmp_path: Path, content: str, named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (file := tmp_path / "claimed.py").write_text(content, "utf-8")
    options = ["--budget", "16", "--count", "1", "--model", str(BUNDLED)]
    dialogs = str(EXAMPLES / "dialogues.json")
    assert main(["claim", str(file), "--dialogs", dialogs, *options]) == 2
    output = capsys.readouterr()
    (sentence,) = output.err.splitlines()[-1:]
    assert re.search(named, sentence)
    assert "earest" in sentence or "claimed.py" in sentence
    assert "Traceback" not in output.err


def test_dialogs_are_drawn_by_a_fixed_seed() -> None:
    class Dialog:
        def __init__(self, number: int) -> None:
            self.number, self.calls = number, [1] * (number % 2)

    dialogs = [*map(Dialog, range(20))]
    some: Any = drawn(cast("Any", dialogs), 6)
    assert some == drawn(cast("Any", dialogs), 6)
    assert len(some) == 6
    assert all(dialog.number % 2 for dialog in some)
    assert len(drawn(cast("Any", dialogs), 50)) == 10
