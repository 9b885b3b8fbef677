"""Files of a view or of a run, made when a person downloads them; and charts."""

import mimetypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import streamlit as st

from fdkvc.charts.theme import Spec
from fdkvc.runs.base import Run
from fdkvc.runs.export import as_zip
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import plain


def show_address(uploaded: bool = False) -> None:
    """Show what the page's address reopens; it does not carry an `uploaded` file."""
    once = " once the same file is opened there" if uploaded else ""
    st.caption(plain(f"The address of this page reopens exactly this view{once}."))


def show_chart(page: str, name: str, chart: Spec, **options: Any) -> None:
    """Show a chart with its data, which its toolbar saves as a picture."""
    st.vega_lite_chart(chart, key=f"{page}/{name}", width="stretch", **options)


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


# ------------------------------------------------------------------------------- runs

STUDY = {
    "run.json": "what is needed to repeat the run",
    "summary.csv": "late metrics: mean, interval, published",
    "adaptation.csv": "turns until the new topic holds 80 % of the cache",
    "paired.csv": "differences from the baseline, with t-tests",
    "comparison.csv": "the same with adjusted p and effect size",
    "latency.csv": "time of a turn, also as a multiple of FIFO's",
    "cost.csv": "time single and batched, bytes of keys, values and scores",
    "cells.csv": "each cell of the paper's tables, with its verdict",
    "claims.csv": "each claim of the paper, with its verdict",
    "series.csv": "every turn: mean and interval of every metric and state",
    "alignments.csv": "late alignment by each projection, and published",
    "alignment_differences.csv": "paired differences of FD-KVC and H2O in these",
    "dialogs.csv": "every number of every dialog",
    "tables.md": "the paper's tables, measured, as Markdown",
    "tables.tex": "the same as LaTeX",
}
CONTENT = STUDY | {
    "sweep.csv": "mean and interval of each metric under every setting",
    "ablation.csv": "each value of the hyperparameter, and published",
    "ablation_w_c.csv": "the sweep of Table 5",
    "ablation_gamma.csv": "the sweep of Table 6",
}
"""What files contain, first those of a study."""


@cached
def files_of(run: Run) -> Mapping[str, str]:
    """Return the files of a run, made once."""
    return run.files


def report_button(
    page: str, report: Callable[[], str], what: str, name: str = "fdkvc-report.html"
) -> None:
    """Offer a report, made at the click outside of the session's script; `what` is in it."""
    offer_file(
        f"{page}/report",
        name,
        report,
        label="Report as one HTML file",
        icon="description",
        help=plain(f"{what}, with everything needed to repeat them: for a review or a team."),
    )


def show_files(page: str, run: Run, names: Iterable[str], zip: str) -> None:
    """Offer the files of a run of these names: each, and all in one ZIP."""
    offer_zip(f"{page}/zip", zip, partial(files_of, run), type="primary", help="All files below.")
    st.markdown("Numbers are not rounded, shares run from 0 to 1, and missing values are empty.")
    for name in names:
        with st.container(horizontal=True, vertical_alignment="center"):
            offer_one(f"{page}/file/{name}", name, partial(files_of, run), width=260)
            st.caption(plain(CONTENT[name]))
