"""Files of a run: the same as the command line writes, from the same code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import streamlit as st

from fdkvc.charts.picture import picture
from fdkvc.charts.theme import Spec, Theme, standalone
from fdkvc.corpora.formats import EXAMPLES, read_transcripts
from fdkvc.corpora.lexical import lexical_recording
from fdkvc.experiments.benchmark import Results
from fdkvc.experiments.study import Study
from fdkvc.experiments.sweep import Sweep
from fdkvc.files.record import Record, read_run
from fdkvc.files.shipped import papers_run
from fdkvc.files.studies import as_zip, study_files, sweep_files
from fdkvc.limits import MAX_RUN_JSON_BYTES
from fdkvc.report.document import papers_report, study_report
from fdkvc.report.figures import figure_charts
from fdkvc.ui.kit.downloads import KINDS, PICTURE_WIDTH, download_pictures, shown_charts
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.frame import page_theme
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain

CONTENT = {
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
    "alignment_differences.csv": "the paired differences of these",
    "ablation_w_c.csv": "the sweep of Table 5",
    "ablation_gamma.csv": "the sweep of Table 6",
    "dialogs.csv": "every number of every dialog",
    "tables.md": "the paper's tables, measured, as Markdown",
    "tables.tex": "the same as LaTeX",
    "run.json": "seed, parameters, versions, seconds: what it takes to repeat the run",
}


@cached
def files_of(study: Study) -> Mapping[str, str]:
    """Return the files of a study, made once."""
    return study_files(study)


def file_of(study: Study, name: str) -> str:
    """Return one file of a study."""
    return files_of(study)[name]


def brought_run(key: str, label: str, *kinds: str) -> Record | None:
    """Let a person bring a ``run.json``, and the tables beside it, of some kinds of run.

    Raises
    ------
    ValueError
        In a sentence that says what is wrong with it.
    """
    loaded = st.file_uploader(
        plain(label), type=["json", "csv"], key=key, max_upload_size=1, accept_multiple_files=True
    )
    if not loaded:
        return None
    texts = {
        each.name: each.read(MAX_RUN_JSON_BYTES + 1).decode("utf-8", "replace") for each in loaded
    }
    runs = [name for name in texts if name.endswith(".json")]
    if not runs:
        raise ValueError("run.json is missing: choose it together with its tables")
    return read_run(texts[runs[-1]], *kinds).with_texts(texts)  # the last that was brought


def report_of(study: Study) -> str:
    """Return a study as a report, with a failed call out of the project's own dialogs."""
    path = EXAMPLES / "dialogues.json"
    recordings = [*map(lexical_recording, read_transcripts(path.read_bytes(), path.name))]
    if study is papers_run().study:
        return papers_report(recordings)
    return study_report(study, recordings)


def report_button(page: str, report: Callable[[], str], what: str) -> None:
    """Offer a report of what is shown, which is made at the click.

    Parameters
    ----------
    report : function
        Returns it; called outside of the session's script.
    what : str
        What is in it.
    """
    st.download_button(
        "Report as one HTML file",
        report,
        "fdkvc-report.html",
        "text/html",
        key=f"{page}/report",
        on_click="ignore",
        icon=":material/description:",
        help=plain(
            f"{what}, with all that it takes to repeat them: to attach to a review, or to send to "
            "a team."
        ),
    )


def show_files(page: str, study: Study) -> None:
    """Offer everything in one archive, and each file and figure by itself."""
    theme = page_theme()
    st.download_button(
        "Everything as a ZIP",
        lambda: as_zip({**files_of(study), **pictures(figure_charts(study, theme), theme)}),
        "fdkvc-run.zip",
        "application/zip",
        key=f"{page}/zip",
        on_click="ignore",
        icon=":material/folder_zip:",
        type="primary",
        help="All files below, and the paper's figures as SVG and PNG.",
    )
    report_button(
        page, lambda: report_of(study), "Claims, tables, figures and three interactive examples"
    )
    st.markdown(
        "Numbers are not rounded, shares run from 0 to 1, and what does not exist is left empty."
    )
    st.header("Tables", anchor=False)
    _files(page, study)
    st.header("Figures", anchor=False)
    _figures(page, figure_charts(study, theme))


def _figures(page: str, charts: Mapping[str, Spec]) -> None:
    """Offer each chart by itself, as it stands at the click."""
    if not charts:
        return
    names = {key: _picture_name(key).replace("_", " ") for key in charts}
    key = pick(f"{page}/figure", "Figure", names, width=320)
    with st.container(horizontal=True):
        download_pictures(page, charts, {_picture_name(key): key})


def _picture_name(key: str) -> str:
    return key.rsplit("/", 1)[-1]


def _files(page: str, study: Study) -> None:
    """Offer each file of a study by itself, with what it holds."""
    for name in ("run.json", *(name for name in CONTENT if name != "run.json")):
        if name.startswith("ablation_") and not study.sweeps:
            continue
        with st.container(horizontal=True, vertical_alignment="center"):
            st.download_button(
                plain(name),
                partial(file_of, study, name),
                name,
                key=f"{page}/file/{name}",
                on_click="ignore",
                icon=":material/download:",
                width=260,
            )
            st.caption(plain(CONTENT[name]))


def pictures(charts: Mapping[str, Spec], theme: Theme) -> dict[str, bytes]:
    """Draw charts as SVG and PNG."""
    return {
        f"figures/{_picture_name(key)}.{kind}": picture(
            standalone(chart, chart["datasets"], theme, PICTURE_WIDTH), kind
        )
        for key, chart in charts.items()
        for kind in KINDS
    }


@cached
def files_of_sweep(sweep: Sweep, results: Results) -> Mapping[str, str]:
    """Return the files of a sweep, made once."""
    return sweep_files(sweep, results)


def show_sweep_files(page: str, sweep: Sweep, results: Results) -> None:
    """Offer the files of a sweep and its charts, all in one archive and each by itself."""
    if results.dialogs(sweep.scenario.key):
        show_run_files(page, files_of_sweep(sweep, results), "fdkvc-sweep.zip")


def show_run_files(page: str, files: Mapping[str, str], name_of_all: str) -> None:
    """Offer the files of a run and its charts, all in one archive and each by itself."""
    theme, charts = page_theme(), shown_charts(page)
    st.header("Files", anchor=False)
    with st.container(horizontal=True):
        st.download_button(
            "Everything as a ZIP",
            lambda: as_zip({**files, **pictures(charts, theme)}),
            name_of_all,
            "application/zip",
            key=f"{page}/zip",
            on_click="ignore",
            icon=":material/folder_zip:",
            help="The tables and run.json, and the charts above as SVG and PNG.",
        )
        for name, text in files.items():
            st.download_button(
                plain(name),
                text,
                name,
                key=f"{page}/file/{name}",
                on_click="ignore",
                icon=":material/download:",
            )
    _figures(page, charts)
