"""The chat: the last message and the answers side by side, while they are written.

Text of the user, a file or the model is escaped and shown by ``st.html`` only.
"""

from collections.abc import Sequence
from contextlib import closing
from html import escape
from time import monotonic

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.core.limits import MAX_TYPED_CHARACTERS, MAX_WRITTEN_TOKENS
from fdkvc.core.transcripts import SPAN_KINDS
from fdkvc.core.words import count, sentence
from fdkvc.models.answer_causes import turns_of
from fdkvc.models.cache_answers import RecordedAnswer
from fdkvc.models.numpy.model_text import WRITERS, model_text, speaker_of
from fdkvc.models.page import choices
from fdkvc.models.page.conversation import ANSWERS, FULL, Answered, Conversation, begin, write
from fdkvc.models.page.restore import show_restoration
from fdkvc.models.report.answer import answers_html, headline
from fdkvc.ui.address import scroll_to
from fdkvc.ui.fields import problems
from fdkvc.ui.markdown import plain
from fdkvc.ui.run_panel import timed_bar

DRAWN = 0.06
"""Seconds between redraws while the model writes."""


def answer(page: str, conversation: Conversation) -> Answered | None:
    """Show the answers, live while the model writes; return them, if any."""
    answered = None
    parts = conversation.parts
    if not parts:
        st.info("Write as the user, or click an example below.", icon=":material/chat:")
        return None
    heading = st.empty()
    message = st.empty()
    lanes = st.empty()
    button = st.empty()
    # Start from the last part whose caches are in memory: with a link, none may be, and all answers
    # are written.
    newest = reversed(range(len(parts)))
    start = next((index for index in newest if ANSWERS.get(parts[index].key)), 0)
    try:
        for part in parts[start:]:
            answered = begin(part, answered, timed_bar(lanes, "Reading the dialog"))
            if not answered.complete:
                heading.header("The model answers …", anchor=False)
                answered = _write(page, answered, message, lanes, button)
    except ValueError as error:
        heading.empty()
        problems(sentence(str(error)))
        return None
    assert answered is not None
    answers = answered.answers()
    heading.header(plain(headline(answers, by_full=not answered.has_true_text)), anchor=False)
    _show_answered(message, answered)
    lanes.html(answers_html(answers))
    if answered.chat.unfinished():
        button.button(
            "Go on",
            key=f"{page}/go-on",
            icon=":material/resume:",
            on_click=choices.limit_answer,
            args=(page, conversation, MAX_WRITTEN_TOKENS),
            help="Let the model go on with the answers that were cut.",
        )
    return answered


def _write(
    page: str,
    answered: Answered,
    message: DeltaGenerator,
    lanes: DeltaGenerator,
    button: DeltaGenerator,
) -> Answered:
    """Let the model write, and redraw the answers meanwhile; a click interrupts it."""
    _show_answered(message, answered)
    button.button(
        "Stop",
        key=f"{page}/stop/{len(answered.conversation.messages)}",
        icon=":material/stop_circle:",
        on_click=choices.limit_answer,
        args=(page, answered.conversation),
        help="Stop the answers here. They can go on later, and so can the chat.",
    )
    redraw_time = monotonic()
    # Closed also where a click ends this run: then what is written so far is stored.
    with closing(write(answered)) as steps:
        for answered in steps:
            if monotonic() - redraw_time > DRAWN:
                lanes.html(answers_html(answered.answers(writing=True), writing=True))
                redraw_time = monotonic()
    button.empty()
    return answered


def show_input(page: str, conversation: Conversation, missing: str = "") -> None:
    """Show the chat input at the bottom of the page; a message that is too long stays in it.

    It takes none where the model is `missing`.
    """
    # After the first message, each new one scrolls into view.
    scroll_to(".message", "nearest", count=len(conversation.messages))
    room = MAX_TYPED_CHARACTERS - sum(len(message) + 1 for message in conversation.messages)
    if not conversation.messages and not missing:
        with st.container(horizontal=True):
            for starter in choices.starters_of(page):
                key = f"{page}/starter/{starter}"
                if st.button(plain(starter), key=key, icon=":material/chat:"):
                    choices.keep_messages(page, (), starter)
    with st.container(key="chat-input"):
        # Put back before the input is drawn: once it is, Streamlit does not let its text be set.
        unsent = st.session_state.pop(f"{page}/unsent", "")
        if unsent:
            st.session_state[f"{page}/say"] = unsent
            problems(
                f"Your message has {len(unsent):,} characters, but only {room:,} of "
                f"{MAX_TYPED_CHARACTERS:,} are left in this chat. It was not sent: shorten it."
            )
        with st.container(horizontal=True, vertical_alignment="center"):
            with st.container():
                text = st.chat_input(
                    "You can write here once it runs live" if missing else "Write as the user",
                    key=f"{page}/say",
                    disabled=room < 2 or bool(missing),
                )
            if conversation.messages and st.button(
                "Take it back",
                key=f"{page}/unsay",
                icon=":material/undo:",
                help="Remove your last message and the answers to it.",
            ):
                choices.keep_messages(page, conversation.messages[:-1])
    if text and len(text) > room:
        st.session_state[f"{page}/unsent"] = text
        st.rerun()
    if text and text.strip():
        choices.keep_messages(page, conversation.messages, text)


