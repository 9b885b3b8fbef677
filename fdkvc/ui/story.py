"""What happened in words: the turn step by step, and why one entry stays or goes."""

from __future__ import annotations

import streamlit as st

from fdkvc.charts.life import life_spec
from fdkvc.charts.theme import with_data
from fdkvc.charts.timeline import cursor_data
from fdkvc.counterfactual import Change, counterfactual, nearest
from fdkvc.explain import explain, life, sentences
from fdkvc.history import life_tables
from fdkvc.narrate import StepStory, headline, narrate
from fdkvc.ui.entry import choose_entry
from fdkvc.ui.fields import Field
from fdkvc.ui.frame import page_theme, panel, side_by_side
from fdkvc.ui.runs import Run


def inside_turn(run: Run, turn: int) -> None:
    """Tell the turn step by step, each with its equation, its numbers and what happened."""
    st.subheader("Inside this turn", anchor=False)
    st.markdown(headline(run.trace, run.dialogs, 0, turn))
    with side_by_side("steps"):
        for number, story in enumerate(narrate(run.trace, run.dialogs, 0, turn), 1):
            with st.container(border=True):
                # The equation apart from what a turn changes: it is set once, not at every step.
                st.markdown(
                    f"**{number}. {story.name}** :gray[{story.source}]\n\n$$\n{story.equation}\n$$"
                )
                st.markdown(_what_happened(story))


def _what_happened(story: StepStory) -> str:
    numbers = [
        f"{arrow} {label}: **{text}**"
        for arrow, pairs in (("→", story.inputs), ("⇒", story.outputs))
        for label, text in pairs
    ]
    small = ":small[" + "  \n".join(numbers) + "]" if numbers else ""
    return f"{story.sentence}\n\n{small}"


def why(page: str, run: Run, turn: int, entry: Field) -> None:
    """Let a person pick an entry, and explain what becomes of it."""
    st.subheader("Why this entry?", anchor=False)
    token = choose_entry(run.dialogs, entry)
    if token is None:
        return
    with side_by_side("why"):
        with panel("reason"):
            explanation = explain(run.trace, run.dialogs, 0, turn, token)
            for sentence in sentences(explanation):
                st.markdown(sentence)
            if explanation.left is not None and explanation.left[0] < turn:
                then = explain(run.trace, run.dialogs, 0, explanation.left[0], token)
                st.markdown(" ".join(sentences(then)))
            if explanation.left is not None:
                _what_would_have_kept_it(page, run, turn, token)
        with panel("life"):
            course = life(run.trace, run.dialogs, 0, token)
            spec = life_spec(run.dialogs.turns, tuple(course.channels), page_theme())
            data = {**life_tables(course), "cursor": cursor_data(turn)}
            st.vega_lite_chart(with_data(spec, data), key=f"{page}/life", width="stretch")


def _what_would_have_kept_it(page: str, run: Run, turn: int, token: int) -> None:
    """On demand, search each setting for the smallest change that would have kept the entry."""
    if not st.toggle(
        "What would have kept it?",
        key=f"{page}/counterfactual",
        help="Runs this dialog again with one setting changed at a time.",
    ):
        return
    changes = counterfactual(run.trace, run.dialogs, 0, turn, token)
    best = nearest(changes)
    if best is None:
        st.markdown("No change of a single setting within its valid range would have kept it.")
    else:
        st.markdown(f"The smallest change: {_change_words(best)}.")
    st.dataframe(
        [
            {
                "setting": change.label,
                "now": change.before,
                "would keep it": "none" if change.after is None else f"{change.after:.4g}",
                "share of its range": None if change.share is None else 100 * change.share,
            }
            for change in changes
        ],
        hide_index=True,
        column_config={
            "share of its range": st.column_config.NumberColumn(format="%.2f %%"),
        },
    )


def _change_words(change: Change) -> str:
    symbol = f" ${change.symbol}$" if change.symbol else ""
    share = 100 * (change.share or 0)
    return (
        f"{change.label.lower()}{symbol} from {change.before:g} to **{change.after:.4g}**, "
        f"{share:.2g} % of its valid range"
    )
