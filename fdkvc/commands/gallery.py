"""A gallery: pages about the shipped results that a disk or any web server can serve."""

from collections.abc import Sequence
from html import escape

from fdkvc.core.recordings import Recording
from fdkvc.models.damage import shipped_damage
from fdkvc.models.report.answer import answer_page
from fdkvc.models.report.damage import recorded_page
from fdkvc.models.report.judged import TITLE, judged_report
from fdkvc.paper.report.document import papers_report
from fdkvc.player.scene import moment_html
from fdkvc.runs.page import css, page
from fdkvc.tour.chapters import HEALING, LOSING, TITLES, story


def gallery_files(recordings: Sequence[Recording]) -> dict[str, str]:
    """Return the pages by name; a failed call is searched for in the recordings."""
    pages = []
    for number, chapter in enumerate(story(recordings), start=1):
        title = TITLES[number - 1]
        words = " ".join(chapter.sentences)
        if chapter.run is None:
            text = recorded_page(shipped_damage(), title, words, (LOSING, HEALING))
        else:
            text = moment_html(chapter.run, title, chapter.turn, chapter.token, words)
        pages.append((f"scene{number}.html", text, title, words))
    answer = "An answer that fails, and how it is corrected"
    paper = "The paper's tables, figures and claims"
    missing = "Which evicted word would have made it right."
    pages += [
        ("answer.html", answer_page(answer), answer, missing),
        ("report.html", papers_report(recordings), paper, "Each with a verdict."),
        ("judged.html", judged_report(), TITLE, "By policy."),
    ]
    listed = ""
    for name, _, title, words in pages:
        listed += f'<li><a href="{name}">{escape(title)}</a><p>{escape(words)}</p></li>'
    words = "A language model remembers a dialog in a cache of limited size. What stays in it?"
    body = f"<main><h1>FD-KVC Lab</h1><p>{words}</p><ol>{listed}</ol></main>"
    index = page("FD-KVC Lab", body, css("gallery"))
    return {"index.html": index, **{name: text for name, text, *_ in pages}}
