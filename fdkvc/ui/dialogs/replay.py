"""All dialogs of a file under policies and budgets: a run with curves, a table and files."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Unpack

import numpy as np
import pandas as pd
import streamlit as st

from fdkvc.charts.results import budgets_chart
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.jobs import Execution
from fdkvc.experiments.plan import OFFERED, fitting_budgets
from fdkvc.experiments.replay import (
    BUDGETS,
    Replay,
    cluster_means,
    not_computed,
)
from fdkvc.experiments.statistics import MIN_CLUSTERS, over_clusters
from fdkvc.experiments.summary import mean_table, paired_differences
from fdkvc.explain.notes import pinned_notes
from fdkvc.grid import figures, marks_sentence, pivot
from fdkvc.kinds.replay import OF_HEADS, replay_grid
from fdkvc.limits import MAX_READ_MEGABYTES, MAX_TURN_TOKENS
from fdkvc.parameters import Field
from fdkvc.policies import read_policy
from fdkvc.report.document import dialogs_report, replay_parts
from fdkvc.run.metrics import late_metric
from fdkvc.run.sinks import PROTECT, RECALL_ONLY
from fdkvc.ui.dialogs.choices import DIALOG, POLICIES, Chosen, ways_of
from fdkvc.ui.dialogs.files import DialogFile
from fdkvc.ui.dialogs.forgotten import Replayed, show_forgotten
from fdkvc.ui.dialogs.vectors import LAYERS, VECTORS, ReadRecordings, Vectors, read_file
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import (
    download_files,
    download_pictures,
    files_of,
    report_button,
    show_chart,
    shown_charts,
)
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.past import Kind, open_run
from fdkvc.ui.kit.sidebar import MORE_METRICS
from fdkvc.words import BEST, count

FILES = [
    *("replay.csv", "replay_summary.csv", "replay_paired.csv", "replay_services.csv"),
    *("replay_sources.csv", "replay_forgotten.csv", "run.json"),
]
TRIED = Field(
    "Budgets",
    "Largest number of cached entries after a turn.",
    name="budgets",
    default=tuple(map(str, BUDGETS)),
    choices=tuple(map(str, sorted({*OFFERED, *BUDGETS, 24, 192}))),
)
CHUNK = Field(
    "Tokens per chunk",
    "Longer turns are read in chunks of this size, with an eviction after each; 0: whole turns.",
    name="chunk",
    default=0,
    low=0,
    high=MAX_TURN_TOKENS,
)
DECIDING = Field("Heads", "", name="modes", default=("each",))
RUN_FIELDS = (VECTORS, LAYERS, POLICIES, MORE_METRICS, TRIED, DECIDING, CHUNK)
"""Fields with the settings of a run."""


@dataclass(frozen=True)
class FileRun:
    """What is run over a file, by its key: with letters or its trace, or with a model's `vectors`.

    `first` is the dialog that a model reads first, and `link` has the values of `RUN_FIELDS`.
    """

    replay: Replay
    key: str
    vectors: Vectors | None
    file: DialogFile = field(compare=False, repr=False)
    first: int = field(default=0, compare=False)
    link: tuple[tuple[str, str], ...] = field(default=(), compare=False)


def show_replay(page: str, chosen: Chosen, lanes: Sequence[Lane], metrics: tuple[str, ...]) -> None:
    """Run all dialogs of the file, and show the result; `metrics` are those beside the evidence."""
    file, vectors = chosen.file, chosen.vectors
    measured, every = file.measured, len(file.transcripts)
    which = "the" if every == 1 else "all"
    which = which if measured == every else f"the first {measured} of the"
    st.markdown(
        plain(
            f"Run the sidebar's policies on {which} {count(every, 'dialog')} of this file at "
            "these budgets: how much of the needed evidence is still in the cache?"
            + (" The command line runs any number." if measured < every else "")
        )
    )
    if vectors is not None:
        st.caption(
            plain(
                f"With the vectors of {vectors.label}, as the mean over the KV heads of the chosen "
                f"layers; of as many dialogs as {MAX_READ_MEGABYTES} MB hold."
            )
        )

    def choose(page: str) -> FileRun:
        settings, first = _choose(page, chosen, lanes, metrics), fields.held(page, DIALOG)
        link = tuple((row.name, row.written(fields.held(page, row))) for row in RUN_FIELDS)
        return FileRun(settings, file.key, vectors, file, first, link)

    kind = Kind(
        page,
        FileRun,
        replay_file,
        choose,
        lambda run: dict(run.link),
        lambda *_: RUN_FIELDS,
        _described,
        (),
        finished=lambda run: (int(run.table.dialog.nunique()), len(run.recordings)),
        measured=lambda run: not run.table.empty,
        counted="dialogs",
        belongs=lambda run: run.key == file.key and run.replay.best,  # not the verdict's
        compare=show_compared,
        sidebar=False,
    )
    shown = open_run(kind)
    if shown is not None:
        _about(shown.result)
        _show(page, shown.result)


def _described(run: FileRun) -> str:
    """Return what is run in words."""
    by = "" if run.vectors is None else f" as {run.vectors.label} reads them"
    return (
        f"{count(run.file.measured, 'dialog')}{by}, "
        f"{count(len(run.replay.policies), 'policy', 'policies')}, "
        f"{count(len(run.replay.budgets), 'budget')}"
    )


def replay_file(run: FileRun, **how: Unpack[Execution]) -> Replayed | None:
    """Run the dialogs of a file; with a model's vectors, the means over its KV heads.

    None if it is cancelled before the model has read a dialog.
    """
    file = run.file
    about: dict[str, Any] = {"name": file.name, "digest": file.digest, "file": file}
    if run.vectors is None:
        texts = LexicalRecordings(file.transcripts[: file.measured])
        traced: Sequence[Recording] = file.traced[: file.measured] or texts
        return Replayed.measure(run.replay, traced, about, **how)
    read = read_file(run.vectors, file, run.first, **how)
    if not read.recordings:
        for reason in read.skipped.values():
            raise ValueError(reason)
        return None
    recordings = [row for at in sorted(read.recordings) for row in read.recordings[at]]
    about |= {"model": run.vectors, "vectors": "vectors={}&layers={}".format(*run.vectors)}
    done = Replayed.measure(run.replay, recordings, about, **how)
    table, arguments = _over_heads(done.table), _over_heads(done.arguments)
    firsts = ReadRecordings(run.vectors, file, read)
    return replace(done, table=table, arguments=arguments, recordings=firsts)


def show_compared(page: str, one: Replayed, other: Replayed) -> None:
    """Show the differences of two runs over a file, paired by dialog; of their first heads."""
    both, rows = {*one.table.dialog} & {*other.table.dialog}, []
    for name, run in (("first", one), ("second", other)):
        table = run.table[run.table.dialog.isin(both) & (run.table.policy != BEST)]
        table = table[table.heads == run.settings.heads[0]].sort_values("dialog", kind="stable")
        rows.append(table.assign(known=table.policy, policy=name, heads=""))
    paired = paired_differences(pd.concat(rows), "second")
    if paired.empty:
        st.info("These runs have no dialog, policy, budget and metric in common.")
        return
    policies = [read_policy(name).title for name in paired.known]
    names = [late_metric(name).title for name in paired.metric]
    words = figures(paired, ("mean_diff", "ci_low", "ci_high"), signs=True)
    grid = pivot(paired.assign(policy=policies, metric=names), words, ["policy", "metric"])
    show_grid(grid, "Difference (first − second) by budget")
    st.caption(
        "First − second, by budget. An entry is a token of the model that read it, or a word."
    )


def _over_heads(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table of KV heads, whose dialogs end in layer and head, with their means."""
    how = {"held": "mean", "lost": "min"} if "lost" in table else {"value": "mean"}
    rows = table.assign(dialog=table.dialog.str.rpartition(", ")[0])
    unsigned = rows.astype({"lost": np.uint32} if "lost" in table else {})  # −1, held, is largest
    names = [name for name in table if name not in how]
    means = unsigned.groupby(names, sort=False, dropna=False).agg(how).reset_index()
    return means[[*table]].astype({"lost": np.int32} if "lost" in table else {})


