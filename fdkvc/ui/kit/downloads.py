"""Downloads: tables as CSV, charts as SVG and PNG; each is made at the click."""

import mimetypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import product
from typing import Any, Literal

import streamlit as st

from fdkvc.charts.picture import picture
from fdkvc.charts.sweep import PICK
from fdkvc.charts.theme import Spec, Theme
from fdkvc.files.export import as_zip
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.markdown import plain

PICTURE_WIDTH = 720

Kind = Literal["svg", "png"]
KINDS: tuple[Kind, ...] = ("svg", "png")


def show_address(uploaded: bool = False) -> None:
    """Show what the page's address reopens; it does not carry an `uploaded` file."""
    once = " once the same file is opened there" if uploaded else ""
    st.caption(plain(f"The address of this page reopens exactly this view{once}."))


def shown_charts(page: str) -> dict[str, Spec]:
    """Return where a page keeps the charts that it shows, by name; the same in every run."""
    charts: dict[str, Spec] = st.session_state.setdefault(f"{page}/charts", {})
    return charts


def show_chart(page: str, name: str, chart: Spec, **options: Any) -> None:
    """Show a chart with its data, and store it for the pictures that are downloaded."""
    shown_charts(page)[name] = chart
    st.vega_lite_chart(chart, key=f"{page}/{name}", width="stretch", **options)


def show_pickable(page: str, name: str, chart: Spec) -> None:
    """Show a chart whose marks are settings; store which was clicked last, and on which chart.

    The session holds them under ``page/picked`` and ``page/picked-on``.
    """

    def pick() -> None:
        for clicked in st.session_state[f"{page}/{name}"].selection.get(PICK, []):
            st.session_state[f"{page}/picked"] = clicked["setting"]
            st.session_state[f"{page}/picked-on"] = name

    show_chart(page, name, chart, on_select=pick)


def offer_file(
    key: str,
    name: str,
    content: str | bytes | Callable[[], str | bytes],
    *,
    label: str = "",
    icon: str = "download",
    **looks: Any,
) -> None:
    """Offer a file under its name or a label; a function is called at the click.

    That is outside of the session's script: it must not read the session. `looks` are for
    `st.download_button`.
    """
    st.download_button(
        plain(label or name),
        content,
        name,
        mimetypes.guess_type(name)[0],
        key=key,
        icon=f":material/{icon}:",
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
    """Offer files as one archive, made at the click."""
    offer_file(key, name, lambda: as_zip(files()), label=label, icon="folder_zip", **looks)


def offer_one(key: str, name: str, files: Callable[[], Mapping[str, str]], **looks: Any) -> None:
    """Offer one of several files, which are made together at the click."""
    offer_file(key, name, lambda: files()[name], **looks)


def download_files(page: str, files: Callable[[], Mapping[str, str]], names: list[str]) -> None:
    """Offer each of these files."""
    for name in names:
        offer_one(f"{page}/download/{name}", name, files, icon="table")


def download_pictures(page: str, charts: Mapping[str, Spec], keys: Iterable[str]) -> None:
    """Offer the charts of these keys as SVG and PNG, as they are at the click."""
    theme = page_theme()
    for key, kind in product(keys, KINDS):
        name = f"{picture_name(key)}.{kind}"
        draw = partial(_drawn, charts, key, theme, kind)
        offer_file(f"{page}/download/{name}", name, draw, icon="image")


def pictures(charts: Mapping[str, Spec], theme: Theme) -> dict[str, bytes]:
    """Draw charts as SVG and PNG."""
    return {
        f"figures/{picture_name(key)}.{kind}": _drawn(charts, key, theme, kind)
        for key, kind in product(charts, KINDS)
    }


def picture_name(key: str) -> str:
    """Return the name of a chart's file."""
    return key.rsplit("/", 1)[-1]


def _drawn(charts: Mapping[str, Spec], key: str, theme: Theme, kind: Kind) -> bytes:
    return picture(charts[key], theme, PICTURE_WIDTH, kind)
