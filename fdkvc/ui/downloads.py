"""Files of a view or of a run, made when a person downloads them; and charts."""

import mimetypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from fdkvc.charts.theme import Spec
from fdkvc.runs.base import Run
from fdkvc.runs.export import README, as_zip, meanings, with_readme
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain


def show_chart(page: str, name: str, chart: Spec) -> None:
    """Show a chart with its data, which its toolbar saves as a picture."""
    st.vega_lite_chart(chart, key=f"{page}/{name}", width="stretch")


def offer_file(
    key: str,
    name: str,
    content: str | bytes | Callable[[], str | bytes],
    *,
    label: str,
    icon: str = "download",
    **looks: Any,
) -> None:
    """Offer a file under a label; a function is called at the click.

    It then runs outside the session's script, and must not read the session. `looks` are for
    `st.download_button`.
    """
    st.download_button(
        plain(label),
        content,
        name,
        mimetypes.guess_type(name)[0],
        key=key,
        icon=f":material/{icon}:",
        # A download does not run the page again.
        on_click="ignore",
        **looks,
    )


def offer_zip(
    key: str,
    name: str,
    files: Callable[[], Mapping[str, str | bytes]],
    label: str = "Everything as a ZIP",
    **looks: Any,
) -> None:
    """Offer files as one archive with a README, made at the click."""

    def packed() -> bytes:
        content = files()
        return as_zip(content if README in content else with_readme("Files of a run", content))

    offer_file(key, name, packed, label=label, icon="folder_zip", **looks)


def show_files(
    page: str,
    files: Callable[[], Mapping[str, str | bytes]],
    names: Iterable[str],
    stem: str,
) -> None:
    """Offer files, made together at the click: all in one ZIP, and each with what it contains.

    Their names begin with a `stem` that says which run they are from.
    """
    help = "All files, and what they mean."
    offer_zip(f"{page}/zip", f"{stem}.zip", files, type="primary", help=help)
    for name in names:
        with st.container(horizontal=True, vertical_alignment="center"):
            # The name is bound now: the loop has moved on when the button is clicked.
            content = partial(lambda name: files()[name], name)
            key = f"{page}/file/{name}"
            offer_file(key, f"{stem}-{name}", content, label=name, width=260)
            st.caption(plain(meanings()["files"].get(name, "")))


@cached
def files_of(run: Run) -> Mapping[str, str]:
    """Return the files of a run, made once."""
    return run.files
