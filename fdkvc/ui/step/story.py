"""What happened in words: the turn step by step."""

from __future__ import annotations

from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.explain.narrate import StepStory, headline, narrate
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.ui.kit.runs import Run


def algorithm(run: Run) -> list[DeltaGenerator]:
    """Set out the policy's steps, a closed line each; return the places of what happened.

    Like all that a step leaves as it is, they stand outside the fragment that steps. The first
    place is for the turn as a whole, the others for its steps.
    """
    st.subheader("Inside this turn", anchor=False)
    places = [st.container()]
    with st.container(key="algorithm"):
        for number, step in enumerate(run.trace.policy.steps, 1):
            with st.expander(
                Markdown("**{}. {}** :gray[{}]").format(number, step.name, step.source),
                key=f"algorithm/{number}",
            ):
                st.markdown(Markdown("$$\n{}\n$$").format(Markdown(step.equation)))
                places.append(st.container())
    return places


def inside_turn(run: Run, turn: int, places: list[DeltaGenerator]) -> None:
    """Tell the turn as a whole and step by step: what happened, and the numbers."""
    for place, told in zip(places, _told(run)[turn], strict=True):
        place.html(told)


@cached
def _told(run: Run) -> tuple[tuple[str, ...], ...]:
    """Tell all turns at once: a step, back or forth, only looks its turn up."""
    return tuple(
        (
            f"<p>{escape(headline(run.trace, run.dialogs, 0, turn))}</p>",
            *(_what_happened(story) for story in narrate(run.trace, run.dialogs, 0, turn)),
        )
        for turn in range(run.dialogs.turns)
    )


def _what_happened(story: StepStory) -> str:
    """Write the sentence and the numbers as plain text: every element costs time at a step."""
    numbers = "".join(
        f"<span>{escape(f'{arrow} {label}: {text}')}</span>"
        for arrow, pairs in (("→", story.inputs), ("⇒", story.outputs))
        for label, text in pairs
    )
    return f'<p>{escape(story.sentence)}</p><div class="numbers">{numbers}</div>'
