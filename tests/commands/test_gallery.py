"""A gallery is a folder of pages that need nothing else, each sentence true of its run."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

import pytest

from fdkvc.commands.main import main
from fdkvc.tour.story import story_chapters
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
    assert "≠ city = " in nothing
    assert "<i>not San Jose</i>" in nothing
    assert restored.startswith('<th scope="row">San Jose<small>')
    assert "= city = San Jose" in restored
    assert "What will the weather be like there" in page


def test_the_index_has_the_sentences_of_the_story(gallery: Path) -> None:
    index = (gallery / "index.html").read_text("utf-8")
    scenes = story_chapters()[:6]

    assert all(escape(" ".join(scene.sentences)) in index for scene in scenes)
    page = (gallery / "scene6.html").read_text("utf-8")
    assert page.count('class="hurt"') == 2
