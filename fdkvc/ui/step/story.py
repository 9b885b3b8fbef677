"""The turn in words, step by step."""

from __future__ import annotations

from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.explain.narrate import StepStory, headline, narrate
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.ui.kit.runs import Run


def algorithm(run: Run) -> list[DeltaGenerator]:
    """Show the policy's steps, folded; return a container for the turn and one for each step.

    They stay outside the fragment that follows the stage, which fills the containers.
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
    """Fill the containers with what happened in a turn, and the numbers."""
    for place, description in zip(places, _descriptions(run)[turn], strict=True):
        place.html(description)


@cached
def _descriptions(run: Run) -> tuple[tuple[str, ...], ...]:
    """Describe all turns at once, so that a step is a look-up."""
    return tuple(
        (
            f"<p>{escape(headline(run.trace, run.dialogs, 0, turn))}</p>",
            *(_what_happened(story) for story in narrate(run.trace, run.dialogs, 0, turn)),
        )
        for turn in range(run.dialogs.turns)
    )


def _what_happened(story: StepStory) -> str:
    """Return the sentence and the numbers as one HTML string: every element costs time."""
    numbers = "".join(
        f"<span>{escape(f'{arrow} {label}: {text}')}</span>"
        for arrow, pairs in (("→", story.inputs), ("⇒", story.outputs))
        for label, text in pairs
    )
    return f'<p>{escape(story.sentence)}</p><div class="numbers">{numbers}</div>'
