"""Files of a run: the same as the command line writes, from the same code."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import streamlit as st

from fdkvc.charts.theme import Spec
from fdkvc.files.record import Record
from fdkvc.kinds import read_run
from fdkvc.kinds.base import Run
from fdkvc.limits import MAX_RUN_JSON_BYTES, MAX_TRACE_UPLOAD_MEGABYTES
from fdkvc.ui.kit.downloads import (
    download_pictures,
    offer_file,
    offer_one,
    offer_zip,
    picture_name,
    pictures,
)
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain

STUDY = {
    "run.json": "seed, parameters, versions, seconds: what is needed to repeat the run",
    "summary.csv": "late metrics: mean, interval, published",
    "adaptation.csv": "turns until the new topic holds 80 % of the cache",
    "paired.csv": "differences from the baseline, with t-tests",
    "comparison.csv": "the same with bootstrap interval, adjusted p and effect size",
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
    "sweep.csv": "every setting, and the other policies: mean and interval of each metric",
    "ablation.csv": "the values of the hyperparameter, measured and published",
    "ablation_w_c.csv": "the sweep of Table 5",
    "ablation_gamma.csv": "the sweep of Table 6",
}
"""What files contain, first those of a study."""


@cached
def files_of(run: Run) -> Mapping[str, str]:
    """Return the files of a run, made once."""
    return run.files


def brought_run(
    key: str, label: str, *kinds: str, timed: Sequence[str] = (), trace: bool = False
) -> Record | None:
    """Let the user open a ``run.json`` with its tables; raise a ValueError if it is invalid.

    Timed tables are taken without a digest, as no run repeats them; a trace may come with them.
    """
    loaded = st.file_uploader(
        plain(label),
        type=["json", "csv", *(["npz"] if trace else [])],
        key=key,
        max_upload_size=MAX_TRACE_UPLOAD_MEGABYTES if trace else 1,
        accept_multiple_files=True,
    )
    if not loaded:
        return None
    texts = {
        file.name: file.read(MAX_RUN_JSON_BYTES + 1).decode("utf-8", "replace") for file in loaded
    }
    runs = [name for name in texts if name.endswith(".json")]
    if not runs:
        raise ValueError("run.json is missing: choose it together with its tables")
    record = read_run(texts[runs[-1]], *kinds).with_texts(texts)  # the last that was brought
    return replace(record, texts={**record.texts, **{n: texts[n] for n in timed if n in texts}})


def versions_of(record: Record) -> str:
    """Return the versions with which a run was made, in words."""
    return ", ".join(f"{name} {version}" for name, version in record.versions.items())


def report_button(page: str, report: Callable[[], str], what: str) -> None:
    """Offer a report, made at the click outside of the session's script; `what` is in it."""
    offer_file(
        f"{page}/report",
        "fdkvc-report.html",
        report,
        label="Report as one HTML file",
        icon="description",
        help=plain(f"{what}, with everything needed to repeat them: for a review or a team."),
    )


def show_files(
    page: str, run: Run, names: Iterable[str], charts: Mapping[str, Spec], zip: str
) -> None:
    """Offer the files of a run of these names and charts: each, and all in one ZIP."""
    theme = page_theme()
    offer_zip(
        f"{page}/zip",
        zip,
        lambda: {**files_of(run), **pictures(charts, theme)},
        type="primary",
        help="All files below, and the charts as SVG and PNG.",
    )
    st.markdown("Numbers are not rounded, shares run from 0 to 1, and missing values are empty.")
    for name in names:
        with st.container(horizontal=True, vertical_alignment="center"):
            offer_one(f"{page}/file/{name}", name, partial(files_of, run), width=260)
            st.caption(plain(CONTENT[name]))
    if charts:
        names = {key: picture_name(key).replace("_", " ") for key in charts}
        key = pick(f"{page}/figure", "Chart", names, width=320)
        with st.container(horizontal=True):
            download_pictures(page, charts, [key])
