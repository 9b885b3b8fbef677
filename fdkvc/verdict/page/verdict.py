"""The verdict on a file: which policy, how much cache and what is forgotten, measured unasked."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import Spec, Theme
from fdkvc.conversations.arguments import worst_losses
from fdkvc.conversations.page.file_choice import DIALOG
from fdkvc.conversations.page.files import DialogFile
from fdkvc.conversations.replay import default_heads
from fdkvc.core.limits import MAX_CONFIG_MEGABYTES, MAX_DRAWN_POLICIES, MAX_LANES
from fdkvc.core.parameters import Field
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import command_line, count
from fdkvc.engine.metrics import late_metric
from fdkvc.engine.sinks import PROTECT
from fdkvc.engine.summary import mean_table
from fdkvc.explain.notes import pinned_notes
from fdkvc.models.numpy.gguf_file import find_model
from fdkvc.models.numpy.model_folder import parse_config
from fdkvc.policies import CANDIDATES, read_policy
from fdkvc.runs.grid import Grid, marks_sentence
from fdkvc.ui import fields
from fdkvc.ui.downloads import offer_zip, report_button, show_chart
from fdkvc.ui.fields import held, pick, problems
from fdkvc.ui.follow import arrive
from fdkvc.ui.frame import page_theme, panel, show_grid, side_by_side
from fdkvc.ui.jobs import Job, Jobs
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.run_panel import POLL_SECONDS, cancel_other, session_job, shared_jobs, standing
from fdkvc.ui.sidebar import ENTRY, TURN
from fdkvc.verdict.model_shape import SHAPE, SHAPES, ModelShape, shape_of
from fdkvc.verdict.page import choices
from fdkvc.verdict.page.choices import COMPARED, LARGER, Chosen
from fdkvc.verdict.page.replay import (
    CHECKED_WITH,
    FileRun,
    Replayed,
    check_file,
    measured_recordings,
    replay_file,
    report_of,
)
from fdkvc.verdict.page.vectors import LAYERS, LETTERS, VECTORS, Vectors
from fdkvc.verdict.plan import OFFERED, TARGET, Verdict, replay_settings, unpinned_name
from fdkvc.verdict.results import replay_grid, sources_grid


def show_verdict(page: str, chosen: Chosen) -> None:
    """Show the card with the verdict on a file, whose run starts by itself."""
    dialog, heads = held(page, DIALOG), default_heads(chosen.head.recording)
    with st.container(border=True, key="verdict"):
        card = st.container()
        with st.container(horizontal=True, key="verdict-controls"):
            with st.popover("Model, target, policies", icon=":material/tune:"):
                model, shape = _choose_shape(page)
                target = int(fields.choice(page, TARGET)) / 100
                compared = fields.several(page, COMPARED)
            larger = int(held(page, LARGER))
            run = _run(chosen.file, compared, larger, chosen.vectors, heads)
            run = replace(run, first=dialog)
            job = session_job(f"{page}/verdict", shared_jobs(), partial(replay_file, run), run)
            check = None
            if job.result is None:  # a check of another file would slow this one down
                cancel_other(f"{page}/check", _checks())
            else:
                verdict = _verdict(job.result, shape, target)
                check = _check(page, job.result, verdict)
                planned = replace(job.result, shape=shape, target=target)
                _offer(page, planned, _command(run, compared, model, target, check is not None))
    under_way = [row for row in (job, check) if row is not None and not row.finished]

    def draw() -> None:
        if any(row.finished for row in under_way):
            st.rerun()
        _draw(page, job, check, shape, target)

    with card:
        st.fragment(run_every=POLL_SECONDS if under_way else None)(draw)()


@st.cache_resource(show_spinner=False)
def _checks() -> Jobs:
    """Return the checks of this process, one at a time, for which no verdict waits."""
    return Jobs(running=1)


def _check(page: str, done: Replayed, verdict: Verdict) -> Job | None:
    """Return the job that checks a verdict with a model; None where that is not installed."""
    try:
        find_model(CHECKED_WITH)
    except ValueError:
        return None
    if not verdict.policy:
        return None
    work = partial(check_file, verdict, done.tokens, done.file)
    content = done.file.key, verdict.policy, verdict.budget
    return session_job(f"{page}/check", _checks(), work, content)


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
def _run(
    file: DialogFile, compared: tuple[str, ...], larger: int, vectors: Vectors | None, heads: str
) -> FileRun:
    policies = () if compared == CANDIDATES else tuple(map(read_policy, compared))
    settings = replay_settings(measured_recordings(file), policies)
    added = [size for size in OFFERED if size > max(settings.budgets)][:larger]
    settings = replace(settings, budgets=(*settings.budgets, *added), heads=(heads,))
    return FileRun(settings, file.key, vectors, file)


# ------------------------------------------------------------------------------- the card


def _draw(page: str, job: Job, check: Job | None, shape: ModelShape, target: float) -> None:
    """Draw the answer so far, with its curve and the worst losses."""
    if not job.finished:
        share, words = standing(job)
        st.progress(share, text=plain(f"Replaying this file: {words}"))
    problems(job.problem)
    done = job.latest
    if done is None:
        return
    verdict = _verdict(done, shape, target)
    with side_by_side("verdict"):
        with panel("verdict-words"):
            begun = "" if job.finished else "Not final: "
            st.markdown(Markdown("**{}{}**").format(begun, verdict.lead))
            if verdict.policy:
                st.markdown(plain(verdict.rest))
                _show_losses(page, done, verdict)
                if check is not None:
                    _show_check(check)
                st.caption(plain(f"{_so_far(done)}{verdict.caution}"))
        if verdict.policy:
            with panel("verdict-curve"):
                show_chart(page, "verdict", _chart(done, verdict, page_theme()))
    if job.finished:
        _show_figures(page, done, verdict)


def _show_check(job: Job) -> None:
    """Show what a model says of the verdict, or that it reads."""
    if not job.finished:
        _, words = standing(job)
        reading = "SmolLM2 reads a few of these dialogs in the background, to check this"
        st.caption(plain(f"{reading}: {words}."))
    elif job.result is None:
        st.caption(plain(job.problem))
    elif job.result.contradicts:
        st.warning(plain(job.result.sentence), icon=":material/warning:")
    else:
        st.markdown(plain(job.result.sentence))


_verdict = cached(Replayed.verdict)


def _so_far(done: Replayed) -> str:
    """Return on how many dialogs an answer rests, unless it rests on all of the file."""
    ready, requested = done.table.dialog.nunique(), len(done.recordings)
    if ready < requested:
        return f"So far {ready} of {count(requested, 'dialog')}. "
    total = len(done.file.transcripts)
    if requested == total:
        return ""
    part = f"These are {requested:,} of {total:,} dialogs of the file"
    return f"{part}; the command line runs any number. "


@cached
def _chart(done: Replayed, verdict: Verdict, theme: Theme) -> Spec:
    """Return recall by budget, of the chosen policy and of those without a pinned prompt."""
    means = mean_table(done.table)
    means = means[(means.metric == "call_recall") & (means.heads == done.settings.heads[0])]
    titles = {policy.name: policy.title for policy in done.settings.policies}
    unpinned = [name for name in titles if unpinned_name(name) in (name, verdict.policy)]
    names = [*dict.fromkeys((verdict.policy, *unpinned))][:MAX_DRAWN_POLICIES]
    drawn = means[means.policy.isin(names)]
    return budgets_chart(
        drawn.assign(policy=drawn.policy.map(titles)),
        "Recall of the values that calls need",
        theme,
        policies=tuple(titles[name] for name in titles if name in names),
        chosen=(titles[verdict.policy], verdict.budget),
    )


def _show_losses(page: str, done: Replayed, verdict: Verdict) -> None:
    """Offer the worst losses, each of which leads to its moment on the stage."""
    losses = worst_losses(done.lost(verdict.policy, verdict.budget))
    if losses.empty:
        return
    with st.container(horizontal=True, key="losses", vertical_alignment="center"):
        st.markdown("Worst losses", width="content")
        for number, row in enumerate(losses.to_dict("records")):
            story = (
                f"{row['call']} in turn {row['turn']} of {row['dialog']} needs it, "
                f"{GIVEN_BY[row['source']]} in turn {row['mentioned']} and evicted in turn "
                f"{row['lost']}. {count(row['calls'], 'call')} lacked it."
            )
            words = f"{row['slot']} “{row['value'][:24]}”"
            if st.button(plain(words), key=f"{page}/loss/{number}", help=plain(story)):
                go_to(page, done, row)


def go_to(page: str, done: Replayed, row: Mapping[Any, Any]) -> None:
    """Show the moment at which a forgotten argument was needed, and rerun the page."""
    names = [transcript.name for transcript in done.file.transcripts]
    dialog = names.index(row["dialog"])
    policies = held(page, choices.POLICIES)
    if row["policy"] not in policies:  # such as one with the prompt pinned
        policies = (*policies[: MAX_LANES - 1], row["policy"])
    needed = (row["turn"], row["call"], row["call_number"]), row["slot"]
    evidence = done.recording(dialog).evidence
    mentions = next(tokens for row, tokens in evidence if (row.needed_by, row.slot) == needed)
    token = int(mentions[-1][0])
    model, layers = done.model or (LETTERS, LAYERS.default)
    values: list[tuple[Field, Any]] = [(VECTORS, model), (LAYERS, layers)]
    values += [(DIALOG, dialog), (choices.POLICIES, policies)]
    values += [(choices.WHOSE, row["policy"]), (choices.BUDGET, int(row["budget"]))]
    values += [(TURN, int(row["turn"])), (ENTRY, token)]
    arrive(page, choices.which_dialog(page, dialog, model))
    fields.hold_and_rerun(page, values)


def _show_figures(page: str, done: Replayed, verdict: Verdict) -> None:
    """Offer recall by source and age, and every metric by policy and budget."""
    figures = st.expander("All figures", key=f"{page}/figures", on_change="rerun")
    if not figures.open:
        return
    with figures:
        if verdict.policy:
            grid = sources_grid(done.sources, done.settings, verdict.budget)
            show_grid(grid, f"Recall of call arguments with {verdict.budget:,} entries")
            by = "by the kind of span that mentioned the value last, and how many turns ago"
            st.caption(plain(f"With {verdict.budget:,} entries, in percent: {by}."))
        titles = {key: late_metric(key).title for key in dict.fromkeys(done.table.metric)}
        key = pick(f"{page}/figures/metric", "Table of", titles)
        show_grid(_by_budget(done, key), titles[key])
        notes = _notes(done)
        st.caption(plain(" ".join([f"{marks_sentence(done.baseline)}.", *notes, PROTECT])))


@cached
def _by_budget(done: Replayed, metric: str) -> Grid:
    titles = {policy.name: policy.title for policy in done.settings.policies}
    return replay_grid(done.table, done.baseline, metric, titles.__getitem__)


@cached
def _notes(done: Replayed) -> list[str]:
    return pinned_notes(done.file.transcripts, done.settings.policies, done.settings.budgets)


def _offer(page: str, done: Replayed, command: str) -> None:
    """Offer larger budgets, the command line that prints the same, the files and a report."""
    largest = max(done.settings.budgets)
    if largest < min(max(done.tokens), OFFERED[-1]) and st.button(
        "Try larger budgets", key=f"{page}/verdict/larger", icon=":material/expand:"
    ):
        fields.hold_and_rerun(page, [(LARGER, int(held(page, LARGER)) + 1)])
    with st.popover("Command line", icon=":material/terminal:"):
        st.code(command, language=None, wrap_lines=True)
    offer_zip(f"{page}/verdict/zip", "fdkvc-run.zip", lambda: done.files, "Download")
    report_button(f"{page}/verdict", lambda: report_of(done), "The verdict and all tables")


def _command(
    run: FileRun, compared: tuple[str, ...], model: str, target: float, checked: bool
) -> str:
    """Return the command line that prints the same verdict."""
    file, options = run.file, dict[str, object]()
    options["trace" if file.traced else "dialogs"] = file.name
    for name in ("calls", "tools"):
        if any(getattr(transcript, f"{name}_in_text") for transcript in file.transcripts):
            options[name] = True
    if compared != CANDIDATES:
        options["policies"] = compared
    options |= {"budgets": run.replay.budgets, "plan": model, "target": f"{100 * target:.0f}"}
    if checked:
        options["model"] = CHECKED_WITH
    return command_line("dialogs", options)
