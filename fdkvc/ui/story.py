"""What happened in words: the turn step by step, and why one entry stays or goes."""

from __future__ import annotations

from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

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


def step_cards(run: Run) -> list[DeltaGenerator]:
    """Show a card with its equation for each step of the policy; return the places below them.

    They stand outside the fragment that steps: an equation is set once, and not at every step.
    """
    st.subheader("Inside this turn", anchor=False)
    places = [st.container()]
    with side_by_side("steps"):
        for number, step in enumerate(run.trace.policy.steps, 1):
            with st.container(border=True):
                st.markdown(
                    f"**{number}. {step.name}** :gray[{step.source}]\n\n$$\n{step.equation}\n$$"
                )
                places.append(st.container())
    return places


def inside_turn(run: Run, turn: int, places: list[DeltaGenerator]) -> None:
    """Tell the turn as a whole and step by step: what happened, and the numbers."""
    first, *others = places
    first.html(f"<p>{escape(headline(run.trace, run.dialogs, 0, turn))}</p>")
    stories = narrate(run.trace, run.dialogs, 0, turn)
    for place, story in zip(others, stories, strict=True):
        place.html(_what_happened(story))


def _what_happened(story: StepStory) -> str:
    numbers = "".join(
        f"<div>{arrow} {escape(label)}: <b>{escape(text)}</b></div>"
        for arrow, pairs in (("→", story.inputs), ("⇒", story.outputs))
        for label, text in pairs
    )
    return f'<p>{escape(story.sentence)}</p><div class="numbers">{numbers}</div>'


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
