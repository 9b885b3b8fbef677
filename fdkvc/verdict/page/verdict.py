"""The card of a file: which way, how much cache and what is forgotten, measured unasked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from fdkvc.charts.results import budgets_chart
from fdkvc.charts.theme import Spec, Theme
from fdkvc.conversations.arguments import worst_losses
from fdkvc.conversations.page.file_choice import DIALOG, name_example
from fdkvc.conversations.page.files import DialogFile
from fdkvc.conversations.replay import Replay, transcripts_of
from fdkvc.core.limits import MAX_LANES, MAX_MODEL_JSON_BYTES
from fdkvc.core.parameters import Field
from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import GIVEN_BY, Transcript
from fdkvc.core.words import command_line, count
from fdkvc.explain.notes import missing_value_notes
from fdkvc.models.numpy.encoding import Encoding
from fdkvc.models.numpy.gguf_file import MODEL_COMMAND
from fdkvc.models.page.loading import MODELS
from fdkvc.policies import Policy, read_policy
from fdkvc.policies.ways import way_words
from fdkvc.ui import fields
from fdkvc.ui.downloads import offer_zip, show_chart
from fdkvc.ui.fields import held, hold, problems
from fdkvc.ui.follow import arrive
from fdkvc.ui.frame import page_theme, panel, show_grid
from fdkvc.ui.glossary import help_on
from fdkvc.ui.jobs import FAILED, Job, Jobs
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
from fdkvc.verdict.card import TARGET, Card, Way, ways_for
from fdkvc.verdict.checked import MINUTES, TAKES, installed
from fdkvc.verdict.model_shape import SHAPE, SHAPES, ModelShape
from fdkvc.verdict.page import choices
from fdkvc.verdict.page.choices import chosen_encoding
from fdkvc.verdict.page.replay import (
    FileRun,
    check_replay,
    lose_in_file,
    measured_recordings,
    replay_file,
)
from fdkvc.verdict.page.vectors import LETTERS, VECTORS
from fdkvc.verdict.results import ReplayRun
from fdkvc.verdict.search import needed_values, share_table
from fdkvc.verdict.sentences import (
    card_grid,
    certainty_sentence,
    limit_settings,
    others_sentence,
    promise_sentence,
    purpose,
    setting_sentence,
    short_grid,
    shown_ways,
    today_certainty,
    today_notes,
    today_sentence,
    way_settings,
)
from fdkvc.verdict.today import PRESETS, STOPS, TODAY_TOKENS, TODAY_WAY, Today, TodayLoss


def show_verdict(page: str, file: DialogFile) -> bool:
    """Show the card of a file, whose run starts by itself.

    Return whether it is known what the transcript shows.
    """
    with st.container(border=True, key="verdict"):
        name_example(page, "judges")
        with st.container(horizontal=True, vertical_alignment="bottom", key="verdict-today"):
            today = _choose_today(page)
        card_column = st.container()
        controls = st.container(horizontal=True, key="verdict-controls")
        with controls, st.popover("Model and target", icon=":material/tune:"):
            shape_key = _choose_shape(page)
            encoding = chosen_encoding(page)
            target = int(fields.choice(page, TARGET)) / 100
            # One that cannot be loaded says so once it is chosen: to find out takes a second each.
            reader = str(MODELS[fields.choice(page, choices.READER)])
            minutes = int(fields.number(page, MINUTES))
        settings = Replay(_ways(file, encoding), (1,))
        run = FileRun(settings, target, file.key, encoding, file)
        known = _known(page, run, today, SHAPES[shape_key], reader, minutes)
        setting_known = _follow(page, known)
        with controls:
            if known.measured is not None:
                model = "" if known.check is None else reader
                command = _command(run, shape_key, today, model)
                _offer(page, known, *known.measured, command)
    with card_column:
        _show_card(page, known)
    return setting_known


def _choose_today(page: str) -> Today:
    """Choose what is done today: a limit, and a way."""
    tokens = int(fields.number(page, TODAY_TOKENS))

    def take_default() -> None:
        # A limit that a person has entered stays.
        if held(page, TODAY_TOKENS) in {preset.tokens for preset in PRESETS.values()}:
            hold(page, TODAY_TOKENS, PRESETS[held(page, TODAY_WAY)].tokens)

    way = fields.choice(page, TODAY_WAY, on_change=take_default, width="content")
    fields.choice(page, choices.TOKENS_OF, width="content")
    return Today(way, tokens)


@dataclass(frozen=True)
class Known:
    """What the page knows of a file so far, and which runs go on."""

    run: FileRun
    shape: ModelShape
    reader: str
    """The model that reads, by its place."""
    loss_job: Job
    search_job: Job
    check: Job | None
    """In which a model reads; None where there is none, or nothing is to read."""

    @property
    def loss(self) -> TodayLoss | None:
        """What is lost today."""
        loss: TodayLoss | None = self.loss_job.result
        return loss

    @property
    def measured(self) -> tuple[ReplayRun, Card] | None:
        """The replay, with what a model has read, and its card so far."""
        if self.search_job.result is None:
            return None
        read = None if self.check is None else self.check.result
        result = read or self.search_job.result
        replayed = _asked(result, self.loss, self.shape, self.run.target)
        assert replayed.card is not None  # as it has a shape
        return replayed, replayed.card


def _known(
    page: str, run: FileRun, today: Today, shape: ModelShape, reader: str, minutes: int
) -> Known:
    """Return what is known, and start the runs that are missing."""
    work = partial(lose_in_file, run, today)
    content = run.key, run.encoding, today
    # First what is lost today: it is one replay, and the card begins with it.
    loss_job = session_job(f"{page}/today-loss", shared_jobs(), work, content)
    search_job = session_job(f"{page}/verdict", shared_jobs(), partial(replay_file, run), run)
    known = Known(run, shape, reader, loss_job, search_job, None)
    measured = known.measured
    if measured is None or not loss_job.finished:
        session_jobs().let_go(f"{page}/check")  # a model that reads would slow the others down
        return known
    replayed, card = measured
    if not card.ways or not installed(reader):
        return known
    sizes = tuple((candidate.policy, candidate.size) for candidate in card.ways)
    work_of_check = partial(check_replay, card, replayed, reader, minutes)
    content_of_check = run.key, sizes, reader, minutes
    check = session_job(f"{page}/check", _checks(), work_of_check, content_of_check)
    return replace(known, check=check)


def _follow(page: str, known: Known) -> bool:
    """Once for a file, show its recommended setting; return whether its card was waited for."""
    key = f"{page}/followed"
    file = known.run.file
    if st.session_state.get(key) != file.digest:
        if not known.search_job.finished:
            return False
        st.session_state[key] = file.digest
        if known.measured is not None:
            _show_setting(page, file, *known.measured)
    return True


def _show_card(page: str, known: Known) -> None:
    """Show the answers that are known, and how far the others are."""
    job = known.search_job
    loss_job = known.loss_job
    check = known.check
    reading = check is not None and not check.finished
    searching = not job.finished
    waiting_for_loss = not loss_job.finished

    def wait() -> None:
        if (searching and job.finished) or (waiting_for_loss and loss_job.finished):
            st.rerun()
        if searching:
            show_progress(
                job, "Stop", f"{page}/verdict/stop", "End the run.", "Finding sizes: "
            )
        else:  # one replay, too short to be stopped
            share, words = standing(loss_job)
            st.progress(share, text=plain(f"Today: {words}"))

    def draw() -> None:
        if reading and check is not None and check.finished:
            st.rerun()
        _draw(page, known)

    if known.loss is not None:
        _show_today(page, known)
    problems(loss_job.problem)
    if searching or waiting_for_loss:
        st.fragment(run_every=POLL_SECONDS)(wait)()
    elif job.cancelled.is_set() and job.result is None:
        _show_stopped(f"{page}/verdict")
    # While a model reads it has more each time, and a busy machine needs the pause.
    st.fragment(run_every=POLL_SECONDS * 4 if reading else None)(draw)()


def _show_today(page: str, known: Known) -> None:
    """Show what is lost today, with the worst loss in the transcript."""
    loss = known.loss
    file = known.run.file
    assert loss is not None
    unit = known.run.encoding.name
    with panel("verdict-words"):
        words = today_sentence(loss, unit, known.run.target)
        st.markdown(Markdown("**{}**").format(words))
        if notes := today_notes(loss, unit):
            st.caption(plain(notes))
    if len(loss.worst) and loss.today.policy != STOPS:
        row = loss.worst.iloc[0].to_dict()
        words = f"Open {row['dialog']} where “{row['value'][:24]}” is missing"
        if st.button(plain(words), key=f"{page}/today/open", icon=":material/visibility:"):
            recordings = measured_recordings(file, known.run.encoding)
            open_loss(page, file, recordings, row, (row["policy"],))


def _show_stopped(key: str) -> None:
    """Say that the run was stopped, and offer to go on."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("Stopped before all ways had a size.", width="content")
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