def _choose(page: str, chosen: Chosen, lanes: Sequence[Lane], metrics: tuple[str, ...]) -> Replay:
    file, recording = chosen.file, chosen.head.recording
    fitting = tuple(map(str, fitting_budgets(file.mean_words)))
    budgets = fields.several(page, replace(TRIED, default=fitting))
    modes: tuple[str, ...] = ("each",)
    if len(recording.heads) > 1:
        ways = ways_of(recording)
        deciding = replace(DECIDING, default=(ways.default,), choices=ways.labels)
        modes = fields.several(page, deciding)
    policies = tuple(lane.run.trace.policy for lane in lanes)
    chunk = fields.number(page, CHUNK)
    return Replay(policies, tuple(map(int, budgets)), modes, metrics, chunk=chunk or None)


def _about(done: Replayed) -> None:
    services = done.table.services.nunique()
    st.caption(
        plain(
            f"The interval is {over_clusters(services)}. {BEST.capitalize()} is the exact maximum "
            "over all caches of the same size; a second tier may exceed it."
        )
    )
    if services < MIN_CLUSTERS:
        st.info(
            plain(
                "Dialogs of one task or with the same services resemble each other, so they count "
                f"as one cluster. An interval needs at least {MIN_CLUSTERS} clusters."
            ),
            icon=":material/stacked_line_chart:",
        )
    for sentence in _pinned(done):
        st.caption(plain(sentence))
    if missing := not_computed(done.table):
        st.info(plain(f"{missing.capitalize()}."), icon=":material/hourglass_disabled:")


