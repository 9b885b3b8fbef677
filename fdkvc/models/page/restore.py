"""Restore evicted words, one span at a time, and let the model answer again."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from fdkvc.models.answer_causes import Passages, Restoration, Span, turns_of
from fdkvc.models.numpy.text_cache import TextCache
from fdkvc.models.page.conversation import Answered, restored
from fdkvc.models.page.why import choose_answer
from fdkvc.models.report.answer import VERSIONS, evicted_in, restored_html, right
from fdkvc.ui.markdown import Markdown, plain


def show_restored(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show how restoring evicted words changes an answer."""
    if not answered.conversation.policies:
        return {}
    if answered.chat.model.decoder.large:
        st.info(
            "Restoring lets the model answer up to 18 times, which takes minutes with a model of "
            "this size: see Damage, where one word at a time is restored."
        )
        return {}
    name = choose_answer(page, answered, evicting=True)
    answers = restored(answered, name)
    calls = answered.conversation.expected_calls
    expected = calls[0] if calls and answers.writer == "call" else answers.full
    title = answered.conversation.titles[name]
    if not answers.attempts:
        st.info("This policy has evicted nothing yet.")
        return {}
    cache, passages = answered.context.caches[name], answered.context.passages[name]
    st.markdown(plain(_summary(cache, passages, title, answers, expected)))
    st.html(restored_html(cache, passages, answers, expected))
    st.caption(
        "Of the words that some head of this policy has evicted, these get the most attention "
        "from the full cache while it writes; adjacent words are restored together, in every "
        "head, for this answer only. Original entries were computed when the word was read; "
        "recomputed ones use only what is still cached before the word. In your own chat, the "
        "full cache reads the text with this policy's answers."
    )
    return {"brought_back.csv": _frame(name, passages, answers, expected)}


def _summary(
    cache: TextCache, passages: Passages, title: str, answers: Restoration, expected: str
) -> Markdown:
    what = "call" if answers.writer == "call" else "answer"
    if right(answers, answers.lost, expected):
        words = Markdown("With {} the {} is right: nothing needs to be restored.")
        return words.format(title, what)
    for attempt in answers.attempts:
        for version, label in VERSIONS.items():
            if len(attempt.spans) == 1 and right(answers, getattr(attempt, version), expected):
                span = attempt.spans[0]
                return Markdown(
                    "**The {} failed because *{}* was evicted in {}: with its {} restored, the "
                    "{} is right.**"
                ).format(what, span.text, evicted_in(cache, passages, span), label, what)
    together, of_all, full = answers.attempts[-1], "", ""
    if len(together.spans) > 1:
        all_right = right(answers, together.as_it_was, expected)
        spans = len(together.spans)
        of_all = f"; all {spans} together do" if all_right else "; nor do all together"
    if not right(answers, answers.full, expected):
        full = f" The full cache does not make the dialog's {what} either."
    return Markdown("**No single span makes the {} right{}.**{}").format(what, of_all, full)


def _frame(name: str, passages: Passages, answers: Restoration, expected: str) -> pd.DataFrame:
    turns, rows = turns_of(passages), []
    written: list[tuple[tuple[Span, ...], str, str]] = [((), "", answers.lost)]
    for attempt in answers.attempts:
        written += [(attempt.spans, version, getattr(attempt, version)) for version in VERSIONS]
    for spans, version, text in written:
        words, weight = " | ".join(span.text for span in spans), sum(span.weight for span in spans)
        alone = spans[0] if len(spans) == 1 else None
        place = (alone.first, turns[alone.passage]) if alone else (None, None)
        rows.append((name, words, *place, weight, version, text, right(answers, text, expected)))
    columns = ["policy", "span", "first_token", "turn", "weight", "entry", "written", "right"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"first_token": "Int64", "turn": "Int64"})