@cached
def _asked(
    result: ReplayRun, today: TodayLoss | None, shape: ModelShape, target: float
) -> ReplayRun:
    """Return a replay with what its card needs, so that the card is computed once."""
    return replace(result, today=today, shape=shape, target=target)


def _choose_shape(page: str) -> str:
    """Return the name of the chosen model; take a tokenizer, too."""
    key: str = fields.choice(page, SHAPE)
    st.file_uploader(
        "A tokenizer.json of your own that counts tokens",
        type="json",
        key=f"{page}/card/tokenizer",
        max_upload_size=MAX_MODEL_JSON_BYTES // 1_000_000,
    )
    return key


@cached
def _ways(file: DialogFile, encoding: Encoding) -> tuple[Policy, ...]:
    return ways_for(measured_recordings(file, encoding))


def _shown_values(card: Card, candidate: Way) -> list[tuple[Field, Any]]:
    """Return the values with which the transcript shows a way, beside another one of the card."""
    leading = [row.policy for row in (card.smaller, *card.ways[:2]) if row]
    # First today's way, at this size, if it may be shown.
    if card.today is not None and card.today.today.policy in {row.policy for row in card.ways}:
        leading.insert(0, card.today.today.policy)
    others = [policy for policy in leading if policy != candidate.policy]
    return [
        (choices.POLICIES, (*others[:1], candidate.policy)),
        (choices.WHOSE, candidate.policy),
        (choices.BUDGET, shown_size(candidate.tried)),
    ]


