"""A coding agent's session on the page *Dialogs*: a bar with its compactions, and a card for each.

A card says what a compaction forgot, beside other ways of the same size; a click on a loss shows
where the value was given and where it was needed, and what was in context then.
"""

import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
from itertools import chain
from threading import Event
from time import perf_counter

import streamlit as st

from fdkvc.conversations.forgot import Forgot, forgot
from fdkvc.conversations.forgot_history import Need
from fdkvc.conversations.forgot_report import (
    WORST,
    clipped_value,
    given_by,
    heading,
    how_sure,
    instruction,
    lost_kinds,
    none_words,
    notes_of,
    sentence,
    tokens_note,
    ways_grid,
)
from fdkvc.conversations.formats import read_sessions
from fdkvc.conversations.lexical import Encoder
from fdkvc.conversations.losses_chart import losses_chart
from fdkvc.conversations.page.file_choice import name_example
from fdkvc.conversations.page.files import DialogFile
from fdkvc.conversations.page.filling import Column, columns_of, filling_html
from fdkvc.conversations.session_text import span_kind
from fdkvc.conversations.sessions import Session
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.core.words import count
from fdkvc.runs.grid import Grid
from fdkvc.runs.jobs import Progress
from fdkvc.ui import fields
from fdkvc.ui.address import scroll_to
from fdkvc.ui.downloads import show_chart
from fdkvc.ui.fields import problems
from fdkvc.ui.frame import hide, page_theme, show_grid
from fdkvc.ui.jobs import Job, Report
from fdkvc.ui.lru import cached
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.run_panel import POLL_SECONDS, session_job, shared_jobs, standing

NEAR = 4
"""Messages that are shown before a moment, and half as many after it. Of a loss, one is shown
before and after each place."""

SHOWN_CHARACTERS = 800
"""Most characters of a message; a longer one is cut around the value, or after its beginning."""


@dataclass(frozen=True)
class CompactionCard:
    """What is shown of a compaction."""

    sentence: str
    instruction: str
    """What to change."""
    how_sure: str
    """What the sentence counts, and what it does not see."""
    notes: tuple[str, ...]
    """Where it is and how large the text was, what followed and what it cost, a sentence each."""
    ways: Grid
    losses: tuple[tuple[Need, str], ...]
    """The worst losses, each with words on it."""
    lost: int
    """How many values that later calls needed were lost."""
    note: str
    """A sentence on what its numbers count."""
    returning: tuple[int, ...]
    """The results that repeat what had left."""
    kinds: Counter[str]
    """The values that had left, by the name of their kind."""

    @classmethod
    def of(cls, result: Forgot) -> "CompactionCard":
        """Return the card of a compaction."""
        lost = result.lost()
        returning = {line.message for line in result.returned if not line.stays}
        return cls(
            sentence(result),
            instruction(result),
            how_sure(result),
            (f"{heading(result)}.", *notes_of(result)),
            ways_grid(result) if result.needs else Grid([], []),
            tuple((need, _in_words(need)) for need in lost[:WORST]),
            len(lost),
            tokens_note(result.session),
            tuple(sorted(returning)),
            lost_kinds(lost),
        )


def _in_words(need: Need) -> str:
    calls = f", and {count(need.calls - 1, 'more call')}" if need.calls > 1 else ""
    return_words = "; it came back in between" if need.giver >= 0 else ""
    return (
        f"from {given_by(need)}, {count(need.age, 'message')} before {need.method} needed it"
        f"{calls}{return_words}"
    )


@dataclass(frozen=True)
class SessionRun:
    """A comparison of ways for one session; equal ones share a job."""

    key: str
    """The file's SHA-256."""
    session: int
    """The index of the session in the file."""
    size: int
    """The size at which a session without compactions is compared, 0 for one with them."""
    encoding: Encoder
    """The tokens that are counted."""
    file: DialogFile = field(compare=False, repr=False)

    @property
    def chosen(self) -> Session:
        """The session that is compared."""
        session = sessions_of(self.file, self.encoding)[self.session]
        return session.imagined(self.size) if self.size else session


