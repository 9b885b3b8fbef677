"""A gallery is a folder of pages that need nothing else, each sentence true of its run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fdkvc.commands.main import main
from fdkvc.conversations.formats import EXAMPLES, read_file
from fdkvc.conversations.lexical import lexical_recording
from fdkvc.engine.simulate import simulate
from fdkvc.policies import policy_named
from fdkvc.synthetic.draw import generate
from fdkvc.synthetic.scenarios import SCENARIOS
from tests.runs.test_handed_over import FOREIGN


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gallery")
    assert main(["report", "--gallery", str(folder)]) == 0
    return folder


@pytest.mark.long
def test_a_gallery_is_whole_small_and_asks_nobody(gallery: Path) -> None:
    pages = {path.name: path.read_text("utf-8") for path in gallery.iterdir()}
    index = pages["index.html"]

    scenes = [f"scene{at}.html" for at in range(1, 7)]
    reports = ["answer.html", "report.html", "judged.html"]
    assert re.findall('href="([^"]+)"', index) == [*scenes, *reports]
    assert pages.keys() == {"index.html", *scenes, *reports}
    assert sum(len(text.encode()) for text in pages.values()) < 10_000_000
    for name, text in pages.items():
        assert "default-src 'none'" in text
        if name != "index.html":  # whose links are those above
            assert not FOREIGN.search(text), name


def test_the_answer_fails_and_is_brought_back_by_the_word_it_needs(gallery: Path) -> None:
    page = (gallery / "answer.html").read_text("utf-8")
    nothing, restored, *_ = re.findall("<tr>(.+?)</tr>", page)[1:]
    assert "✗ city = " in nothing
    assert "<i>not San Jose</i>" in nothing
    assert restored.startswith('<th scope="row">San Jose<small>')
    assert "✓ city = San Jose" in restored
    assert "What will the weather be like there" in page


def kept_of(scenario: str, policy: str, turn: int, until: int) -> int:
    """Count the entries of the turns before `until` in the cache after a turn."""
    dialogs = generate(SCENARIOS[scenario], 1, 7)
    kept = simulate(policy_named(policy), dialogs, 56).kept_tokens[0, turn]
    return int(((kept >= 0) & (kept < 32 * until)).sum())


def test_the_sentences_are_true_of_their_runs(gallery: Path) -> None:
    index = (gallery / "index.html").read_text("utf-8")
    words = re.findall("<p>(.+?)</p>", index)

    starts = lexical_recording(read_file(EXAMPLES / "dialogues.json")[0]).starts
    first = f"has filled {starts[2]}, and turn 2 adds {starts[3] - starts[2]}"
    assert "has room for 56 entries" in words[1]
    assert first in words[1]
    assert "The policy H2O gives 50 % of its cache" in words[2]
    assert f"after turn 9, {kept_of('shift', 'h2o', 9, 3)} of its 56 entries" in words[2]
    held = kept_of("mixed", "fd-kvc", 6, 2)
    assert f"{held} entries about topic A are still" in words[3]
    assert "the call finds its argument" in words[5]
    assert "with the first 4 tokens protected" in words[6]
    page = (gallery / "scene6.html").read_text("utf-8")
    assert page.count('class="hurt"') == 2


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ([], "report needs --out FILE or --gallery DIR"),
        (["--gallery", "here", "--run", "x"], "takes no other options"),
        (["--gallery", "here", "--out", "one.html"], "takes no other options"),
    ],
)
def test_a_gallery_stands_alone(
    line: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *line]) == 2
    assert sentence in capsys.readouterr().err
