"""What all pages share: navigation, frame and style."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.navigation.page import StreamlitPage
from streamlit.runtime.scriptrunner import StopException

from fdkvc.charts.theme import DARK, LIGHT, ROOT, Theme
from fdkvc.core.parameters import Field
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import one_blas_thread
from fdkvc.ui import fields
from fdkvc.ui.address import scroll_to
from fdkvc.ui.markdown import plain

PAGES = (
    ("pages/start.py", "Start", ":material/home:"),
    ("pages/story.py", "Story", ":material/auto_stories:"),
    ("pages/step.py", "Step through", ":material/step_over:"),
    ("pages/compare.py", "Compare", ":material/compare:"),
    ("pages/dialogs.py", "Dialogs", ":material/forum:"),
    ("pages/answers.py", "Answers", ":material/smart_toy:"),
    ("pages/benchmark.py", "Benchmark", ":material/leaderboard:"),
    ("pages/policies.py", "Policies", ":material/rule:"),
    ("pages/about.py", "About", ":material/info:"),
)
"""The file, title and icon of each page; two in a row of the navigation."""

TITLES = {Path(path).stem: title for path, title, _ in PAGES}
"""The title of each page by its name, that of its file."""

FIRST = "pages/start.py"
"""The page at the address without a path."""

_FRAMED = "framed"

_FOLDER = Path(__file__).parent
_RULES = [(_FOLDER / name).read_text("utf-8") for name in ("page.css", "answer.css")]
STYLE = f"<style>{ROOT}{''.join(_RULES)}</style>"
"""Style sheet of every page."""

Drawn = TypeVar("Drawn")


def run_app() -> None:
    """Set the app up and run the requested page."""
    one_blas_thread()
    page = _navigation()
    st.set_page_config(page_title=f"{page.title} · FD-KVC Lab")
    st.html(STYLE)
    st.session_state[_FRAMED] = True
    page.run()


def _navigation() -> StreamlitPage:
    # First, or the browser would request a picture of the page's own icon from another server.
    st.set_page_config(page_title="FD-KVC Lab", page_icon="🧊", layout="wide")
    pages = []
    for path, title, icon in PAGES:
        first = path == FIRST
        address = "" if first else None
        pages.append(st.Page(path, title=title, icon=icon, url_path=address, default=first))
    return st.navigation(pages, expanded=True)


def _ensure_navigation() -> None:
    """Start over if only the page's script ran, not the app's.

    So does a new server if its first request is for a page: it has no navigation yet.
    """
    if _FRAMED not in st.session_state:
        _navigation()
        st.rerun()


@dataclass(frozen=True)
class Page:
    """A page while it is drawn."""

    name: str
    """The name of its file."""
    link: Mapping[str, str]
    """The parameters of a link that was just followed."""
    beside_title: DeltaGenerator
    """The container beside the title."""
    below_title: DeltaGenerator
    """The container below it."""

    def show_problems(self, sentences: Sequence[str]) -> None:
        """Say below the title what is wrong."""
        with self.below_title:
            fields.problems(*sentences)


@contextmanager
def page(
    name: str,
    purpose: str,
    link_fields: Sequence[Field] | Callable[[str, Mapping[str, str]], Sequence[Field]] = (),
    *,
    adopt: Callable[[str, Mapping[str, str]], list[str]] | None = None,
    staged: bool = False,
) -> Iterator[Page]:
    """Take over a link, show the title and errors, draw the page, and write its address.

    `link_fields` are the fields of the address, or return those of a link or else of the session.
    `adopt` applies a link to the session, and returns a sentence for each part that is not allowed.
    A `staged` page has a stage, which writes the address itself.
    """
    # 1. The link, before any widget is drawn: only then may it set their values.
    _ensure_navigation()
    link = fields.arriving_link(name)
    fields_of = link_fields if callable(link_fields) else lambda *_: link_fields
    wrong = (
        adopt(name, link) if adopt else fields.adopt_link(name, fields_of(name, link), link)
    )
    # 2. The head of the page, then the page itself.
    with st.container(horizontal=True, vertical_alignment="center", key="page-head"):
        st.title(plain(TITLES[name]), anchor=False)
        beside_title = st.container(
            horizontal=True, vertical_alignment="center", width="content"
        )
    st.container(key="page-purpose").markdown(plain(purpose))
    page_view = Page(name, link, beside_title, st.container())
    page_view.show_problems(wrong)
    # Streamlit forgets the fragments of the previous run only if this run ends normally. Otherwise
    # one that polls would write once more, into containers that no longer exist.
    with suppress(StopException):
        yield page_view
    if [*link] == ["section"]:  # followed for that section alone
        scroll_to(".stTabs")
    # 3. The address, with the values that the widgets have now.
    if not staged:
        fields.write_link(name, fields_of(name, {}))


def hide(container: str) -> None:
    """Hide the container with this key in this run.

    Where it is emptied instead, the browser may draw it empty and close a list that is open in it.
    """
    st.html(f"<style>.st-key-{container} {{ display: none }}</style>")


def page_theme() -> Theme:
    """Return the colours for the background that the reader has chosen."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def side_by_side(name: str) -> DeltaGenerator:
    """Return a row whose panels wrap where the window is narrow."""
    return st.container(horizontal=True, key=f"panels-{name}", gap="medium")


def panel(name: str) -> DeltaGenerator:
    """Return one panel of a row."""
    return st.container(key=f"panel-{name}")


def open_section_of(
    page: str, field: Field, sections: Mapping[str, Callable[[], Drawn]]
) -> Drawn:
    """Show a page's sections as tabs, and draw the one that is open, which the field names."""
    key = f"{page}/sections"
    names = {plain(label): name for name, label in field.labels.items()}

    def open_clicked() -> None:
        fields.hold(page, field, names[st.session_state[key]])

    name = fields.held(page, field)
    # Not as the default of `st.tabs`: a changed one makes new tabs, and a click on the old is lost.
    st.session_state[key] = plain(field.labels[name])
    tabs = st.tabs([*map(plain, names)], key=key, on_change=open_clicked)
    with tabs[[*field.labels].index(name)]:
        return sections[name]()


def show_grid(table: Grid | Mapping[str, Sequence[str]], caption: str) -> None:
    """Show a plain table, also of columns; unlike `st.dataframe`, it is up to date at once."""
    grid = table if isinstance(table, Grid) else Grid.of(table)
    st.html(grid.html(caption))
