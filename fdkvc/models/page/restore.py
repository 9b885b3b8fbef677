"""Restore evicted words, one span at a time, and let the model answer again."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.models.answer_causes import PUNCTUATION, Restoration
from fdkvc.models.cache_answers import CacheAnswer
from fdkvc.models.page.conversation import Answered, restored
from fdkvc.models.page.why import choose_answer
from fdkvc.models.report.answer import restored_html
from fdkvc.ui.markdown import Markdown, plain

TWO_WORDS = (
    "The missing word is one that this cache does not write by itself. The headline is about what "
    "caches predict after the same words, and may name another."
)
"""Why this section may be about another word than the headline."""


def show_restored(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show how restoring evicted words changes an answer."""
    if not answered.conversation.policies:
        return {}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = choose_answer(page, answered, evicting=True)
        summary = st.empty()
    results = st.empty()  # without what is shown of another cache
    answers = restored(answered, name)
    calls = answered.conversation.expected_calls
    by_full = not (calls and answers.writer == "call")
    index = [*answered.conversation.titles].index(name)
    answer = answered.answers()[index]
    expected = answers.full if by_full else calls[0]
    with results.container():
        show_restoration(summary, answers, answer, expected, by_full=by_full)
    return {}


def show_restoration(
    place: DeltaGenerator,
    answers: Restoration,
    answer: CacheAnswer,
    expected: str,
    *,
    by_full: bool,
) -> None:
    """Show what a policy's cache, which gave `answer`, answers with evicted words restored.

    The sentence on it is in `place`.
    """
    if not answers.attempts:
        st.info("This policy has evicted nothing yet: go on writing, or lower the budget.")
        return
    place.markdown(plain(_summary(answer, answers, expected, by_full)))
    st.html(restored_html(answers, expected, by_full=by_full))
    st.caption(
        "A head is a part of the model with a cache of its own. Each row puts evicted words back "
        "in all heads, for this answer only: first those that the full cache looks at most where "
        "it writes the missing word; words such as “the” last. In your own chat each cache has its "
        "own earlier answers, which may differ, too. Where the full cache makes a call, each row "
        "begins with one."
    )
    if answer.predicted:
        st.caption(TWO_WORDS)


def _summary(
    answer: CacheAnswer, answers: Restoration, expected: str, by_full: bool
) -> Markdown:
    title = answer.title
    kind = "call" if answers.writer == "call" else "answer"
    goal = "the same as the full cache's" if by_full else "right"
    if answers.undone(answers.lost, expected):
        if kind == "answer":
            words = Markdown("With {} the answer lacks no word of the full cache's: {}.")
            return words.format(title, "nothing to restore. Ask about something said earlier")
        if "call" not in dict(answer.passages):
            words = Markdown(
                "With {} the model makes no call; once one is begun for it, it is {}."
            )
            return words.format(title, goal)
        if answer.calls and not answer.as_expected:  # by the headline: a later call is another
            words = Markdown("With {} the calls are {}, but the first is {}: {}.")
            remark = "words are restored for the first only"
            return words.format(title, answer.verdict, goal, remark)
        words = Markdown("With {} the call is {}: nothing needs to be restored.")
        return words.format(title, goal)
    for attempt in answers.attempts:
        if len(attempt.spans) == 1 and answers.undone(attempt.written, expected):
            span = attempt.spans[0]
            result = f"the call is {goal}"
            if kind == "answer":
                word = answers.written_word(attempt.written)
                result = f"the answer has “{word.strip(PUNCTUATION)}”"
                if attempt.written.split() != expected.split():
                    result += ", though other words differ"
            name = span.text.strip(PUNCTUATION)
            words = Markdown("**With *{}* (turn {}) restored, {}.**")
            return words.format(name, span.turn, result)
    together = answers.attempts[-1]
    spans = len(together.spans)
    full = ""
    these = f"these {spans} spans, alone or together," if spans > 1 else "this span"
    change = f"make the {kind} {goal}"
    if kind == "answer":
        change = f"bring “{answers.word.strip(PUNCTUATION)}” into the answer"
    outcome = f"Restoring {these} does not {change}"
    if answers.undone(together.written, expected):
        outcome = f"Only all {spans} restored together {change}"
    if not answers.undone(answers.full, expected):
        full = f" The full cache does not make the dialog's {kind} either."
    return Markdown("**{}.**{}").format(outcome, full)
