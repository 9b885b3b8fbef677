"""Available runs: find them by their settings, list, name, compare and delete them.

Shipped results and those since the app started are shown as soon as a link, a reload, another tab
or the sidebar has their settings.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta, timezone
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.files.record import version_words
from fdkvc.files.shipped import papers_run
from fdkvc.kinds.benchmark import BenchmarkRun
from fdkvc.kinds.sweep import SweepRun
from fdkvc.policies import read_policy
from fdkvc.replication.cells import scenario_label
from fdkvc.replication.tables import runs_table, same_dialogs
from fdkvc.run.metrics import late_metric
from fdkvc.ui.kit.downloads import offer_zip
from fdkvc.ui.kit.fields import pick_two
from fdkvc.ui.kit.jobs import Job
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.run_panel import shared_jobs
from fdkvc.words import count, minus


@dataclass(frozen=True)
class Kind:
    """What a page runs: a kind of run by its settings.

    `adopt` makes settings those of the page.
    """

    page: str
    run: type[BenchmarkRun | SweepRun]
    adopt: Callable[[Any], object]
    describe: Callable[[Any], str]
    shipped: Mapping[Any, BenchmarkRun | SweepRun]


@dataclass(frozen=True)
class Past:
    """A run whose result is available; one that is shipped with the code has no job."""

    name: str
    content: Hashable
    title: str
    result: BenchmarkRun | SweepRun
    job: Job | None = None

    @property
    def is_shipped(self) -> bool:
        """Whether it is shipped with the code."""
        return self.job is None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.job is not None and self.job.cancelled.is_set()

    @property
    def time(self) -> str:
        """When it was requested, on the reader's clock."""
        if self.job is None:
            return papers_run().made
        zone = timezone(timedelta(minutes=-(st.context.timezone_offset or 0)))
        return f"{self.job.requested.astimezone(zone):%d %b %H:%M:%S}"


def available_runs(kind: Kind) -> dict[str, Past]:
    """Return every run with a result by name: those shipped and seen here, then oldest first."""
    runs = [
        Past(f"shipped {kind.describe(content)}", content, "The paper's run", result)
        for content, result in kind.shipped.items()
        if content in _view(kind.page).seen
    ]
    for job in shared_jobs().results(kind.run.settings_type):
        past = Past(job.name, job.content, "", job.result, job)
        done, requested = _finished(job.result)
        cancelled = f", cancelled after {done:,} of {requested:,} dialogs" * past.cancelled
        runs.append(replace(past, title=f"Run at {past.time}{cancelled}"))
    found = {}
    for past in runs:
        described = kind.describe(past.content)
        usual = f"{past.title}: {described}"
        title = st.session_state.setdefault(_title(kind.page, past.name), usual)
        found[past.name] = replace(past, title=title or described)
    return found


def at_hand(kind: Kind, content: Hashable, job: Job | None) -> Past | None:
    """Return the run to show for these settings, None if there is none.

    That is the run of `job` if it has just ended, else the last one of these settings that was not
    cancelled, else the one shown.
    """
    view = _view(kind.page)
    if content not in view.seen:
        view.seen.append(content)
    every = available_runs(kind)
    if job is not None and job.name != view.ended:
        view.ended = view.showing = job.name
    elif view.looked_for != content:
        same = [each.name for each in every.values() if each.content == content]
        same = [name for name in same if not every[name].cancelled]
        if same and view.showing not in same:
            view.showing = same[-1]
    view.looked_for = content
    return every.get(view.showing)


def _finished(run: BenchmarkRun | SweepRun) -> tuple[int, int]:
    """Return how many dialogs of each scenario have finished, and how many were requested."""
    results = run.results
    benchmark = results.benchmark
    return min(results.dialogs(each.key) for each in benchmark.scenarios), benchmark.dialogs


@dataclass
class _View:
    """What a session has seen of a page's runs: settings, and the names of runs."""

    seen: list[Hashable] = field(default_factory=list)
    looked_for: Hashable = None
    showing: str = ""
    ended: str = ""


def _view(page: str) -> _View:
    view: _View = st.session_state.setdefault(f"{page}/runs", _View())
    return view


def _title(page: str, name: str) -> str:
    return f"{page}/runs/{name}"


def offer() -> None:
    """Report that these settings have no results yet."""
    st.info(
        "These settings have no results yet: press Run to measure them.",
        icon=":material/play_arrow:",
    )