# ------------------------------------------------------------------------------- in words


def show_recorded(
    page: str, conversation: Conversation, recorded: RecordedAnswer, missing: str
) -> None:
    """Show a recorded conversation, with a button that runs it live.

    Where the model is `missing`, this says how to get it.
    """
    answers = [recorded.answers[name] for name in conversation.titles]
    st.header(plain(headline(answers)), anchor=False)
    transcript = conversation.transcript
    assert transcript is not None
    turns = [("", SPAN_KINDS["system"], recorded.prompt)]
    for index, passage in enumerate(model_text(transcript)[: conversation.turn]):
        turns.append((str(index), speaker_of(passage), passage.text))
    _show_message(st.empty(), turns)
    st.html(answers_html(answers))
    with st.container(horizontal=True, vertical_alignment="center"):
        if not missing and st.button(
            "Run it live",
            key=f"{page}/run-live",
            icon=":material/play_arrow:",
            type="primary",
        ):
            st.session_state[f"{page}/live"] = True
            st.rerun()
        words = f"Recorded with {recorded.model}. Live, you can also write to it, and see why each "
        st.caption(plain(f"{words}word was written. {missing}".strip()))
    st.subheader("Restore evicted words", anchor=False)
    titles = {
        name: title for name, title in conversation.titles.items() if name in recorded.restored
    }
    mended = [name for name in titles if recorded.restored[name].is_mended]
    place = st.container(horizontal=True, vertical_alignment="bottom")
    with place:
        name = choices.choose_cache(page, titles, start=mended[0] if mended else "")
    restoration = recorded.restored[name]
    show_restoration(
        place, restoration, recorded.answers[name], restoration.full, by_full=True
    )


def _show_answered(message: DeltaGenerator, answered: Answered) -> None:
    """Show the last message, if any, below the earlier turns, which are folded to a line."""
    context = answered.context
    conversation = answered.conversation
    passages = context.passages[FULL]
    speakers = answered.speakers(FULL)
    if not passages:
        return
    numbers = map(str, turns_of(passages))
    texts = [context.text(FULL, passage=index) for index in range(len(passages))]
    turns = [*zip(numbers, speakers, texts, strict=False)]
    # The dialog's turns are the same under all caches; what came after is shown for each.
    earlier = turns[: min(len(conversation.history), len(turns) - 1)]
    if answered.prompt:
        earlier.insert(0, ("", SPAN_KINDS["system"], answered.prompt))
    earlier_html = ""
    for name, title in conversation.titles.items():
        passages_html = ""
        for writer, text in answered.past(name):
            passages_html += f"<p><i>{WRITERS[writer]}</i> {escape(text)}</p>"
        if passages_html:
            earlier_html += f"<section><b>{escape(title)}</b>{passages_html}</section>"
    _show_message(message, [*earlier, turns[-1]], earlier_html)


def _show_message(
    message: DeltaGenerator, turns: Sequence[tuple[str, str, str]], earlier_html: str = ""
) -> None:
    """Show the last message, and above it those before it, each with its turn and speaker."""
    heads = [
        f"<b>{' · '.join(filter(None, turn[:2]))}</b> {escape(turn[2])}" for turn in turns
    ]
    earlier = "".join(f"<p>{head}</p>" for head in heads[:-1]) + earlier_html
    if earlier:
        number = int(turns[-1][0])
        folded = count(number, "earlier turn") if number else "system prompt"
        earlier = f'<details class="earlier"><summary>{folded}</summary>{earlier}</details>'
    message.html(f'{earlier}<div class="message">{heads[-1]}</div>')


def answers_table(answered: Answered) -> pd.DataFrame:
    """Return every cache's answer, a row for each passage."""
    rows: list[tuple[str, str, str, bool | None]] = []
    compared = "calls_right" if answered.has_true_text else "calls_as_full_cache"
    for name in answered.conversation.titles:
        as_expected = answered.as_expected(name) if answered.expected_calls else None
        rows += [(name, writer, text, as_expected) for writer, text in answered.passages(name)]
    return pd.DataFrame(rows, columns=["memory", "writer", "text", compared])
