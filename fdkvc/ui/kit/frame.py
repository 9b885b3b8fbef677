"""What all pages share: their names, their frame, their style."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape

import streamlit as st
from streamlit.navigation.page import StreamlitPage

from fdkvc.charts.theme import DARK, LIGHT, Theme
from fdkvc.ui.kit.fields import enter, take_pending
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.style import STYLE

PAGES = (
    ("pages/step.py", "Step through", ":material/step_over:"),
    ("pages/compare.py", "Compare", ":material/compare:"),
    ("pages/dialogs.py", "Dialogs", ":material/forum:"),
    ("pages/answers.py", "Answers", ":material/smart_toy:"),
    ("pages/benchmark.py", "Benchmark", ":material/leaderboard:"),
    ("pages/ablation.py", "Ablation", ":material/tune:"),
    ("pages/policies.py", "Policies", ":material/rule:"),
    ("pages/about.py", "About", ":material/info:"),
)


_FRAMED = "framed"


def run_app() -> None:
    """Set the app up and run the page that was asked for."""
    page = _navigation()
    st.set_page_config(page_title=f"{page.title} · FD-KVC Lab")
    st.html(STYLE)
    st.session_state[_FRAMED] = True
    enter(page.url_path)
    page.run()


def _navigation() -> StreamlitPage:
    # First, or the browser would ask another machine for a picture of the page's own icon.
    st.set_page_config(page_title="FD-KVC Lab", page_icon="🧊", layout="wide")
    return st.navigation([st.Page(path, title=title, icon=icon) for path, title, icon in PAGES])


def enter_page() -> None:
    """Let the app run a page that was run without it, and take what the run before has left.

    A new server whose first request is for a page runs that page alone, as it knows of no
    navigation yet. Every page begins with this.
    """
    if _FRAMED not in st.session_state:
        _navigation()
        st.rerun()
    take_pending()


def page_theme() -> Theme:
    """Return the colours for the background that the reader has chosen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def heading(title: str, introduction: str) -> None:
    """Show a page's title and what it is for."""
    st.title(plain(title), anchor=False)
    st.markdown(plain(introduction))


@contextmanager
def side_by_side(name: str) -> Iterator[None]:
    """Open a row whose panels wrap where the window is narrow."""
    with st.container(horizontal=True, key=f"panels-{name}", gap="medium"):
        yield


@contextmanager
def panel(name: str) -> Iterator[None]:
    """Open one panel of a row."""
    with st.container(key=f"panel-{name}"):
        yield


def table_html(columns: Mapping[str, Sequence[str]], caption: str) -> str:
    """Return a plain table that scrolls; unlike a grid, it is up to date at once.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        The words of each column by its name.
    caption : str
        For those who hear the page.
    """
    names = "".join(f'<th scope="col">{escape(name)}</th>' for name in columns)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(word)}</td>' for word in row)}</tr>"
        for row in zip(*columns.values(), strict=True)
    )
    return (
        f'<div class="scrolls" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f"<table><thead><tr>{names}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def problems(sentences: Sequence[str]) -> None:
    """Say what is wrong, a sentence each."""
    for sentence in sentences:
        st.error(plain(sentence), icon=":material/error:")
