"""The story: one scene at a time, on a stage to step through, with something to try."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from html import escape

import streamlit as st

from fdkvc.conversations.page.files import shipped_file
from fdkvc.core.parameters import Field
from fdkvc.models.report.judged import changed_chart, judged_chart
from fdkvc.tour.chapters import TITLES, Chapter, closing, story
from fdkvc.ui import fields, sidebar
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import held, hold
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import Page, page_theme
from fdkvc.ui.glossary import WORDS, show_entries
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.step import stage

SCENE = Field(
    "Scene",
    name="scene",
    default="1",
    choices={f"{number}": title for number, title in enumerate(TITLES, start=1)},
)
FIELDS = (SCENE, *(replace(field, follows=False) for field in sidebar.LOOK))


@lru_cache(maxsize=1)
def story_chapters() -> list[Chapter]:
    """Return the scenes, made once."""
    file = shipped_file("dialogues")
    return [*story([*map(file.recording, range(len(file.transcripts)))]), closing()]


def lit(text: str, lights: Mapping[str, str]) -> str:
    """Return a text as HTML whose phrases light up what they name on the stage."""
    text = escape(text)
    for phrase, target in lights.items():
        mark = f'<mark tabindex="0" data-lights="{target}">{escape(phrase)}</mark>'
        text = text.replace(escape(phrase), mark, 1)
    return text


def show(page_view: Page) -> None:
    """Show the scene that the address names, and buttons to the one before and after it."""
    page = page_view.name
    number = int(held(page, SCENE))
    chapter = story_chapters()[number - 1]
    run = chapter.run
    if run is not None:
        open_on(page_view, run.dialogs, lambda: (chapter.turn, chapter.token), number)
    with page_view.beside_title:
        buttons = (("Back", "back", number - 1), ("Next scene", "next", number + 1))
        for words, name, target in buttons:
            st.button(
                plain(words),
                key=f"{page}/{name}",
                type="primary" if name == "next" else "secondary",
                on_click=hold,
                args=(page, SCENE, f"{target}"),
                disabled=f"{target}" not in SCENE.choices,
            )
    with st.container(key="story"):
        of_scenes = number, len(TITLES), TITLES[number - 1]
        st.header(Markdown("{} of {} · {}").format(*of_scenes), anchor=False)
        task = f"<p><b>{escape(chapter.task)}</b></p>" if chapter.task else ""
        st.html(f"<p>{lit(' '.join(chapter.sentences), chapter.lights)}</p>{task}")
    if run is not None:
        stage.show(page, run, chapter.shows)
    elif number == len(TITLES):
        show_chart(page, "judged", judged_chart(page_theme()))
        st.page_link(
            "pages/policies.py",
            label="The numbers behind this, on Policies",
            icon=":material/rule:",
        )
        show_entries(WORDS.items(), "Words that the other pages use")
    else:
        show_chart(page, "changed", changed_chart(page_theme()))
    with st.container(key="story-trial"):
        st.page_link(
            f"pages/{chapter.page}.py",
            label=Markdown("**Try it:** {}").format(chapter.trial),
            icon=":material/play_circle:",
            query_params=chapter.link,
        )
    write = fields.link_writer(page, FIELDS)

    # A step of the stage runs only this again, not the page.
    @st.fragment
    def follow() -> None:
        if run is not None:
            stage.follow(page, run)
        write()

    follow()
