"""A recorded question that two caches answer wrong, and a click that restores the evicted word."""

from dataclasses import replace
from html import escape

import streamlit as st

from fdkvc.conversations.page.files import shipped_file
from fdkvc.models.answer_causes import PUNCTUATION
from fdkvc.models.cache_answers import CacheAnswer, RecordedAnswer, shipped_answer
from fdkvc.models.report.answer import answers_html, repeats_itself
from fdkvc.ui.markdown import plain

LOSING = ("fifo", "h2o")
"""The policies whose recorded answers are shown beside the full cache's."""


def answers_of(recorded: RecordedAnswer, restored: bool) -> list[CacheAnswer]:
    """Return what each cache answers, the full one first; the others with the word or without."""
    answers = [next(iter(recorded.answers.values()))]
    for name in LOSING:
        answer = recorded.answers[name]
        restoration = recorded.restored[name]
        text = restoration.lost
        held = answer.held
        if restored:
            attempt = restoration.attempts[0]
            (span,) = attempt.spans
            text = attempt.written
            held += span.end - span.first
        answers.append(replace(answer, held=held, passages=((restoration.writer, text),)))
    return [replace(answer, predicted=(), note="") for answer in answers]


def restored_headline(recorded: RecordedAnswer) -> str:
    """Return what each answer has of the word that it lacked, once the evicted one is back."""
    (span,) = recorded.restored[LOSING[0]].attempts[0].spans
    outcomes = []
    for policy, answer in zip(LOSING, answers_of(recorded, restored=True)[1:], strict=True):
        restoration = recorded.restored[policy]
        outcome = "still lacks it"
        if restoration.undone(answer.passages[0][1], restoration.full):
            outcome = "only repeats it" if repeats_itself(answer) else "answers with it"
        outcomes.append(f"{answer.title} {outcome}")
    return f"With “{span.text.strip(PUNCTUATION)}” back, {'; '.join(outcomes)}"


@st.fragment
def show_forgotten_word(page: str) -> None:
    """Show a recorded question and three answers; a click restores the word that was evicted."""
    recorded = shipped_answer()
    turns = shipped_file(recorded.file).transcripts[0].turns
    (word,) = recorded.restored[LOSING[0]].attempts[0].spans
    key = f"{page}/restored"
    restored = st.session_state.get(key, False)
    tag = "mark" if restored else "s"
    first = turns[word.turn]
    question = turns[recorded.turn - 1]
    sentence = escape(first.text).replace(word.text, f"<{tag}>{word.text}</{tag}>", 1)
    answers = answers_of(recorded, restored)
    forgotten = "Two caches forgot whose birthday it is"
    st.header(plain(restored_headline(recorded) if restored else forgotten), anchor=False)
    st.html(
        f'<div class="message"><b>User, turn {word.turn}:</b>{sentence}<br>'
        f"<b>User, turn {recorded.turn - 1}:</b>{escape(question.text)}</div>"
        f"{answers_html(answers)}"
    )
    name = word.text.rstrip(".")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            plain(f"Evict “{name}” again" if restored else f"Put “{name}” back"),
            key=f"{page}/restore",
            icon=":material/undo:" if restored else ":material/add:",
            type="primary",
            on_click=st.session_state.__setitem__,
            args=(key, not restored),
        )
        st.page_link(
            "pages/answers.py",
            label="Restore other words",
            icon=":material/smart_toy:",
            query_params={
                "model": "smollm2",
                "file": recorded.file,
                "policies": ",".join(LOSING),
            },
        )
        model, parameters, *_ = recorded.model.replace("M-", " million-").split("-")
        st.caption(
            plain(
                f"Recorded with {model}, a small language model ({parameters} parameters). FIFO "
                "keeps the newest tokens, H2O also those with the most attention. Dashed: words "
                "that differ from the full cache's answer, which may be wrong itself."
            )
        )


def show_instead(page: str, model: str) -> None:
    """Show the recording of a model that could not be loaded, if there is one."""
    if model == "smollm2":
        show_forgotten_word(page)