def _show(page: str, done: Replayed) -> None:
    means = means_of(done)
    metrics = [key for key in dict.fromkeys(done.table.metric) if key in set(means.metric)]
    st.caption(plain(f"{RECALL_ONLY} {PROTECT}"))
    titles = {key: late_metric(key).title for key in metrics}
    rows = means.assign(policy=_titles(done, means)).drop_duplicates(["metric", "policy", "budget"])
    drawn = partial(budgets_chart, theme=page_theme(), policies=tuple(rows.policy.unique()))
    with side_by_side("replay"):
        for key, title in titles.items():
            with panel(f"replay-{key}"):
                percents = late_metric(key).percent
                chart = drawn(rows[rows.metric == key], title, percent=percents)
                show_chart(page, f"replay/{key}", chart)
    key = pick(f"{page}/replay/metric", "Table of", titles)
    titled = {policy.name: policy.title for policy in done.settings.policies} | {
        BEST: BEST.capitalize()
    }
    show_grid(replay_grid(done.table, done.baseline, key, titled.__getitem__), titles[key])
    st.caption(plain(marks_sentence(done.baseline)))
    if done.table.services.nunique() > 1:
        with st.expander("By cluster"):
            table = cluster_means(done.table[done.table.metric == key])
            table = table.assign(policy=_titles(done, table), ci_low=np.nan, ci_high=np.nan)
            table = table.sort_values("services", kind="stable")
            words, label = figures(table), "budget {}".format
            grid = pivot(table, words, ["services", "policy"], label=label)
            show_grid(grid, f"{titles[key]}, by cluster")
    show_glossary(key.removeprefix("late_") for key in metrics)
    if not done.arguments.empty:
        show_forgotten(page, done)
    with st.container(horizontal=True):
        with st.popover("Download the run", icon=":material/download:"):
            st.caption("Files as `python -m fdkvc dialogs` writes them.")
            download_files(f"{page}/replay", lambda: files_of(done), FILES)
            shown = [f"replay/{key}" for key in metrics]
            download_pictures(f"{page}/replay", shown_charts(page), shown)
        what = "All tables, and a failed call to step through"
        report_button(f"{page}/replay", lambda: report_of(done), what)


@cached
def _pinned(done: Replayed) -> list[str]:
    return pinned_notes(done.file.transcripts, done.settings.policies, done.settings.budgets)


@cached
def means_of(done: Replayed) -> pd.DataFrame:
    """Return the means of a run by policy and budget."""
    return mean_table(done.table)


def _titles(done: Replayed, table: pd.DataFrame) -> list[str]:
    titles = {policy.name: policy.title for policy in done.settings.policies}
    return [
        BEST.capitalize() if policy == BEST else titles[policy] + OF_HEADS[heads]
        for policy, heads in zip(table.policy, table.heads, strict=True)
    ]


def report_of(done: Replayed) -> str:
    """Return a run as a report with its first failed call."""
    every, requested = len(done.file.transcripts), len(done.recordings)
    more = []
    if requested < every:
        more.append(f"These are {requested} of {every} dialogs of a file.")
    if done.table.dialog.nunique() < requested:
        more.append(f"The run was cancelled: {count(requested, 'dialog')} were requested.")
    return dialogs_report(replay_parts(done), more)
