"""Restore evicted words, one span at a time, and let the model answer again."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from fdkvc.explain.answer_causes import Attempt, Passages, Restoration, grade_call, turns_of
from fdkvc.lm.text_cache import TextCache
from fdkvc.report.answer import VERSIONS, evicted_in, restored_html, right
from fdkvc.ui.answers.conversation import Answered, restored
from fdkvc.ui.answers.why import choose_answer
from fdkvc.ui.kit.markdown import Markdown, plain


def show_restored(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show how restoring evicted words changes an answer."""
    if not answered.conversation.policies:
        return {}
    name = choose_answer(page, answered, evicting=True)
    found = restored(answered, name)
    expected = _expected(answered, found)
    title = answered.conversation.titles[name]
    if not found.attempts:
        st.info("This policy has evicted nothing yet.")
        return {}
    st.markdown(plain(_summary(answered, name, title, found, expected)))
    st.html(restored_html(*_read(answered, name), found, expected))
    st.caption(
        "Of the words that some head of this policy has evicted, these get the most attention "
        "from the full cache while it writes; adjacent words are restored together, in every "
        "head, for this answer only. Original entries were computed when the word was read; "
        "recomputed ones use only what is still cached before the word. In your own chat, the "
        "full cache reads the text with this policy's answers."
    )
    return {"brought_back.csv": _frame(answered, name, found, expected)}


def _expected(answered: Answered, found: Restoration) -> str:
    """Return the dialog's own call, or else what the full cache writes."""
    own = answered.conversation.expected_calls
    return own[0] if own and found.writer == "call" else found.full


def _fixed_arguments(found: Restoration, text: str, expected: str) -> list[str]:
    before = {each.slot for each in grade_call(found.lost, expected).arguments if each.right}
    return [
        each.slot
        for each in grade_call(text, expected).arguments
        if each.right and each.slot not in before
    ]


def _summary(
    answered: Answered, name: str, title: str, found: Restoration, expected: str
) -> Markdown:
    what = "call" if found.writer == "call" else "answer"
    if right(found, found.lost, expected):
        return Markdown("With {} the {} is right: nothing needs to be restored.").format(
            title, what
        )
    singles = [attempt for attempt in found.attempts if len(attempt.spans) == 1]
    for attempt in singles:
        for version, called in VERSIONS.items():
            if right(found, getattr(attempt, version), expected):
                return Markdown(
                    "**The {} failed because *{}* was evicted in {}: with its {} restored, the "
                    "{} is right.**"
                ).format(
                    what,
                    attempt.spans[0].text,
                    evicted_in(*_read(answered, name), attempt.spans[0]),
                    called,
                    what,
                )
    parts = [
        (attempt, slots)
        for attempt in singles
        if found.writer == "call"
        for slots in [_fixed_arguments(found, attempt.as_it_was, expected)]
        if slots
    ]
    together = found.attempts[-1]
    all_right = len(together.spans) > 1 and right(found, together.as_it_was, expected)
    words = Markdown(" ").join(
        Markdown("Restoring *{}*, evicted in {}, makes {} right.").format(
            attempt.spans[0].text,
            evicted_in(*_read(answered, name), attempt.spans[0]),
            ", ".join(slots),
        )
        for attempt, slots in parts[:3]
    )
    if not right(found, found.full, expected):
        words = Markdown("The full cache does not make the dialog's {} either. {}").format(
            what, words
        )
    return Markdown("**No single span makes the {} right{}.** {}").format(
        what,
        f"; all {len(together.spans)} together do"
        if all_right
        else "; neither do all together"
        if len(together.spans) > 1
        else "",
        words,
    )


def _read(answered: Answered, name: str) -> tuple[TextCache, Passages]:
    return answered.context.caches[name], answered.context.passages[name]


def _frame(answered: Answered, name: str, found: Restoration, expected: str) -> pd.DataFrame:
    turns = turns_of(answered.context.passages[name])

    def row(attempt: Attempt, version: str) -> tuple[object, ...]:
        text: str = getattr(attempt, version)
        return (
            name,
            " | ".join(span.text for span in attempt.spans),
            attempt.spans[0].first if len(attempt.spans) == 1 else None,
            turns[attempt.spans[0].passage] if len(attempt.spans) == 1 else None,
            sum(span.weight for span in attempt.spans),
            version,
            text,
            right(found, text, expected),
        )

    rows = [
        (name, "", None, None, 0.0, "", found.lost, right(found, found.lost, expected)),
        *(row(attempt, version) for attempt in found.attempts for version in VERSIONS),
    ]
    columns = ["policy", "span", "first_token", "turn", "weight", "entry", "written", "right"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"first_token": "Int64", "turn": "Int64"})
