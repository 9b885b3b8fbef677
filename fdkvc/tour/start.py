"""The first page: a forgotten word that comes back, what one may do here, and one eviction."""

from dataclasses import replace
from html import escape

import streamlit as st

from fdkvc.conversations.page.files import HeadChoice, shipped_file, shown_recording
from fdkvc.models.cache_answers import CacheAnswer, RecordedAnswer, shipped_answer
from fdkvc.models.report.answer import answers_html
from fdkvc.policies import policy_named
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import Page, panel, side_by_side
from fdkvc.ui.lanes import Lane, load_lanes
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.verdict.page.evidence import headline
from fdkvc.verdict.page.transcript import DEMANDS, Outcome, outcomes_of, show_transcript

PAGE = "start"
FILE, POLICY, BUDGET = "evening", "fd-kvc", 48
LOSING = ("fifo", "h2o")
"""The policies whose recorded answers are shown beside the full cache's."""

DOORS: tuple[tuple[str, str, str, str, dict[str, str]], ...] = (
    ("Watch a policy", "step", "step_over", "turn by turn", {}),
    ("Judge my conversations", "dialogs", "forum", "policy and size", {}),
    ("What did my agent forget?", "dialogs", "history", "an example log", {"file": "agent"}),
    ("Check the paper", "benchmark", "leaderboard", "measured again", {}),
)
"""What a person may want to do: its page and icon, what one gets there, and the page's link."""


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
    return [replace(answer, predicted=(), probability=None, note="") for answer in answers]


@st.fragment
def show_forgotten_word() -> None:
    """Show a recorded question and three answers; a click restores the word that was evicted."""
    recorded = shipped_answer()
    turns = shipped_file(recorded.file).transcripts[0].turns
    (word,) = recorded.restored[LOSING[0]].attempts[0].spans
    key = f"{PAGE}/restored"
    restored = st.session_state.get(key, False)
    tag = "mark" if restored else "s"
    first = turns[word.turn]
    question = turns[recorded.turn - 1]
    sentence = escape(first.text).replace(word.text, f"<{tag}>{word.text}</{tag}>", 1)
    answers = answers_of(recorded, restored)
    st.html(
        f'<div class="message"><b>User, turn {word.turn}:</b>{sentence}<br>'
        f"<b>User, turn {recorded.turn - 1}:</b>{escape(question.text)}</div>"
        f"{answers_html(answers)}"
    )
    name = word.text.rstrip(".")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.button(
            plain(f"Evict “{name}” again" if restored else f"Put “{name}” back"),
            key=f"{PAGE}/restore",
            icon=":material/undo:" if restored else ":material/add:",
            type="primary",
            on_click=st.session_state.__setitem__,
            args=(key, not restored),
        )
        st.caption(
            plain(
                f"Recorded with {recorded.model.partition('-')[0]}. FIFO keeps the newest tokens, "
                "H2O half newest and half those with the most attention so far."
            )
        )
        st.page_link(
            "pages/answers.py",
            label="Restore other words",
            icon=":material/smart_toy:",
            query_params={"model": "smollm2", "file": recorded.file, "policies": ",".join(LOSING)},
        )


def moment() -> tuple[HeadChoice, Lane, Outcome]:
    """Return a dialog, a run over it, and what a call needed that was evicted before it."""
    file = shipped_file(FILE)
    head = HeadChoice.of(file, *shown_recording(file, 0, None, ""))
    (lane,) = load_lanes(head, [policy_named(POLICY)], BUDGET)
    for outcome in outcomes_of(lane.run, head.recording):
        if outcome.demand.kind == "call" and outcome.demand.mentions[-1].turn < outcome.lost:
            return head, lane, outcome
    raise AssertionError("the shipped dialog has no call that lost a value")


def show(page: Page) -> None:
    """Show the word that comes back, the doors, and a dialog with a value that was lost."""
    st.header("Two caches forgot whose birthday it is", anchor=False)
    show_forgotten_word()
    with side_by_side("doors"):
        for number, (name, target, icon, words, link) in enumerate(DOORS):
            with panel(f"door-{number}"):
                st.page_link(
                    f"pages/{target}.py",
                    label=Markdown("**{}** – {}").format(name, words),
                    icon=f":material/{icon}:",
                    width="stretch",
                    query_params=link,
                )
    head, lane, lost = moment()
    open_on(page, lane.run.dialogs, lambda: (lost.demand.turn, lost.mentions[-1][0]))
    with st.container(key="headline"):
        st.header("Why was a word forgotten? Click one", anchor=False)
        st.markdown(plain(headline(DEMANDS["call"], head.recording, lane, lost)))
    show_transcript(PAGE, head.recording, [lane], lane, lambda: None)
    st.caption(
        "Here a policy sees vectors made from the letters of words, not from their meaning, so its "
        "scores reflect age and chance. The page Dialogs can use those of a language model."
    )
