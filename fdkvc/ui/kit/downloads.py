"""Downloads: tables as CSV, charts as SVG and PNG; each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import streamlit as st

from fdkvc.charts.picture import picture
from fdkvc.charts.sweep import PICK
from fdkvc.charts.theme import Spec, standalone
from fdkvc.ui.kit.arrow import arrow_table
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.markdown import plain

PICTURE_WIDTH = 720

Kind = Literal["svg", "png"]
KINDS: tuple[Kind, ...] = ("svg", "png")


def tell_address(own: bool = False) -> None:
    """Say what the address of the page is good for.

    Parameters
    ----------
    own : bool
        Whether what is shown is of a person's own file, which no address carries.
    """
    once = " once the same file is opened there" if own else ""
    st.caption(plain(f"The address of this page reopens exactly this view{once}."))


def shown_charts(page: str) -> dict[str, Spec]:
    """Return where a page keeps the charts that it shows, by name; the same in every run."""
    charts: dict[str, Spec] = st.session_state.setdefault(f"{page}/charts", {})
    return charts


def show_chart(page: str, name: str, chart: Spec, **options: Any) -> None:
    """Show a chart of a page, and store it for the pictures that are downloaded.

    Parameters
    ----------
    chart : Spec
        Joined with its data.
    **options
        Of ``st.vega_lite_chart``.
    """
    shown_charts(page)[name] = chart
    tables = {table: arrow_table(frame) for table, frame in chart["datasets"].items()}
    st.vega_lite_chart(
        {**chart, "datasets": tables}, key=f"{page}/{name}", width="stretch", **options
    )


def clicked_setting(page: str, name: str) -> str:
    """Return the setting whose mark was clicked last on a chart; empty where none was."""
    clicked = st.session_state[f"{page}/{name}"].selection.get(PICK, [])
    return clicked[0]["setting"] if clicked else ""


def download_files(page: str, files: Callable[[], Mapping[str, str]], names: list[str]) -> None:
    """Offer each of these files, which are made together on the first click."""
    for name in names:

        def content(name: str = name) -> bytes:
            return files()[name].encode()

        st.download_button(
            plain(name),
            content,
            file_name=name,
            mime="text/csv",
            key=f"{page}/download/{name}",
            icon=":material/table:",
            on_click="ignore",
        )


def download_pictures(page: str, charts: Mapping[str, Spec], names: Mapping[str, str]) -> None:
    """Offer some of these charts, as they stand at the click, as SVG and as PNG.

    Parameters
    ----------
    charts : mapping of str to Spec
        Such as `shown_charts`: a file is made outside of the session's script, where nothing of
        the session can be asked for.
    names : mapping of str to str
        The name of each file, and of its chart.
    """
    theme = page_theme()
    for name, chart in names.items():
        for kind in KINDS:

            def content(chart: str = chart, kind: Kind = kind) -> bytes:
                spec = charts[chart]
                return picture(standalone(spec, spec["datasets"], theme, PICTURE_WIDTH), kind)

            st.download_button(
                plain(f"{name}.{kind}"),
                content,
                file_name=f"{name}.{kind}",
                mime="image/svg+xml" if kind == "svg" else "image/png",
                key=f"{page}/download/{name}.{kind}",
                icon=":material/image:",
                on_click="ignore",
            )
