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

from fdkvc.charts.theme import hue_of
from fdkvc.core.limits import MAX_TYPED_CHARACTERS, MAX_WRITTEN_TOKENS
from fdkvc.core.words import count, listed, sentence
from fdkvc.models.answer_causes import turns_of
from fdkvc.models.numpy.model_text import WRITERS
from fdkvc.models.page import choices
from fdkvc.models.page.conversation import ANSWERS, FULL, Answered, Conversation, begin, write
from fdkvc.models.report.answer import call_html, words_html
from fdkvc.ui.address import scroll_to
from fdkvc.ui.fields import pick, problems
from fdkvc.ui.markdown import plain

DRAWN = 0.06
"""Seconds between redraws while the model writes."""


def answer(page: str, conversation: Conversation) -> Answered | None:
    """Show the answers, live while the model writes; return them, if any."""
    if not conversation.parts:
        st.info(
            "Write as the user, for example: I am looking for a restaurant in San Jose.",
            icon=":material/chat:",
        )
        return None
    above, message, lanes, button = st.empty(), st.empty(), st.empty(), st.empty()
    answered, parts = None, conversation.parts
    newest = reversed(range(len(parts)))
    start = next((index for index in newest if ANSWERS.get(parts[index].key)), 0)
    try:
        for part in parts[start:]:  # those that a link brought are written first
            answered = begin(
                part, answered, lambda share: lanes.progress(share, "Reading the dialog")
            )
            if not answered.complete:
                above.header("The model answers …", anchor=False)
                answered = _write(page, answered, message, lanes, button)
    except ValueError as error:
        above.empty()
        problems(sentence(str(error)))
        return None
    assert answered is not None
    above.header(plain(headline(answered)), anchor=False)
    _show_message(message, answered)
    lanes.html(_lanes_html(answered))
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
    """Let the model write, redrawing as it does; clicks interrupt it."""
    _show_message(message, answered)
    button.button(
        "Stop",
        key=f"{page}/stop/{len(answered.conversation.messages)}",
        icon=":material/stop_circle:",
        on_click=choices.limit_answer,
        args=(page, answered.conversation),
        help="Stop the answers here. They can go on later, and so can the chat.",
    )
    drawn = monotonic()
    with closing(write(answered)) as written:
        for answered in written:
            if monotonic() - drawn > DRAWN:
                lanes.html(_lanes_html(answered, writing=True))
                drawn = monotonic()
    button.empty()
    return answered


def show_input(page: str, conversation: Conversation) -> None:
    """Show the chat input, docked at the bottom; a message that is too long stays in it."""
    # After the first message, each new one scrolls into view.
    scroll_to(".message", "nearest", count=len(conversation.messages))
    left = MAX_TYPED_CHARACTERS - sum(len(message) + 1 for message in conversation.messages)
    with st.container(key="chat-input"):
        unsent = st.session_state.pop(f"{page}/unsent", "")
        if unsent:
            st.session_state[f"{page}/say"] = unsent
            problems(
                f"Your message has {len(unsent):,} characters, but only {left:,} of "
                f"{MAX_TYPED_CHARACTERS:,} are left in this chat. It was not sent: shorten it."
            )
        with st.container(horizontal=True, vertical_alignment="center"):
            with st.container():
                text = st.chat_input("Write as the user", key=f"{page}/say", disabled=left < 2)
            if conversation.messages:
                _show_edit(page, conversation.messages, left)
                if st.button(
                    "Take it back",
                    key=f"{page}/unsay",
                    icon=":material/undo:",
                    help="Remove your last message and the answers to it.",
                ):
                    choices.keep_messages(page, conversation.messages[:-1])
    if text and len(text) > left:
        st.session_state[f"{page}/unsent"] = text
        st.rerun()
    if text and text.strip():
        choices.keep_messages(page, conversation.messages, text)


def _show_edit(page: str, messages: Sequence[str], left: int) -> None:
    """Show what replaces one of the messages, and drops those after it."""
    # With another key it is a closed one: sending closes it.
    key = f"{page}/editing/{hash(tuple(messages))}"
    with st.popover("Edit", icon=":material/edit:", key=key):
        labels = {str(index): f"{index + 1} · {text[:60]}" for index, text in enumerate(messages)}
        edited = int(pick(f"{page}/edited/{len(messages)}", "Message", labels, [*labels][-1]))
        text = st.text_area(
            "Write instead",
            messages[edited],
            key=f"{page}/edit/{edited}/{messages[edited]}",
            max_chars=left + len(messages[edited]),
            help="The messages after it are removed, and the model answers again.",
        )
        if st.button("Send", key=f"{page}/send", disabled=not text.strip()):
            choices.keep_messages(page, messages[:edited], text)