def _shown_way(card: Card) -> Way | None:
    """Return the recommended way, or else the first one; None if there is none."""
    return card.main_way or next(iter(card.ways), None)


def shown_size(size: int) -> int:
    """Return the size at which the transcript shows a way, at most what the page allows."""
    return int(min(size, choices.BUDGET.high or size))


# ------------------------------------------------------------------------------- the card


def _draw(page: str, known: Known) -> None:
    """Draw what to set and how sure that is, the picture and the table."""
    problems(known.search_job.problem)
    if known.measured is None:
        return
    replayed, card = known.measured
    with panel("verdict-setting"):
        if basis := today_certainty(card):
            st.markdown(plain(basis))
        _show_lines(limit_settings(card))
        best = card.advice.setting
        if best is not None and purpose(card):
            # Folded, so that nobody takes it for what today's limit asks for.
            where = "" if best.in_engines else ", with this project's cache"
            way = f"{best.tried:,} tokens ({way_words(best.policy)})"
            with st.expander(plain(f"{purpose(card).capitalize()}{where}: {way}")):
                _show_setting_words(page, known, card)
        else:
            _show_setting_words(page, known, card)
    if not card.clusters and card.read is None:
        if candidate := _shown_way(card):
            size = count(shown_size(candidate.tried), "token")
            words = f"The transcript below begins with a cache of {size}, as an example"
            st.caption(plain(f"{words}: that is no advice."))
        return
    if card.clusters:  # without calls there are no values to draw
        with panel("verdict-curve"):
            show_chart(page, "verdict", _chart(replayed, card, page_theme()))
    if (grid := short_grid(card)).rows:
        show_grid(grid, "Ways to fit the conversations")
    with st.expander("All ways, and what each forgets"):
        show_grid(card_grid(card), "All ways")
        total = len(known.run.file.transcripts)
        measured = len(replayed.recordings)
        notes = [f"Tokens are those of {card.unit}."]
        if measured < total:
            notes.append(f"These are {measured:,} of {total:,} dialogs.")
        notes += missing_value_notes(transcripts_of(replayed.recordings))
        st.caption(plain(" ".join(notes)))
    if card.advice.setting is not None:
        _show_losses(page, known.run.file, replayed, card.advice.setting)


