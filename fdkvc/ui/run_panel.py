"""Run, progress and Cancel: what a page shows of its background run."""

import math
from collections.abc import Callable, Hashable
from threading import Timer
from time import perf_counter

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.ui.address import browser
from fdkvc.ui.fields import problems
from fdkvc.ui.jobs import Held, Job, Jobs, Work
from fdkvc.ui.markdown import plain

POLL_SECONDS = 0.5


@st.cache_resource(show_spinner=False)
def shared_jobs() -> Jobs:
    """Return the jobs of this process, which all sessions share."""
    return Jobs()


def job_key(page: str) -> str:
    """Return where a session holds the name of a page's job until its result is shown."""
    return f"{page}/job"


def shown_key(page: str) -> str:
    """Return where a session holds the name of the run that a page shows."""
    return f"{page}/shown"


def run_panel(page: str, name: str, work: Work, content: Hashable) -> Job | None:
    """Show the button that runs, the progress and Cancel; return the job that is going on.

    Each page has one run, with contents of one type. It is found again when the user comes back,
    also after a reload and in another tab.
    """
    jobs = shared_jobs()
    job = jobs.find(st.session_state.get(job_key(page)))
    if job is None:  # a new session: its browser may have a run that goes on
        job = jobs.going_on(type(content), browser())
        if job is not None:
            st.session_state[job_key(page)] = job.name
    busy = job is not None and not job.finished
    with st.container(horizontal=True, vertical_alignment="center", key=f"run-{page}"):
        # No callback: it would start the previous settings, without one that was just typed.
        if st.button(
            plain(name),
            key=f"{page}/run",
            type="primary",
            icon=":material/play_arrow:",
            disabled=busy,
        ):
            st.session_state[job_key(page)] = jobs.start(work, content, browser()).name
            st.rerun()
        if job is not None and busy:
            _watch(page, job)
    if job is not None and not busy:
        problems(job.problem)
        if job.result is not None:
            st.session_state[shown_key(page)] = st.session_state.pop(job_key(page))
        elif job.cancelled.is_set():
            st.info("Cancelled: nothing is finished.", icon=":material/cancel:")
    return job if busy else None


def session_job(key: str, jobs: Jobs, work: Work, content: Hashable) -> Job:
    """Return the job of this content, started if need be; the session waits for no other."""
    job = session_jobs().hold_job_of(key, jobs, work, content)
    st.session_state[key] = job.name
    return job


def _release(session_holds: Held) -> None:
    """Let go of a session's jobs, unless it comes back, as it does from a lost connection."""
    late = Timer(st.get_option("server.disconnectedSessionTTL"), session_holds.release)
    late.daemon = True
    late.start()


@st.cache_resource(scope="session", on_release=_release, show_spinner=False)
def session_jobs() -> Held:
    """Return the jobs for which this session waits."""
    return Held()


@st.fragment(run_every=POLL_SECONDS)
def _watch(page: str, job: Job) -> None:
    if job.finished:
        st.rerun()  # the whole page, which shows the result
    show_progress(job, "Cancel", f"{page}/cancel", "Stop, and show what is finished.")


def show_progress(job: Job, button: str, key: str, effect: str, title: str = "") -> None:
    """Show the progress of a job, and a button that ends it; a tooltip tells the effect."""
    share, words = standing(job)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.progress(share, text=plain(f"{title}{words}"), width="stretch" if title else 460)
        st.button(
            plain(button),
            key=key,
            icon=":material/stop_circle:",
            on_click=job.cancel,
            disabled=job.cancelled.is_set(),
            help=plain(effect),
        )


def standing(job: Job) -> tuple[float, str]:
    """Return the share that is done, and the rest in words."""
    if job.waiting:
        return 0.0, "Waiting for another run to end"
    progress = job.progress
    if progress is None:
        return 0.0, "Starting"
    share = progress.finished_jobs / progress.total
    words = "stopping" if job.cancelled.is_set() else _time_left(progress.seconds_left)
    return share, f"{progress.title}, {words}"


def timed_bar(place: DeltaGenerator, words: str) -> Callable[[float], object]:
    """Return what shows a share of some work on a bar, with the time left at the pace so far."""
    began = perf_counter()

    def show(share: float) -> None:
        seconds_left = (perf_counter() - began) * (1 - share) / share if share else math.inf
        place.progress(share, plain(f"{words}, {_time_left(seconds_left)}"))

    return show


def _time_left(seconds: float) -> str:
    if math.isinf(seconds):
        return "estimating the time left"
    if seconds < 1:
        return "almost done"
    if seconds < 90:
        return f"about {seconds:.0f} s left"
    return f"about {seconds / 60:.0f} min left"
