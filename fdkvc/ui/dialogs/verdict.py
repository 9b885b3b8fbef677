"""The verdict on a file: which policy, how much cache and what is forgotten, measured unasked."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Unpack

import pandas as pd
import streamlit as st

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import Spec
from fdkvc.corpora.lexical import LexicalRecordings
from fdkvc.corpora.model_folder import parse_config
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.arguments import GIVEN_BY, worst_losses
from fdkvc.experiments.jobs import Execution, Progress
from fdkvc.experiments.model_shape import SHAPE, SHAPES, ModelShape, shape_of
from fdkvc.experiments.plan import OFFERED, TARGET, Verdict, judged_replay, unpinned_name
from fdkvc.experiments.replay import replay_arguments, replay_tables
from fdkvc.limits import MAX_CONFIG_MEGABYTES, MAX_DRAWN_POLICIES
from fdkvc.policies import JUDGED, read_policy
from fdkvc.ui.dialogs.choices import COMPARED, LARGER
from fdkvc.ui.dialogs.files import DialogFile
from fdkvc.ui.dialogs.forgotten import Replayed, go_to
from fdkvc.ui.dialogs.replay import FileRun, means_of, report_of
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.downloads import offer_zip, report_button, show_chart
from fdkvc.ui.kit.fields import problems
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.jobs import Job
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.run_panel import POLL_SECONDS, shared_jobs, standing
from fdkvc.words import command_line, count


def show_verdict(page: str, file: DialogFile) -> None:
    """Show the card with the verdict on a file, whose run starts by itself."""
    with st.container(border=True, key="verdict"):
        card = st.container()
        with st.container(horizontal=True, key="verdict-controls"):
            with st.popover("Model, target, policies", icon=":material/tune:"):
                model, shape = _choose_shape(page)
                target = int(fields.choice(page, TARGET)) / 100
                compared = fields.several(page, COMPARED)
            run = _run(file, compared, int(fields.held(page, LARGER)))
            job = shared_jobs().of(run) or shared_jobs().start(partial(judge_file, run), run)
            _cancel_other(page, job)
            if job.result is not None:
                planned = replace(job.result, shape=shape, target=target)
                _offer(page, planned, _command(run, compared, model, target))
    running = not job.finished

    def draw() -> None:
        if running and job.finished:
            st.rerun()
        _draw(page, job, shape, target)

    with card:
        st.fragment(run_every=POLL_SECONDS if running else None)(draw)()


def _cancel_other(page: str, job: Job) -> None:
    """Cancel the session's run for what its card showed before, unless it has ended."""
    key, jobs = f"{page}/verdict", shared_jobs()
    before = jobs.find(st.session_state.get(key))
    if before is not None and before is not job and not before.finished:
        before.cancel()
    st.session_state[key] = job.name


def _choose_shape(page: str) -> tuple[str, ModelShape]:
    """Return the name of the chosen model for the command line, and its shape."""
    key = fields.choice(page, SHAPE)
    config = st.file_uploader(
        "Or a config.json of your own",
        type="json",
        key=f"{page}/plan/config",
        max_upload_size=MAX_CONFIG_MEGABYTES,
    )
    if config is not None:
        try:
            return "config.json", shape_of(parse_config(config.getvalue()))
        except ValueError as error:
            problems(f"{error}. Using {SHAPES[key].name}.")
    return key, SHAPES[key]


@cached
def _run(file: DialogFile, compared: tuple[str, ...], larger: int) -> FileRun:
    policies = () if compared == JUDGED else tuple(map(read_policy, compared))
    settings = judged_replay(_recordings(file), policies)
    more = [size for size in OFFERED if size > max(settings.budgets)][:larger]
    return FileRun(replace(settings, budgets=(*settings.budgets, *more)), file.key, None, file)


def _recordings(file: DialogFile) -> Sequence[Recording]:
    return file.traced[: file.measured] or LexicalRecordings(file.transcripts[: file.measured])


def judge_file(run: FileRun, **how: Unpack[Execution]) -> Replayed:
    """Run the dialogs of a file; progress has the result of the first ones, ever more of them."""
    recordings, began = _recordings(run.file), perf_counter()
    about: dict[str, Any] = {"name": run.file.name, "digest": run.file.digest, "file": run.file}
    report, latest, due = how.pop("on_progress", None), None, 0

    def made(tables: tuple[pd.DataFrame, pd.DataFrame]) -> Replayed:
        return Replayed(run.replay, recordings, *tables, perf_counter() - began, **about)

    def collect(chunks: Sequence[Any]) -> None:
        nonlocal latest, due
        if len(chunks) > due:
            latest, due = made(replay_tables(chunks)), 2 * len(chunks)

    def progress(step: Progress) -> None:
        if report is not None:
            report(replace(step, partial=latest if step.done < step.total else None))

    how |= {"on_progress": progress, "on_results": collect}
    return made(replay_arguments(run.replay, recordings, spread=True, **how))