def _show_setting_words(page: str, known: Known, card: Card) -> None:
    """Show what to set, how sure that is, the lines to copy, and how far the reading model is."""
    st.markdown(Markdown("**{}** {}").format(setting_sentence(card), others_sentence(card)))
    if basis := certainty_sentence(card):
        st.markdown(plain(basis), help=help_on(basis))
    if promise := promise_sentence(card):
        st.caption(plain(promise))
    _show_lines(way_settings(card))
    _show_reader(page, known)


def _show_lines(lines: Mapping[str, str]) -> None:
    """Show lines to copy, a tab for each engine."""
    tabs = st.tabs([*map(plain, lines)]) if lines else ()
    for tab, line in zip(tabs, lines.values(), strict=True):
        tab.code(line, language=None, wrap_lines=True)


def _show_reader(page: str, known: Known) -> None:
    """Show how far the model is that reads, and offer that it reads longer."""
    check = known.check
    if check is not None and not check.finished:
        show_progress(
            check, "Stop", f"{page}/check/stop", "Use what it has read so far.", "Reading: "
        )
    elif check is not None:
        if check.result is None:
            reason = check.problem.removeprefix(FAILED) or "stopped."
            st.caption(plain(f"No model read it: {reason}"))
            if not check.cancelled.is_set() and TAKES not in reason:
                return
        longer = min(5 * held(page, MINUTES), int(MINUTES.high or 0))
        # No callback: of a button in a fragment, it reruns that alone.
        if st.button(
            plain(f"Read for {longer} min"),
            key=f"{page}/check/longer",
            help="The longer it reads, the more of the conversations it compares the ways by.",
        ):
            fields.hold_and_rerun(page, [(MINUTES, longer)])


@cached
def _chart(replayed: ReplayRun, card: Card, theme: Theme) -> Spec:
    """Return the share of values kept by size, of the ways of the table."""
    loss = card.today
    ways = shown_ways(card)
    names = [row.policy for row in ways]
    values = needed_values(replayed.arguments)
    shares = share_table(values[values.policy.isin(names)])
    marks = list[tuple[str, str, float, float]]()
    if loss is not None and loss.count.values:
        # A limit beyond the longest conversation would only stretch the axis.
        size = min(loss.today.tokens, loss.longest)
        marks.append(("today", loss.today.policy, size, loss.count.kept))
    if (setting := card.advice.setting) is not None:
        marks.append(
            (purpose(card) or "recommended", setting.policy, setting.tried, setting.recall)
        )
    readings = []
    for row in ways:
        reading = row.reading
        if row.size and reading is not None and reading.values:
            share = reading.right / reading.values
            readings.append((row.policy, row.size, share, reading.low, reading.high))
    points = pd.DataFrame(marks, columns=["label", "policy", "budget", "mean"])
    read = pd.DataFrame(readings, columns=["policy", "budget", "mean", "ci_low", "ci_high"])
    return budgets_chart(
        shares.assign(policy=shares.policy.map(way_words)),
        "Values kept",
        theme,
        policies={way_words(name): read_policy(name).title for name in names},
        marks=points.assign(policy=points.policy.map(way_words)),
        readings=read.assign(policy=read.policy.map(way_words)),
    )


def _show_losses(page: str, file: DialogFile, replayed: ReplayRun, candidate: Way) -> None:
    """Offer the worst losses, each of which leads to its moment on the stage."""
    losses = worst_losses(replayed.lost(candidate.policy, candidate.tried))
    if losses.empty:
        return
    with st.container(horizontal=True, key="losses", vertical_alignment="center"):
        size = count(candidate.tried, "token")
        st.markdown(plain(f"Worst losses at {size}"), width="content")
        for number, row in enumerate(losses.to_dict("records")):
            story = (
                f"{row['call']} in turn {row['turn']} of {row['dialog']} needs it, "
                f"{GIVEN_BY[row['source']]} in turn {row['mentioned']} and evicted in turn "
                f"{row['lost']}. {count(row['calls'], 'call')} lacked it."
            )
            words = f"{row['slot']} “{row['value'][:24]}”"
            if st.button(plain(words), key=f"{page}/loss/{number}", help=plain(story)):
                open_loss(page, file, replayed.recordings, row)