# ------------------------------------------------------------------------------- in words


def headline(answered: Answered) -> str:
    """Say in one sentence which caches made the expected call."""
    titles = {**answered.conversation.titles, FULL: "the full cache"}
    if answered.looped(FULL):
        return "The reference failed here: the full cache repeats itself"
    if not answered.expected_calls:
        texts = {name: [text for _, text in answered.passages(name)] for name in titles}
        full = texts.pop(FULL)
        equal = [titles[name] for name, text in texts.items() if text == full]
        if len(equal) == len(texts):
            return "Every policy gives the full cache's answer"
        if equal:
            return f"Same answer as the full cache: {listed(equal)}; the others differ"
        return "No policy gives the full cache's answer"
    method = answered.expected_calls[0].split(" ")[0]
    right = [words for name, words in titles.items() if answered.right(name)]
    wrong = [words for words in titles.values() if words not in right]
    if answered.reference_failed:
        others_right = f", and right with {listed(right)}" if right else ""
        return f"The reference failed here: {method} is wrong with the full cache{others_right}"
    if not wrong:
        return f"{method}: the call is right with every cache"
    return f"{method}: the call is right with {listed(right)}, and wrong with {listed(wrong)}"


def _show_message(message: DeltaGenerator, answered: Answered) -> None:
    """Show the last message below the earlier turns, folded to a line; nothing before the first."""
    context, conversation = answered.context, answered.conversation
    passages = context.passages[FULL]
    if not passages:
        return
    turns, writers = turns_of(passages), [WRITERS[writer] for writer, *_ in passages]
    heads = [f"<b>{turn} · {writer}</b>" for turn, writer in zip(turns, writers, strict=True)]
    given = sum(passage.turn < conversation.turn for passage in conversation.passages)
    earlier = "".join(
        f"<p>{heads[index]} {escape(context.text(FULL, passage=index))}</p>"
        for index in range(min(given, len(passages) - 1))
    )
    for name, title in conversation.titles.items():
        if past := answered.past(name):
            texts = "".join(f"<p><i>{WRITERS[who]}</i> {escape(text)}</p>" for who, text in past)
            earlier += f"<section><b>{escape(title)}</b>{texts}</section>"
    if earlier:
        folded = count(turns[-1], "earlier turn")
        earlier = f'<details class="earlier"><summary>{folded}</summary>{earlier}</details>'
    message.html(f'{earlier}<div class="message">{heads[-1]} {escape(context.text(FULL))}</div>')


def _lanes_html(answered: Answered, *, writing: bool = False) -> str:
    """Return a column for each cache; unfinished answers are not graded."""
    columns = ""
    titles = answered.conversation.titles
    texts = {name: answered.passages(name) for name in titles}
    full = {writer: text.split() for writer, text in texts[FULL]}
    before = answered.context.caches[FULL].count
    compared = not (answered.looped(FULL) if writing else answered.reference_failed)
    # The dialog's own call is right whether or not the full cache makes it.
    graded = not writing and (compared or bool(answered.conversation.expected_calls))
    for name, title in titles.items():
        held = before if name == FULL else min(answered.conversation.budget, before)
        parts = "".join(map(call_html, answered.graded_calls(name))) if graded else ""
        for writer, text in texts[name]:
            if writer != "call":
                expected = full.get(writer, []) if compared else text.split()
                parts += f"<p>{words_html(text, expected, writing=writing)}</p>"
            elif not graded:
                parts += f'<div class="chips"><span>{escape(text)}</span></div>'
        if not writing and answered.looped(name):
            parts += "<small>Stopped: the model repeats itself.</small>"
        elif not writing and name in answered.chat.unfinished():
            parts += "<small>Not finished.</small>"
        columns += (
            f'<section aria-label="{escape(title)}">'
            f"<b{hue_of(title)}>{escape(title)}</b> "
            f"<small>{held} of {before} entries per head</small>{parts}</section>"
        )
    return f'<div class="answers">{columns}</div>'


def answers_table(answered: Answered) -> pd.DataFrame:
    """Return every cache's answer, a row for each passage."""
    rows: list[tuple[str, str, str, bool | None]] = []
    for name in answered.conversation.titles:
        right = answered.right(name) if answered.expected_calls else None
        rows += [(name, writer, text, right) for writer, text in answered.passages(name)]
    return pd.DataFrame(rows, columns=["memory", "writer", "text", "calls_right"])
