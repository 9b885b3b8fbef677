"""The story: one scene at a time, with the stage to step through it and something to try."""

from dataclasses import replace
from functools import lru_cache

import streamlit as st

from fdkvc.parameters import Field
from fdkvc.stage.story import HEALING, LOSING, TITLES, Chapter, story
from fdkvc.ui.answers.damage import show_recorded
from fdkvc.ui.dialogs.files import shipped_file
from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.frame import Page
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.stage.follow import open_on
from fdkvc.ui.step import stage

SCENE = Field(
    "Scene",
    "",
    name="scene",
    default="1",
    choices={f"{at}": title for at, title in enumerate(TITLES, start=1)},
)
MOVING = tuple(replace(field, follows=False) for field in sidebar.MOVING)
FIELDS = (SCENE, *MOVING)


@lru_cache(maxsize=1)
def story_chapters() -> list[Chapter]:
    """Return the scenes, made once."""
    file = shipped_file("dialogues")
    return story([file.recording(at) for at in range(len(file.transcripts))])


def show(shown: Page) -> None:
    """Show the scene that the address names, and buttons to the one before and after it."""
    page = shown.name
    at = int(held(page, SCENE))
    chapter = story_chapters()[at - 1]
    run = chapter.run
    if run is not None:
        open_on(page, shown.link, lambda: (chapter.turn, chapter.token), at)
        shown.show_problems(sidebar.keep_to_dialog(page, run.dialogs, shown.link))
    with shown.beside_title:
        for words, name, to in (("Previous scene", "back", at - 1), ("Next scene", "next", at + 1)):
            st.button(
                plain(words),
                key=f"{page}/{name}",
                type="primary" if name == "next" else "secondary",
                on_click=hold,
                args=(page, SCENE, f"{to}"),
                disabled=f"{to}" not in SCENE.choices,
            )
    with st.container(key="story"):
        st.header(Markdown("{} of {} · {}").format(at, len(TITLES), chapter.title), anchor=False)
        st.markdown(plain(" ".join(chapter.sentences)))
        st.page_link(
            f"pages/{chapter.page}.py",
            label=Markdown("**Try it:** {}").format(chapter.trial),
            icon=":material/play_circle:",
            query_params=chapter.link,
        )
    if run is None:
        show_recorded(page, (LOSING, HEALING))
        fields.link_writer(page, FIELDS, MOVING)()
        return
    stage.show(page, run)
    st.fragment(stage.answer)(page, run)
    write = fields.link_writer(page, FIELDS, MOVING)

    @st.fragment
    def follow() -> None:
        stage.follow(page, run)
        write()

    follow()