def open_loss(
    page: str,
    file: DialogFile,
    recordings: Sequence[Recording],
    row: Mapping[Any, Any],
    policies: tuple[str, ...] = (),
    scroll: bool = True,
) -> None:
    """Show the moment at which a forgotten argument was needed, and rerun the page.

    It is shown under these policies, by default under those on the page.
    """
    dialog = _place(file.transcripts, row["dialog"])
    evidence = recordings[_place(transcripts_of(recordings), row["dialog"])].evidence
    policies = policies or held(page, choices.POLICIES)
    if row["policy"] not in policies:  # such as one with the prompt pinned
        policies = (*policies[: MAX_LANES - 1], row["policy"])
    needed_value = (row["turn"], row["call"], row["call_number"]), row["slot"]
    mentions = next(
        tokens
        for demand, tokens in evidence
        if (demand.needed_by, demand.slot) == needed_value
    )
    values = [
        (VECTORS, LETTERS),
        (DIALOG, dialog),
        (choices.POLICIES, policies),
        (choices.WHOSE, row["policy"]),
        (choices.BUDGET, shown_size(int(row["budget"]))),
        (TURN, int(row["turn"])),
        (ENTRY, int(mentions[-1][0])),
    ]
    st.session_state[f"{page}/followed"] = file.digest
    arrive(page, choices.which_dialog(page, dialog, LETTERS), scroll)
    fields.hold_and_rerun(page, values)


def _place(transcripts: Sequence[Transcript], name: str) -> int:
    """Return the place of the dialog of this name."""
    return [transcript.name for transcript in transcripts].index(name)


def _show_setting(
    page: str, file: DialogFile, replayed: ReplayRun, card: Card, scroll: bool = False
) -> None:
    """Show the card's way at its worst loss, if there is a way, and rerun the page."""
    candidate = _shown_way(card)
    if candidate is None:
        return
    values = _shown_values(card, candidate)
    _, names = values[0]
    for row in worst_losses(replayed.lost(candidate.policy, candidate.tried), 1).to_dict(
        "records"
    ):
        open_loss(page, file, replayed.recordings, row, names, scroll)
    fields.hold_and_rerun(page, values)  # nothing was lost


def _offer(page: str, known: Known, replayed: ReplayRun, card: Card, command: str) -> None:
    """Offer the transcript at the worst loss, the command line and the files."""
    file = known.run.file
    setting = card.advice.setting
    is_shown = setting is None
    if setting is not None:
        _, *way_and_size = _shown_values(card, setting)
        is_shown = all(held(page, field) == value for field, value in way_and_size)
    if not is_shown and st.button(
        "Show this setting in the transcript",
        key=f"{page}/verdict/show",
        icon=":material/visibility:",
    ):
        _show_setting(page, file, replayed, card, scroll=True)
    if card.ways and not installed(known.reader):
        with st.popover("Let a model read them", icon=":material/smart_toy:"):
            st.caption(
                "SmolLM2 (93 MB) reads them by itself, once it is installed. Another model is "
                "chosen under “Model and target”."
            )
            st.code(MODEL_COMMAND, language=None)
    with st.popover("Command line", icon=":material/terminal:"):
        st.code(command, language=None, wrap_lines=True)
    name = f"fdkvc-{Path(file.name).stem}-{datetime.now(UTC):%Y-%m-%d}"
    offer_zip(f"{page}/verdict/zip", f"{name}.zip", lambda: replayed.files, "Download")


def _command(run: FileRun, shape_key: str, today: Today, model: str) -> str:
    """Return the command line that prints the same card."""
    file = run.file
    options = dict[str, object]()
    options["dialogs"] = file.name
    for name in ("calls", "tools"):
        if any(getattr(transcript, f"{name}_in_text") for transcript in file.transcripts):
            options[name] = True
    options |= {"plan": shape_key, "target": f"{100 * run.target:.0f}", "today": str(today)}
    if isinstance(run.encoding.place, str) and run.encoding.place:
        options["tokens"] = run.encoding.place
    if model:
        options["model"] = model
    return command_line("dialogs", options)