# ------------------------------------------------------------------------------- the card


def _draw(page: str, job: Job, shape: ModelShape, target: float) -> None:
    """Draw the answer so far, with its curve and the worst losses."""
    if not job.finished:
        share, words = standing(job)
        st.progress(share, text=plain(f"Judging this file: {words}"))
    problems(job.problem)
    done = job.latest
    if done is None:
        return
    found = _verdict(done, shape, target)
    if not found.policy:
        st.markdown(plain(found.lead))
        return
    with side_by_side("verdict"):
        with panel("verdict-words"):
            st.markdown(Markdown("**{}**").format(found.lead))
            st.markdown(plain(found.rest))
            _show_losses(page, done, found)
            st.caption(plain(f"{_so_far(done)}{found.caution}"))
        with panel("verdict-curve"):
            show_chart(page, "verdict", _chart(done, found))


@cached
def _verdict(done: Replayed, shape: ModelShape, target: float) -> Verdict:
    return done.verdict(shape, target)


def _so_far(done: Replayed) -> str:
    """Return on how many dialogs an answer rests while others are still to come."""
    ready, every = done.table.dialog.nunique(), len(done.recordings)
    return f"So far {ready} of {count(every, 'dialog')}. " if ready < every else ""


def _chart(done: Replayed, found: Verdict) -> Spec:
    """Return recall by budget, of the chosen policy and of those without a pinned prompt."""
    means = means_of(done)
    means = means[(means.metric == "call_recall") & (means.heads == done.settings.heads[0])]
    titles = {policy.name: policy.title for policy in done.settings.policies}
    unpinned = [name for name in titles if unpinned_name(name) in (name, found.policy)]
    names = [*dict.fromkeys((found.policy, *unpinned))][:MAX_DRAWN_POLICIES]
    drawn = means[means.policy.isin(names)]
    return budgets_chart(
        drawn.assign(policy=drawn.policy.map(titles)),
        "Recall of the values that calls need",
        page_theme(),
        policies=tuple(titles[name] for name in titles if name in names),
        chosen=(titles[found.policy], found.budget),
    )


def _show_losses(page: str, done: Replayed, found: Verdict) -> None:
    """Offer the worst losses, each of which leads to its moment on the stage."""
    losses = worst_losses(done.lost(found.policy, found.budget))
    if losses.empty:
        return
    with st.container(horizontal=True, key="losses", vertical_alignment="center"):
        st.markdown("Worst losses", width="content")
        for at, row in enumerate(losses.to_dict("records")):
            story = (
                f"{row['call']} in turn {row['turn']} of {row['dialog']} needs it, "
                f"{GIVEN_BY[row['source']]} in turn {row['mentioned']} and evicted in turn "
                f"{row['lost']}. {count(row['calls'], 'call')} lacked it."
            )
            words = f"{row['slot']} “{row['value'][:24]}”"
            if st.button(plain(words), key=f"{page}/loss/{at}", help=plain(story)):
                go_to(page, done, row)


def _offer(page: str, done: Replayed, command: str) -> None:
    """Offer larger budgets, the command line that prints the same, the files and a report."""
    largest = max(done.settings.budgets)
    if largest < min(max(done.tokens), OFFERED[-1]) and st.button(
        "Try larger budgets", key=f"{page}/verdict/larger", icon=":material/expand:"
    ):
        fields.hold_and_rerun(page, [(LARGER, int(fields.held(page, LARGER)) + 1)])
    with st.popover("Command line", icon=":material/terminal:"):
        st.code(command, language=None, wrap_lines=True)
    offer_zip(f"{page}/verdict/zip", "fdkvc-run.zip", lambda: done.files, "Download")
    report_button(f"{page}/verdict", lambda: report_of(done), "The verdict and all tables")


def _command(run: FileRun, compared: tuple[str, ...], model: str, target: float) -> str:
    """Return the command line that prints the same verdict."""
    file, options = run.file, dict[str, object]()
    options["trace" if file.traced else "dialogs"] = file.name
    for name in ("calls", "tools"):
        if any(getattr(transcript, f"{name}_in_text") for transcript in file.transcripts):
            options[name] = True
    if compared != JUDGED:
        options["policies"] = compared
    options |= {"budgets": run.replay.budgets, "plan": model, "target": f"{100 * target:.0f}"}
    return command_line("dialogs", options)