@cached
def sessions_of(file: DialogFile, encoding: Encoder) -> tuple[Session, ...]:
    """Return the sessions of a coding agent's log in tokens."""
    sessions = read_sessions(zlib.decompress(file.packed), file.name)
    return tuple(session.in_tokens(encoding) for session in sessions)


@cached
def _columns(run: SessionRun) -> tuple[Column, ...]:
    """Return the columns of a session, computed once for all of its messages."""
    return columns_of(run.chosen)


def compare(run: SessionRun, on_progress: Report, cancelled: Event) -> list[CompactionCard]:
    """Return the cards of a session."""
    began = perf_counter()
    cards = list[CompactionCard]()

    def report(number: int, total: int) -> None:
        title = f"Comparing ways to fit: compaction {number + 1} of {total}"
        on_progress(Progress(number, total, title, perf_counter() - began, partial=[*cards]))

    for result in forgot(run.chosen, on_progress=report):
        cards.append(CompactionCard.of(result))
        if cancelled.is_set():
            break
    return cards


def show_session(page: str, file: DialogFile, encoding: Encoder) -> None:
    """Show a coding agent's session: its cards, its bar and its transcript."""
    sessions = sessions_of(file, encoding)
    hide("page-purpose")  # the session has a question of its own
    with st.container(border=True, key="session"):
        name_example(page, "opens")
        labels = {str(place): session.name for place, session in enumerate(sessions)}
        chosen = (
            fields.pick(f"{page}/session", "Conversation", labels) if sessions[1:] else "0"
        )
        session = sessions[int(chosen)]
        size = 0
        if not session.compactions:
            session, size = _imagined(page, session)
        run = SessionRun(file.digest, int(chosen), size, encoding, file)
        job = session_job(f"{page}/session-job", shared_jobs(), partial(compare, run), run)
        columns = _columns(run)
        # What is chosen in a session belongs to it: its messages have other numbers than those of
        # others.
        scope = f"{page}/session/{file.digest}/{chosen}/{size}"
        under_way = not job.finished

        def draw() -> None:
            # Run the whole page once the job ends, which also ends this polling.
            if under_way and job.finished:
                st.rerun()
            _draw(scope, session, columns, job)

        st.fragment(run_every=POLL_SECONDS if under_way else None)(draw)()
        parts = ", ".join(f"{kind} ({times:,}×)" for kind, times in sessions[0].unread)
        for note in (*session.notes, *([f"Not read: {parts}."] if parts else [])):
            st.caption(plain(note))


