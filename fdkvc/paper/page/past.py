"""The runs of the page: run its settings, and find the runs that it has.

Shipped results and those since the app started are shown as soon as a link, a reload, another tab
or the sidebar has their settings. The list has those that are shipped and this browser's own.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta, timezone
from functools import partial
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.core.parameters import Field
from fdkvc.paper.shipped import papers_run
from fdkvc.runs.record import version_words
from fdkvc.ui import fields
from fdkvc.ui.address import browser
from fdkvc.ui.jobs import Job
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import job_key, run_panel, shared_jobs, shown_key


@dataclass(frozen=True)
class Kind:
    """What a page runs."""

    name: str
    """Its name in the session."""
    settings_type: type
    """The type of what runs."""
    measure: Callable[..., Any]
    """Runs settings."""
    choose: Callable[[str], Any]
    """Shows the controls of a page, and returns the settings that a person chose."""
    command: Callable[[Any], str]
    """Returns the command line that runs settings, with more dialogs."""
    limit: str
    """What the page runs at most."""
    link: Callable[[Any], Mapping[str, str]]
    """Returns the address of settings."""
    link_fields: Callable[[str, Mapping[str, str]], Sequence[Field]]
    """Returns the fields of an address."""
    describe: Callable[[Any], str]
    """Returns settings in words."""
    shipped: Sequence[Any]
    """Those of `papers_run`."""


@dataclass(frozen=True)
class Past:
    """A run whose result is available; one that is shipped with the code has no job."""

    name: str
    """Unique among the runs of a page."""
    result: Any
    """The run itself."""
    job: Job | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self.job is not None and self.job.cancelled.is_set()

    @property
    def finished(self) -> str:
        """How many dialogs of each scenario have finished, of those requested."""
        results = self.result.results
        dialogs = min(
            results.dialogs(scenario.key) for scenario in results.benchmark.scenarios
        )
        return f"{dialogs:,} of {results.benchmark.dialogs:,} dialogs"

    @property
    def time(self) -> str:
        """When it was requested, on the reader's clock; of a shipped run, the date."""
        if self.job is None:
            return papers_run().date
        # The browser's offset is positive west of Greenwich.
        zone = timezone(timedelta(minutes=-(st.context.timezone_offset or 0)))
        return f"{self.job.requested.astimezone(zone):%d %b %H:%M:%S}"


def open_run(page: str, kind: Kind, place: DeltaGenerator) -> Past | None:
    """Show the choices with the button that runs them; return the run to show.

    None if there is none, or if it has no results. The list of runs is shown in `place`.
    """
    with st.sidebar:
        settings = kind.choose(page)
        running = run_panel(kind.name, "Run", partial(kind.measure, settings), settings)
        with st.popover("Command line", icon=":material/terminal:"):
            st.caption(plain(f"{kind.limit} run here. The command line runs more:"))
            st.code(kind.command(settings), language=None, wrap_lines=True)
    runs = _available_runs(kind)
    # The run shown before, while it has these settings; else the latest one that has them.
    visible_run = runs.get(st.session_state.get(shown_key(kind.name), ""))
    if visible_run is None or visible_run.result.settings != settings:
        for run in runs.values():
            if run.result.settings == settings and not run.cancelled:
                visible_run = run
    if visible_run is not None:
        st.session_state[shown_key(kind.name)] = visible_run.name
    if listed := listed_runs(kind):
        with place:
            _list(page, kind, listed, visible_run)
    if visible_run is not None:
        _describe(kind, visible_run)
    if visible_run is None or visible_run.result.settings != settings:
        _advise(
            running, settings, "The settings differ from this run's" if visible_run else ""
        )
    if visible_run is None:
        return None
    if not any(visible_run.result.results.measured.values()):
        st.info("The run was cancelled before its first dialogs finished.")
        return None
    return visible_run


def listed_runs(kind: Kind) -> dict[str, Past]:
    """Return the runs that are shipped and this browser's own, by name."""
    me = browser()
    runs = _available_runs(kind)
    return {
        name: run for name, run in runs.items() if run.job is None or run.job.browser == me
    }


def _available_runs(kind: Kind) -> dict[str, Past]:
    """Return every run with a result by name: those that are shipped, then oldest first."""
    # A run that ends while the page is being drawn appears when it is drawn again.
    running = st.session_state.get(job_key(kind.name))
    ended = (job for job in shared_jobs().results(kind.settings_type) if job.name != running)
    runs = [Past(f"shipped {kind.describe(run.settings)}", run) for run in kind.shipped]
    runs += [Past(job.name, job.result, job) for job in ended]
    return {run.name: run for run in runs}


def _advise(running: Job | None, settings: Any, why: str) -> None:
    """Say how to get results of these settings when none are shown."""
    if running is not None and running.content == settings:
        words = "These settings are being measured: the results will be shown here."
    else:
        now = "another run is going on" if running else "press Run to measure them"
        words = f"{why or 'There are no results of these settings'}: {now}."
    st.info(plain(words), icon=f":material/{'hourglass_empty' if running else 'play_arrow'}:")


def _describe(kind: Kind, run: Past) -> None:
    """Describe the run that is shown: what ran, and whether it was cancelled."""
    if run.job is None:
        version = version_words(papers_run().version)
        origin = f". Measured on {run.time} with {version}; comes with the app."
    else:
        origin = f", run at {run.time}, took {run.job.seconds:.1f} s."
    st.caption(plain(f"Shown: {kind.describe(run.result.settings)}{origin}"))
    if run.cancelled:
        words = f"Cancelled: results of {run.finished} of each scenario."
        st.warning(plain(words), icon=":material/cancel:")


def _list(page: str, kind: Kind, runs: Mapping[str, Past], visible_run: Past | None) -> None:
    """Let a person choose which run is shown."""
    key = f"{kind.name}/runs"
    st.session_state[key] = (
        visible_run.name if visible_run and visible_run.name in runs else None
    )
    with st.popover(plain(f"Runs ({len(runs)})"), icon=":material/history:"):
        st.radio(
            "Shown",
            [*runs],
            index=None,
            format_func=lambda name: plain(title_of(kind, runs[name])),
            key=key,
            on_change=_show,
            args=(page, kind, runs),
        )


def title_of(kind: Kind, run: Past) -> str:
    """Return the title of a run in a list."""
    title = "The paper's run" if run.job is None else f"Run at {run.time}"
    if run.cancelled:
        title += f", cancelled after {run.finished}"
    return f"{title}: {kind.describe(run.result.settings)}"


def _show(page: str, kind: Kind, runs: Mapping[str, Past]) -> None:
    run = runs[st.session_state[f"{kind.name}/runs"]]
    link = kind.link(run.result.settings)
    fields.adopt(page, kind.link_fields(page, link), link)
    st.session_state[shown_key(kind.name)] = run.name
