"""A gallery: pages about the shipped results that a disk or any web server can serve."""

from collections.abc import Sequence
from html import escape

from fdkvc.corpora.recordings import Recording
from fdkvc.explain.recorded_damage import shipped_damage
from fdkvc.report.answer import answer_page
from fdkvc.report.damage import recorded_page
from fdkvc.report.document import papers_report
from fdkvc.report.judged import TITLE, judged_report
from fdkvc.report.page import css, page
from fdkvc.report.scene import moment_scene, scene_html
from fdkvc.stage.story import HEALING, LOSING, story


def gallery_files(recordings: Sequence[Recording]) -> dict[str, str]:
    """Return the pages by name; a failed call is searched for in the recordings."""
    files, items = {}, []
    for at, chapter in enumerate(story(recordings), start=1):
        name, title, words = f"scene{at}.html", chapter.title, " ".join(chapter.sentences)
        if chapter.run is None:
            files[name] = recorded_page(shipped_damage(), title, words, (LOSING, HEALING))
        else:
            scene = moment_scene(chapter.run, title, chapter.turn, chapter.token, words)
            files[name] = scene_html(scene)
        items.append((name, title, words))
    again = "An answer that fails and is brought back"
    paper, shipped = "The paper's tables, figures and claims", "By policy."
    for name, text, title, words in (
        ("answer.html", answer_page(again), again, "Which evicted word would have made it right."),
        ("report.html", papers_report(recordings), paper, "Each with a verdict."),
        ("judged.html", judged_report(), TITLE, shipped),
    ):
        files[name] = text
        items.append((name, title, words))
    listed = "".join(
        f'<li><a href="{name}">{escape(title)}</a><p>{escape(words)}</p></li>'
        for name, title, words in items
    )
    words = "A language model remembers a dialog in a cache of limited size. What stays in it?"
    body = f"<main><h1>FD-KVC Lab</h1><p>{words}</p><ol>{listed}</ol></main>"
    return {"index.html": page("FD-KVC Lab", body, css("gallery")), **files}
