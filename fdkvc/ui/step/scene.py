"""One run, turn by turn: the views of the step page."""

import math
from collections.abc import Callable, Mapping
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.charts.timeline import Line
from fdkvc.core.words import written_bytes
from fdkvc.engine.metrics import METRICS, cache_bytes, default_metrics
from fdkvc.explain.narrate import StepStory, narrate
from fdkvc.player.run import StageRun
from fdkvc.ui.glossary import show_glossary
from fdkvc.ui.markdown import Markdown
from fdkvc.ui.step import stage
from fdkvc.ui.step.before import NO_GHOST, Ghost

STATES: Mapping[str, str] = {
    "Learning rate": "How strongly similarity to the query raises the recency of an entry: it "
    "falls as the ownership loss grows (Eq. 7).",
    "Ownership loss": "How undecided the scores are: 0 if each is 0 or the highest, at most 0.25, "
    "if each is half of the highest (Eq. 6).",
}
"""What numbers mean that FD-KVC computes anew in each turn."""


def show(page: str, run: StageRun, write: Callable[[], None], ghost: Ghost) -> None:
    """Show a run on the stage, with figures and steps; `write` writes the address."""
    figures_place = st.container(key="turn-figures").empty()
    stage.show(page, run, ghost=ghost)
    below = st.container()
    states = {line.label: STATES[line.label] for line in run.states if line.label in STATES}
    show_glossary((*default_metrics(), *run.optional), [run.policy], states)
    steps = algorithm(run)

    @st.fragment
    def following() -> None:
        turn = stage.follow(page, run)
        figures_place.html(figures(run, turn, ghost))
        for place, story in zip(steps, narrate(run.trace, run.dialogs, 0, turn), strict=True):
            place.html(_what_happened(story))
        write()

    with below:
        following()


def figures(run: StageRun, turn: int, ghost: Ghost = NO_GHOST) -> str:
    """Return the numbers of the turn as HTML, each with its change and the ghost's number."""
    panels = []
    for line in (*run.metrics, *run.states):
        values = run.turns[line.field]
        notes = []
        difference = float(values.iloc[turn] - values.iloc[turn - 1]) if turn else math.nan
        if not math.isnan(difference):
            notes.append(f"{_change(line, difference)} since turn {turn - 1}")
        if ghost.run is not None and line.field in ghost.run.turns:
            value = float(ghost.run.turns[line.field].iloc[turn])
            notes.append(f"{ghost.called}: <b>{line.words(value)}</b>")
        is_metric = line.field in METRICS
        meaning = METRICS[line.field].help if is_metric else STATES.get(line.label, "")
        panels.append((line.label, meaning, line.words(float(values.iloc[turn])), notes))
    bytes_ = cache_bytes(run.trace, run.dialogs, turn)
    note = f"of {written_bytes(bytes_.full_cache)} with all entries"
    stored = written_bytes(bytes_.keys + bytes_.values)
    panels.append(("Keys and values", "What the cache stores.", stored, [note]))
    cells = ""
    for name, meaning, figure, notes in panels:
        lines = "".join(map("<i>{}</i>".format, notes))
        title = escape(meaning)
        cells += f'<div title="{title}"><small>{name}</small><b>{figure}</b>{lines}</div>'
    place_words = f"Turn {turn} of {run.dialogs.turns - 1}"
    return f'<div class="figures" role="status" aria-label="{place_words}">{cells}</div>'


def _change(line: Line, difference: float) -> str:
    words = line.words(abs(difference))
    if words == line.words(0.0):
        return "±0"
    return f"{'▲' if difference > 0 else '▼'} {words.replace('%', 'pp')}"


def algorithm(run: StageRun) -> list[DeltaGenerator]:
    """Show the policy's steps, folded; return a container for each.

    They stay outside the fragment that follows the stage, which fills the containers.
    """
    st.subheader("Inside this turn", anchor=False)
    places = []
    with st.container(key="algorithm"):
        for number, step in enumerate(run.policy.steps, 1):
            expander = st.expander(
                Markdown("**{}. {}** :gray[{}]").format(number, step.name, step.source),
                key=f"algorithm/{number}",
                on_change="rerun",
            )
            with expander:
                if expander.open:  # the browser takes longer to typeset it than for the rest
                    st.markdown(Markdown("$$\n{}\n$$").format(Markdown(step.equation)))
                places.append(st.container())
    return places


def _what_happened(story: StepStory) -> str:
    """Return the sentence and the numbers as one HTML string: every element costs time."""
    inputs = [f"→ {label}: {text}" for label, text in story.inputs]
    outputs = [f"⇒ {label}: {text}" for label, text in story.outputs]
    numbers = "".join(f"<span>{escape(words)}</span>" for words in (*inputs, *outputs))
    return f'<p>{escape(story.sentence)}</p><div class="numbers">{numbers}</div>'
