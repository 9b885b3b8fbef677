"""The tabs of the ablation page: a sweep, and a search; each with its own sidebar and link."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import streamlit as st

from fdkvc.parameters import Field
from fdkvc.ui.ablation import choices, search, sections
from fdkvc.ui.kit import fields, past
from fdkvc.ui.kit.fields import held, hold
from fdkvc.ui.kit.markdown import plain

SECTION = Field(
    "Section",
    "",
    name="section",
    default="sweep",
    choices={"sweep": "Sweep", "search": "Search instead of guess"},
    chosen=False,
)


def adopt_link(page: str, link: Mapping[str, str]) -> list[str]:
    """Let the page show what a link asks for; say what of it is not right, in sentences."""
    wrong = fields.adopt_link(page, fields_of(page, link), link)
    if link:
        st.session_state[_opened(page)] = SECTION.labels[held(page, SECTION)]
    return wrong


def fields_of(page: str, link: Mapping[str, str] | None = None) -> list[Field]:
    """Return all that the address says, of what a link asks for or the session holds."""
    searches = (link.get(SECTION.name) if link else held(page, SECTION)) == "search"
    of_section = search.link_fields if searches else choices.link_fields
    runs = search.runs_of(page).page if searches else page
    past_runs = [past.LINKED] if link else past.linked(runs, page)
    return [SECTION, *of_section(page, link), *past_runs]


def show(page: str) -> None:
    """Show the tab that is open."""
    shows: dict[str, Callable[[str], None]] = {"sweep": sections.show, "search": search.show}
    labels = SECTION.labels
    # Not as a default: one that changes makes new tabs of them, and the click on the old is lost.
    st.session_state.setdefault(_opened(page), labels[held(page, SECTION)])
    tabs = st.tabs([plain(labels[key]) for key in shows], key=_opened(page), on_change="rerun")
    for tab, (key, show_section) in zip(tabs, shows.items(), strict=True):
        if tab.open:
            hold(page, SECTION, key)
            with tab:
                show_section(page)


def _opened(page: str) -> str:
    """Return where the session holds the words of the open tab."""
    return f"{page}/sections"