def _imagined(page: str, session: Session) -> tuple[Session, int]:
    """Choose a size; return the session as if its first half had been fitted to it, and it."""
    tokens = session.tokens_of(session.contexts[0])
    st.markdown(
        Markdown(
            "**{}** What would it have forgotten, had its first half been cut to fewer tokens?"
        ).format(none_words(session))
    )
    chosen = st.number_input(
        "Tokens that stay",
        1,
        max(tokens // 2 - 1, 1),
        max(1, tokens // 10),
        key=f"{page}/session-size",
        width=200,
    )
    try:
        return session.imagined(int(chosen)), int(chosen)
    except ValueError as error:
        problems(f"{error}.")
        return session, 0


def _choose_compaction(scope: str, session: Session) -> int:
    """Draw the buttons of a session's compactions; return the place of the chosen one."""
    labels = {
        str(place): f"Compaction {place + 1}" for place in range(len(session.compactions))
    }
    key = f"{scope}/compaction"
    st.session_state.setdefault(key, [*labels][-1])  # the newest is open
    # Persistent, so that a click is not lost that comes as the job ends and the page is rerun.
    state = {"persist_state": "session"}
    return int(fields.segments(key, "Compaction", labels, **state))


def _draw(scope: str, session: Session, columns: Sequence[Column], job: Job) -> None:
    """Draw the chosen compaction's card."""
    if not job.finished:
        share, words = standing(job)
        st.progress(share, text=plain(words))
    problems(job.problem)
    cards: Sequence[CompactionCard] = job.latest or ()
    if not session.compactions:
        return
    answer = st.container()
    has_several = len(session.compactions) > 1
    with answer:
        if session.compactions[0].kind != "imagined":
            times = count(len(session.compactions), "time") if has_several else "once"
            st.markdown(
                Markdown("**This session was compacted {}.** What did it forget?").format(
                    times
                )
            )
        chosen = _choose_compaction(scope, session) if has_several else 0
    losses_scope = scope
    scope = f"{scope}/{chosen}"
    moment, loss = _moment(scope, session, session.bounds[chosen + 1])
    returning = frozenset(chain.from_iterable(card.returning for card in cards))
    card = cards[chosen] if chosen < len(cards) else None
    if card is not None:
        with answer:
            if len(cards) == len(session.compactions):
                _show_worst(cards, chosen)
            _draw_losses(scope, card)
    st.html(filling_html(columns, moment, returning))
    _choose_message(f"{scope}/message", len(session.messages))
    if has_several and len(cards) == len(session.compactions):
        losses = {
            f"compaction {place}": card.kinds for place, card in enumerate(cards, start=1)
        }
        show_chart(losses_scope, "losses", losses_chart(losses, page_theme()))
    if card is not None:
        _draw_card(card)
    _draw_moment(scope, session, moment, loss, returning)


def _show_worst(cards: Sequence[CompactionCard], chosen: int) -> None:
    """Say which compaction lost most, if it is not the chosen one."""
    worst = max(range(len(cards)), key=lambda place: cards[place].lost)
    if cards[worst].lost > cards[chosen].lost:
        lost = count(cards[worst].lost, "needed value")
        st.caption(plain(f"Compaction {worst + 1} lost most: {lost}."))


def _draw_losses(scope: str, card: CompactionCard) -> None:
    """Say what was forgotten, with a button for each of the worst losses."""
    st.markdown(Markdown("**{}**").format(card.sentence))
    if card.instruction:
        st.markdown(plain(card.instruction))
    if card.how_sure:
        st.caption(plain(card.how_sure))
    if card.losses:
        some = f"The {len(card.losses)} worst of " if card.lost > len(card.losses) else ""
        lost = count(card.lost, "value")
        st.caption(
            plain(f"{some}{lost} not held; a click shows where it was given and needed.")
        )
    for place, (need, words) in enumerate(card.losses):
        st.button(
            Markdown("**{}** {}").format(clipped_value(need.value, 48), words),
            key=f"{scope}/loss/{place}",
            type="tertiary",
            icon=":material/south:",
            on_click=_go_to,
            args=(scope, need),
        )


def _draw_card(card: CompactionCard) -> None:
    """Draw what followed and what it cost, and what other ways keep."""
    st.caption(Markdown("\n").join(map(Markdown("- {}").format, card.notes)))
    if card.ways.rows:
        show_grid(card.ways, "What each way keeps of the same text at the same size")
    with st.expander("What these columns count"):
        st.caption(plain(card.note))


# ------------------------------------------------------------------------------- the transcript


def _go_to(scope: str, loss: Need) -> None:
    """Show the moments of a loss."""
    st.session_state[f"{scope}/chosen-loss"] = loss
    st.session_state[f"{scope}/message"] = loss.message + 1
    st.session_state[f"{scope}/scrolls"] = True


def _moment(scope: str, session: Session, start: int) -> tuple[int, Need | None]:
    """Return the chosen message, and the loss that was clicked if the message is its.

    At first the message is the one after the compaction.
    """
    first = min(start, len(session.messages) - 1) + 1
    moment = int(st.session_state.setdefault(f"{scope}/message", first)) - 1
    loss: Need | None = st.session_state.get(f"{scope}/chosen-loss")
    return moment, loss if loss is not None and loss.message == moment else None


def _choose_message(moment_key: str, last: int) -> None:
    """Show the slider of the session's messages."""
    if last == 1:  # Streamlit refuses a slider of one value
        return
    # Set in each run: a new slider in a page that is run again would begin at 1.
    key = f"{moment_key}-slider"
    st.session_state[key] = st.session_state[moment_key]
    label = f"Message (1 to {last:,})"
    st.slider(plain(label), 1, last, key=key, on_change=_move, args=(moment_key, key))


def _move(moment_key: str, slider_key: str) -> None:
    """Go to the slider's message."""
    st.session_state[moment_key] = st.session_state[slider_key]


def _draw_moment(
    scope: str, session: Session, moment: int, loss: Need | None, returning: frozenset[int]
) -> None:
    """Draw the messages around a moment, and say what was in context then."""
    context = session.in_context(moment)
    with st.expander(
        "Transcript: what was in context at the message", expanded=loss is not None
    ):
        st.markdown(
            plain(
                f"At message {moment + 1:,} ({session.messages[moment].place}) the model had "
                f"{count(len(context), 'message')} in context, "
                f"{count(session.tokens_of(tuple(context)), 'token')}; "
                f"{count(moment + 1 - len(context), 'earlier message')} had left it."
            )
        )
        places: set[int] = (
            set() if loss is None else {loss.source, loss.message, loss.giver} - {-1}
        )
        value = "" if loss is None else loss.value
        st.html(messages_html(session, moment, places, value, returning))
    if st.session_state.pop(f"{scope}/scrolls", False):
        scroll_to(".session-messages")


STANDINGS = {"in": "in context", "out": "not in context", "later": "later"}
"""Where a message is at a moment, in words."""


def _standing(index: int, moment: int, context: frozenset[int]) -> str:
    if index > moment:
        return "later"
    return "in" if index in context else "out"


def messages_html(
    session: Session,
    moment: int,
    places: Iterable[int],
    value: str,
    returning: Collection[int] = (),
) -> str:
    """Return the messages around some places, marked by whether they are in context then."""
    # 1. The messages to show: around a moment, or around the places of a loss.
    context = session.in_context(moment)
    places = {*places}
    nearby = set[int]() if places else {*range(moment - NEAR, moment + NEAR // 2 + 1)}
    for place in {moment, *places}:
        nearby |= {place - 1, place, place + 1}
    # 2. Their rows, with a row for each gap and for each compaction between them.
    bounds = [*zip(session.bounds[1:], session.compactions, strict=False)]
    rows = []
    next_index = 0
    for index in sorted(nearby & {*range(len(session.messages))}):
        for number, (bound, compaction) in enumerate(bounds, start=1):
            if next_index <= bound <= index:
                rows += _gap(next_index, bound)
                words = escape(f"compaction {number} ({compaction.place})")
                rows.append(f'<li class="boundary">{words}</li>')
                next_index = bound
        rows += _gap(next_index, index)
        is_back = index in returning
        rows.append(_message_html(session, index, moment, context, value, is_back))
        next_index = index + 1
    return f'<ol class="session-messages">{"".join(rows)}</ol>'


def _gap(first: int, end: int) -> list[str]:
    """Return a row for messages that are not shown, if there are any."""
    return [f'<li class="gap">{count(end - first, "message")}</li>'] if end > first else []


def _message_html(
    session: Session,
    index: int,
    moment: int,
    context: frozenset[int],
    value: str,
    is_back: bool,
) -> str:
    message = session.messages[index]
    standing_there = _standing(index, moment, context)
    author = SPAN_KINDS[span_kind(message)]
    if index in session.summaries:
        author = "summary"
    elif message.turn.tool:
        author = f"{author}: {message.turn.tool}"
    now = " now" if index == moment else ""
    return_words = ", repeats what had left" if is_back else ""
    return (
        f'<li class="{standing_there}{now}"><small><b>{escape(author)}</b> {index + 1:,}, '
        f"{escape(message.place)} <em>{STANDINGS[standing_there]}{return_words}</em></small>"
        f"<p>{_marked(message.turn.text, value)}</p></li>"
    )


def _marked(text: str, value: str) -> str:
    """Return a text, cut if it is long, with the mentions of a value marked."""
    place = text.find(value) if value else -1
    begin = max(0, place - SHOWN_CHARACTERS // 2) if len(text) > SHOWN_CHARACTERS else 0
    cut = text[begin : begin + SHOWN_CHARACTERS]
    marked = escape(cut) or "(no words)"
    if value:
        marked = marked.replace(escape(value), f"<mark>{escape(value)}</mark>")
    lead = "… " if begin else ""
    trail = " …" if begin + len(cut) < len(text) else ""
    return f"{lead}{marked}{trail}"
