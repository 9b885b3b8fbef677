"""Bring it back: one evicted span after the other is restored, and the model answers again."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd
import streamlit as st

from fdkvc.explain.answer_causes import BroughtBack, Span, Tried, grade_call, turns_of
from fdkvc.ui.answers.conversation import Answered, brought_back
from fdkvc.ui.answers.scene import call_html, words_html
from fdkvc.ui.answers.why import choose_answer, turns_in_words
from fdkvc.ui.kit.markdown import Markdown, plain

VERSIONS = {
    "as_it_was": "as it was computed when it was read",
    "as_it_would_be": "as it would be computed now",
}
"""The two entries that a span can get back, and what they are called."""


def show_back(page: str, answered: Answered) -> Mapping[str, pd.DataFrame]:
    """Show what becomes of an answer once evicted words are there again."""
    if not answered.conversation.policies:
        return {}
    name = choose_answer(page, answered, evicting=True)
    found = brought_back(answered, name)
    wanted = _wanted(answered, found)
    title = answered.conversation.titles[name]
    if not found.tried:
        st.info("This policy has evicted nothing yet.")
        return {}
    st.markdown(plain(_told(answered, name, title, found, wanted)))
    st.html(_table(answered, name, found, wanted))
    st.caption(
        "Tried are the words that the full cache attends to most while it writes, of those that "
        "some head of this policy has evicted; words beside each other go together. An entry as "
        "it was computed holds what the model knew when it read the word; as it would be computed "
        "now, what it can know from what is left before the word. Each is there for this one "
        "answer, in every head. In a talk of yours, the full cache reads what this policy's "
        "answers have made of it."
    )
    return {"brought_back.csv": _frame(answered, name, found, wanted)}


def _wanted(answered: Answered, found: BroughtBack) -> str:
    """Return what is right: the dialog's own call, or else what the full cache writes."""
    own = answered.conversation.wanted
    return own[0] if own and found.writer == "call" else found.full


def right(found: BroughtBack, text: str, wanted: str) -> bool:
    """Whether a passage says what was wanted."""
    return grade_call(text, wanted).right if found.writer == "call" else text == wanted


def _mended(found: BroughtBack, text: str, wanted: str) -> list[str]:
    """Return the arguments that are right now and were not."""
    before = {each.slot for each in grade_call(found.lost, wanted).arguments if each.right}
    return [
        each.slot
        for each in grade_call(text, wanted).arguments
        if each.right and each.slot not in before
    ]


def _told(answered: Answered, name: str, title: str, found: BroughtBack, wanted: str) -> Markdown:
    """Say in one sentence what brings the answer back."""
    what = "call" if found.writer == "call" else "answer"
    if right(found, found.lost, wanted):
        return Markdown("With {} the {} is right: nothing needs to come back.").format(title, what)
    singles = [tried for tried in found.tried if len(tried.spans) == 1]
    for tried in singles:
        for version, called in VERSIONS.items():
            if right(found, getattr(tried, version), wanted):
                return Markdown(
                    "**The {} failed because *{}* was evicted in {}; with it, {}, the {} is "
                    "right.**"
                ).format(
                    what,
                    tried.spans[0].text,
                    _evicted(answered, name, tried.spans[0]),
                    called,
                    what,
                )
    parts = [
        (tried, slots)
        for tried in singles
        if found.writer == "call"
        for slots in [_mended(found, tried.as_it_was, wanted)]
        if slots
    ]
    together = found.tried[-1]
    all_right = len(together.spans) > 1 and right(found, together.as_it_was, wanted)
    said = Markdown(" ").join(
        Markdown("With *{}*, evicted in {}, {} is right again.").format(
            tried.spans[0].text, _evicted(answered, name, tried.spans[0]), ", ".join(slots)
        )
        for tried, slots in parts[:3]
    )
    if not right(found, found.full, wanted):
        said = Markdown("The full cache's {} is not that of the dialog either. {}").format(
            what, said
        )
    return Markdown("**No span by itself makes the {} right{}.** {}").format(
        what,
        f", but all {len(together.spans)} together do"
        if all_right
        else ", nor do all together"
        if len(together.spans) > 1
        else "",
        said,
    )


def _evicted(answered: Answered, name: str, span: Span) -> str:
    """Say in which turn a span was evicted, of all heads."""
    turns = turns_of(answered.heard.passages[name])
    gone = answered.heard.caches[name].evicted_in[:, :, span.first : span.end]
    when = sorted({turns[at] for at in gone[gone >= 0].tolist()})
    return turns_in_words(when[0], when[-1])


def _of_heads(answered: Answered, name: str, span: Span) -> str:
    gone = answered.heard.caches[name].evicted_in[:, :, span.first : span.end] >= 0
    return f"{int(gone.any(axis=-1).sum())} of {gone[:, :, 0].size}"


def _table(answered: Answered, name: str, found: BroughtBack, wanted: str) -> str:
    turns = turns_of(answered.heard.passages[name])
    heads = "".join(
        f'<th scope="col">{escape(each)}</th>' for each in ("brought back", *VERSIONS.values())
    )
    nothing = _written(found, found.lost, wanted)
    rows = f'<tr><th scope="row">nothing</th><td colspan="2">{nothing}</td></tr>'
    for tried in found.tried:
        span = tried.spans[0]
        label, place = f"all {len(tried.spans)}", ""
        if len(tried.spans) == 1:
            label = span.text
            place = (
                f"said in turn {turns[span.passage]}, evicted in {_evicted(answered, name, span)} "
                f"from {_of_heads(answered, name, span)} heads"
            )
        versions = "".join(
            f"<td>{_written(found, getattr(tried, version), wanted)}</td>" for version in VERSIONS
        )
        rows += f'<tr><th scope="row">{escape(label)}<small>{place}</small></th>{versions}</tr>'
    return (
        '<div class="scrolls back" tabindex="0" role="region" aria-label="What was brought back">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _written(found: BroughtBack, text: str, wanted: str) -> str:
    if found.writer == "call":
        return call_html(grade_call(text, wanted))
    return words_html(text, wanted.split())


def _frame(answered: Answered, name: str, found: BroughtBack, wanted: str) -> pd.DataFrame:
    turns = turns_of(answered.heard.passages[name])

    def row(tried: Tried, version: str) -> tuple[object, ...]:
        text: str = getattr(tried, version)
        return (
            name,
            " | ".join(span.text for span in tried.spans),
            tried.spans[0].first if len(tried.spans) == 1 else None,
            turns[tried.spans[0].passage] if len(tried.spans) == 1 else None,
            sum(span.weight for span in tried.spans),
            version,
            text,
            right(found, text, wanted),
        )

    rows = [
        (name, "", None, None, 0.0, "", found.lost, right(found, found.lost, wanted)),
        *(row(tried, version) for tried in found.tried for version in VERSIONS),
    ]
    columns = ["policy", "span", "first_token", "turn", "weight", "entry", "written", "right"]
    table = pd.DataFrame(rows, columns=columns)
    return table.astype({"first_token": "Int64", "turn": "Int64"})
