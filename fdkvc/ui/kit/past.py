"""Runs whose results are at hand: found by what was asked, listed, named, compared, deleted.

What is shipped with the code, and what was run since the app started, is shown as soon as its
settings are asked for: by a link, by a reload, in another tab, or in the sidebar.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.experiments.benchmark import Results
from fdkvc.files.shipped import papers_run
from fdkvc.files.studies import as_zip
from fdkvc.parameters import Field
from fdkvc.policies import read_policy
from fdkvc.replication.cells import scenario_label
from fdkvc.replication.pairs import runs_table, same_dialogs
from fdkvc.run.metrics import late_metric
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.fields import pick
from fdkvc.ui.kit.markdown import plain
from fdkvc.ui.kit.run_panel import latest_job, shared_jobs
from fdkvc.words import count, minus

SHIPPED = "shipped"
"""Begins what stands for the name of the job where a result came with the code."""


@dataclass(frozen=True)
class Kind:
    """What a page runs, and what can be done with its results.

    Attributes
    ----------
    page : str
        Under which the session holds its runs.
    asked : type
        Of what is asked.
    link : function of content to mapping
        The parts of the address under which the page has these settings.
    fields : function of link to fields
        Those of the address.
    describe : function of content to str
    results : function of result to Results, optional
        The numbers that are compared, if any are.
    files : function of result to mapping
    shipped : function to mapping of content to result
        What came with the code.
    held_by : str
        The page whose settings they are; by default the same.
    """

    page: str
    asked: type
    link: Callable[[Any], Mapping[str, str]]
    fields: Callable[[Mapping[str, str]], list[Field]]
    describe: Callable[[Any], str]
    results: Callable[[Any], Results] | None
    files: Callable[[Any], Mapping[str, str]]
    shipped: Callable[[], Mapping[Any, Any]]
    held_by: str = ""


@dataclass(frozen=True)
class Past:
    """A run at hand.

    Attributes
    ----------
    name : str
        Of its job, or `SHIPPED` and what tells it from others that are.
    content : hashable
        What was asked.
    title : str
        What a person calls it.
    whole : bool
        Whether nobody has cancelled it.
    """

    name: str
    content: Hashable
    title: str
    result: Any
    whole: bool = True

    @property
    def is_shipped(self) -> bool:
        """Whether it came with the code."""
        return self.name.startswith(SHIPPED)


def runs_at_hand(kind: Kind) -> dict[str, Past]:
    """Return every run whose result is at hand, by name: those shipped, then oldest first.

    What is shipped is listed once its settings were looked at in this session.
    """
    shipped = (
        (f"{SHIPPED} {kind.describe(content)}", content, result, True)
        for content, result in kind.shipped().items()
        if content in _seen(kind.page)
    )
    ran = (
        (job.name, job.content, job.result, not job.cancelled.is_set())
        for job in shared_jobs().results(kind.asked)
    )
    found = {}
    for name, content, result, whole in (*shipped, *ran):
        beginning = "The paper's run" if name.startswith(SHIPPED) else "Run"
        usual = f"{beginning}: {kind.describe(content)}"
        title = st.session_state.setdefault(_title(kind.page, name), usual)
        found[name] = Past(name, content, title or kind.describe(content), result, whole)
    return found


def at_hand(kind: Kind, content: Hashable) -> Past | None:
    """Return the run to be shown for these settings, None if there is none to show.

    A run that has just ended is shown; then, of these settings, the last that was not cut short.
    Where there is nothing of these settings, it is the run that was shown before.
    """
    page, job = kind.page, latest_job(kind.page)
    if content not in _seen(page):
        _seen(page).append(content)
    every = runs_at_hand(kind)
    ended, looked_for = f"{page}/ended", _looked_for(page)
    if job is not None and job.name != st.session_state.get(ended):
        st.session_state[ended] = job.name
        _show(page, job.name)
    elif st.session_state.get(looked_for) != content:
        same = [past.name for past in every.values() if past.content == content and past.whole]
        if same and st.session_state.get(f"{page}/showing") not in same:
            _show(page, same[-1])
    st.session_state[looked_for] = content
    return every.get(st.session_state.get(f"{page}/showing", ""))


def _looked_for(page: str) -> str:
    return f"{page}/looked-for"


def _seen(page: str) -> list[Hashable]:
    """Return the settings that were looked at in this session."""
    seen: list[Hashable] = st.session_state.setdefault(f"{page}/seen", [])
    return seen


def _title(page: str, name: str) -> str:
    return f"{page}/runs/{name}"


def _show(page: str, name: str) -> None:
    st.session_state[f"{page}/showing"] = name


def offer(button: str = "Run") -> None:
    """Say that there is nothing to show of these settings yet."""
    st.info(
        plain(f"Nothing of these settings is at hand: press {button} to measure them."),
        icon=":material/play_arrow:",
    )


def about(past: Past, words: str, finished: tuple[int, int], chosen: Hashable) -> None:
    """Say which run is shown, whether it was cut short, and whether the settings have changed.

    Parameters
    ----------
    words : str
        What was run.
    finished : (int, int)
        Dialogs of each scenario that are finished, and that were asked for.
    chosen : hashable
        What the sidebar has.
    """
    origin = ""
    if past.is_shipped:
        run = papers_run()
        origin = f" Measured on {run.made} with version {run.version} of this project, and shipped."
    st.caption(plain(f"Shown: {words}.{origin}"))
    done, asked = finished
    if done < asked:
        st.warning(
            plain(f"Cancelled: this is of {done:,} of {asked:,} dialogs of each scenario."),
            icon=":material/cancel:",
        )
    tell_changed(past, chosen)


def tell_changed(past: Past, chosen: Hashable) -> None:
    """Say if the sidebar has other settings than the run that is shown."""
    if past.content != chosen:
        st.info(
            "The sidebar has other settings than this run: run it again to measure them.",
            icon=":material/tune:",
        )


# ------------------------------------------------------------------------------- the list


def show_runs(kind: Kind, shown: Past | None) -> None:
    """List all runs: to be shown, named, downloaded, compared and deleted."""
    every = runs_at_hand(kind)
    if not every:
        return
    with st.popover(plain(f"Runs ({len(every)})"), icon=":material/history:"):
        for past in every.values():
            _row(kind, past, past.name == (shown and shown.name))
        if len(every) > 1 and kind.results is not None:
            _compare(kind, kind.results, every)


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
        st.download_button(
            "Download",
            lambda: as_zip(kind.files(past.result)),
            "fdkvc-run.zip",
            "application/zip",
            key=f"{key}/download",
            on_click="ignore",
            icon=":material/folder_zip:",
        )
        st.button(
            "Delete",
            key=f"{key}/delete",
            on_click=_delete,
            args=(page, past.name),
            disabled=past.is_shipped,
            icon=":material/delete:",
        )


def _choose(kind: Kind, name: str, content: Hashable) -> None:
    """Show a run with its settings in the sidebar."""
    link = kind.link(content)
    fields.adopt(kind.held_by or kind.page, kind.fields(link), link)
    _show(kind.page, name)


def _delete(page: str, name: str) -> None:
    if st.session_state.get(f"{page}/shown") == name:
        del st.session_state[f"{page}/shown"]
    shared_jobs().drop(name)
    st.session_state.pop(_looked_for(page), None)


@st.fragment
def _compare(kind: Kind, of: Callable[[Any], Results], every: Mapping[str, Past]) -> None:
    """Set two runs beside each other."""
    titles = {name: past.title for name, past in every.items()}
    with st.container(horizontal=True):
        one = pick(f"{kind.page}/runs-one", "Compare", titles, list(titles)[-1], width=360)
        others = {name: title for name, title in titles.items() if name != one}
        other = pick(f"{kind.page}/runs-other", "with", others, width=360)
    results = [of(every[name].result) for name in (one, other)]
    table = runs_table(*results)
    if table.empty:
        st.info("These runs have no scenario, policy and metric in common.")
        return
    st.markdown(
        "Both have the same dialogs, so that their difference is taken in each of those that both "
        "finished."
        if same_dialogs(*results)
        else "They have different dialogs, so that their means are compared."
    )
    st.dataframe(compared(table), hide_index=True, key=f"{kind.page}/runs-table", height="content")
    st.caption(
        plain(
            f"Intervals cover 95 %. What is said takes into account that "
            f"{count(int(table.p_holm.notna().sum()), 'test')} stand here (Holm)."
        )
    )


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Return two runs beside each other as people read it."""
    return pd.DataFrame(
        {
            "scenario": table.scenario.map(scenario_label),
            "policy": [read_policy(name).title for name in table.policy],
            "metric": [late_metric(name).label for name in table.metric],
            "one less the other": table.words.map(minus),
            "one": table.one.round(4),
            "dialogs": table.n_one,
            "the other": table.other.round(4),
            "dialogs of the other": table.n_other,
        }
    )