def about(kind: Kind, past: Past, chosen: Hashable, rest: str = "") -> None:
    """Describe the run that is shown: what ran, whether it was cancelled, and changed settings.

    `rest` as for `warn_cancelled`.
    """
    if past.job is None:
        version = version_words(papers_run().version)
        origin = f". Measured on {past.time} with {version}, and shipped."
    else:
        origin = f", run at {past.time}, took {past.job.seconds:.1f} s."
    st.caption(plain(f"Shown: {kind.describe(past.content)}{origin}"))
    if past.cancelled:
        warn_cancelled(_finished(past.result), "dialogs of each scenario", rest)
    if past.content != chosen:
        st.info(
            "The sidebar's settings differ from this run's: press Run to measure them.",
            icon=":material/tune:",
        )


def warn_cancelled(finished: tuple[int, int], of: str, rest: str = "") -> None:
    """Say that a run was cancelled, and how much of it had finished.

    `rest` is a sentence on what is not complete although all of that had finished.
    """
    done, requested = finished
    words = f"Cancelled: results of {done:,} of {requested:,} {of}."
    if done == requested:
        every = f"all {done:,}" if done > 1 else "its"
        words = f"Cancelled after {every} {of} had finished: their results are complete. {rest}"
    st.warning(plain(words.strip()), icon=":material/cancel:")


# ------------------------------------------------------------------------------- the list


def show_runs(kind: Kind, shown: Past | None) -> None:
    """List all runs, to show, name, download, compare and delete them."""
    every = available_runs(kind)
    if not every:
        return
    with st.popover(plain(f"Runs ({len(every)})"), icon=":material/history:"):
        for past in every.values():
            _row(kind, past, past.name == (shown and shown.name))
        if len(every) > 1:
            _compare(kind, every)


def _row(kind: Kind, past: Past, is_shown: bool) -> None:
    page, key = kind.page, _title(kind.page, past.name)
    st.text_input(plain(kind.describe(past.content)), key=key, persist_state="session")
    with st.container(horizontal=True, key=f"past-{past.name}"):
        st.button(
            "Shown" if is_shown else "Show",
            key=f"{key}/show",
            on_click=_choose,
            args=(kind, past.name, past.content),
            disabled=is_shown,
        )
        offer_zip(f"{key}/zip", "fdkvc-run.zip", lambda: past.result.files, "Download")
        st.button(
            "Delete",
            key=f"{key}/delete",
            on_click=_delete,
            args=(page, past.name),
            disabled=past.is_shipped,
            icon=":material/delete:",
        )


def _choose(kind: Kind, name: str, content: Hashable) -> None:
    kind.adopt(content)
    _view(kind.page).showing = name


def _delete(page: str, name: str) -> None:
    if st.session_state.get(f"{page}/shown") == name:
        del st.session_state[f"{page}/shown"]
    shared_jobs().drop(name)
    _view(page).looked_for = None


@st.fragment
def _compare(kind: Kind, every: Mapping[str, Past]) -> None:
    titles = {name: past.title for name, past in every.items()}
    last = list(titles)[-1]
    one, other = pick_two(f"{kind.page}/runs-pair", titles, ("Compare", last), ("with", ""))
    results = [every[name].result.results for name in (one, other)]
    table = runs_table(*results)
    if table.empty:
        st.info("These runs have no scenario, policy and metric in common.")
        return
    st.markdown(
        "Both runs have the same dialogs: differences are paired over those that both finished."
        if same_dialogs(*results)
        else "The runs have different dialogs: their means are compared."
    )
    st.dataframe(compared(table), hide_index=True, key=f"{kind.page}/runs-table", height="content")
    tests = int(table.p_holm.notna().sum())
    if tests:
        st.caption(plain(f"95 % intervals; p is adjusted for {count(tests, 'test')} (Holm)."))


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return the comparison of two runs as it is shown."""
    return pd.DataFrame(
        {
            "scenario": table.scenario.map(scenario_label),
            "policy": [read_policy(name).title for name in table.policy],
            "metric": [late_metric(name).label for name in table.metric],
            "difference (one − other)": table.words.map(minus),
            "one": table.one.round(4),
            "dialogs": table.n_one,
            "the other": table.other.round(4),
            "dialogs of the other": table.n_other,
        }
    )
