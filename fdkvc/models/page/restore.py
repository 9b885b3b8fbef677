"""Restore evicted words, one span at a time, and let the model answer again."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from fdkvc.models.answer_causes import Restoration, turns_in_words
from fdkvc.models.page.conversation import Answered, restored
from fdkvc.models.page.why import choose_answer
from fdkvc.models.report.answer import restored_html
from fdkvc.ui.markdown import Markdown, plain


def show_restored(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show how restoring evicted words changes an answer."""
    if not answered.conversation.policies:
        return {}
    name = choose_answer(page, answered, evicting=True)
    answers = restored(answered, name)
    calls = answered.conversation.expected_calls
    expected = calls[0] if calls and answers.writer == "call" else answers.full
    show_restoration(answers, answered.conversation.titles[name], expected)
    return {}


def show_restoration(answers: Restoration, title: str, expected: str) -> None:
    """Show what a policy's cache answers with evicted words restored."""
    if not answers.attempts:
        st.info("This policy has evicted nothing yet.")
        return
    st.markdown(plain(_summary(title, answers, expected)))
    st.html(restored_html(answers, expected))
    st.caption(
        "Of the words that some head of this policy has evicted, these get the most attention "
        "from the full cache where it writes the word that this policy's answer lacks; function "
        "words come last. Adjacent words are restored together, in every head, for this answer "
        "only. In your own chat, the full cache reads the text with this policy's answers."
    )


def _summary(title: str, answers: Restoration, expected: str) -> Markdown:
    what = "call" if answers.writer == "call" else "answer"
    if answers.right(answers.lost, expected):
        words = Markdown("With {} the {} is right: nothing needs to be restored.")
        return words.format(title, what)
    # A single span that makes the answer right is the clearest cause.
    for attempt in answers.attempts:
        if len(attempt.spans) == 1 and answers.right(attempt.written, expected):
            span = attempt.spans[0]
            result = "the call is right" if what == "call" else f"{answers.word} is back"
            return Markdown(
                "**The {} failed because *{}* was evicted in {}: with it restored, {}.**"
            ).format(what, span.text, turns_in_words(*span.evicted_in), result)
    together, of_all, full = answers.attempts[-1], "", ""
    if len(together.spans) > 1:
        all_right = answers.right(together.written, expected)
        spans = len(together.spans)
        of_all = f"; all {spans} together do" if all_right else "; nor do all together"
    if not answers.right(answers.full, expected):
        full = f" The full cache does not make the dialog's {what} either."
    return Markdown("**No single span makes the {} right{}.**{}").format(what, of_all, full)
