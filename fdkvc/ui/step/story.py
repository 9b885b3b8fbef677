"""What happened in words: the turn step by step, and why one entry stays or goes."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from fdkvc.charts.life import life_spec
from fdkvc.charts.theme import with_data
from fdkvc.charts.timeline import cursor_data
from fdkvc.parameters import written
from fdkvc.told.counterfactual import Change, counterfactual, nearest
from fdkvc.told.explain import explain, life, sentences
from fdkvc.told.history import life_tables
from fdkvc.told.narrate import StepStory, headline, narrate
from fdkvc.ui.kit.downloads import show_chart
from fdkvc.ui.kit.entry import choose_entry
from fdkvc.ui.kit.frame import page_theme, panel, side_by_side
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.ui.kit.memory import kept
from fdkvc.ui.kit.runs import Run
from fdkvc.words import percent

LIFE_ALT = (
    "The entry's score against the cutoff, and what the policy remembers of it, turn by turn; "
    "beside it is told in words why it stays or goes"
)


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


@kept
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


@dataclass(frozen=True)
class Question:
    """What a person asks of one entry, and where the answer stands.

    Attributes
    ----------
    page : str
        Where it is asked.
    token : int, optional
        The entry, if one is picked.
    counterfactual : bool
        Whether to search for what would have kept it.
    place : DeltaGenerator
    """

    page: str
    token: int | None
    counterfactual: bool
    place: DeltaGenerator


def ask_why(page: str, run: Run) -> Question:
    """Let a person pick an entry, and ask what would have kept it."""
    st.subheader("Why this entry?", anchor=False)
    with st.container(horizontal=True, vertical_alignment="center", key="ask-why"):
        token = choose_entry(page, run, width=360)
        asked = (token is not None and run.choice.dialog.alone) and st.toggle(
            "What would have kept it?",
            key=f"{page}/counterfactual",
            help="Runs this dialog again with one setting changed at a time, in many small steps.",
        )
    return Question(page, token, asked, st.container())


def why(run: Run, turn: int, question: Question) -> None:
    """Explain what became of the entry that was asked for."""
    token = question.token
    if token is None:
        return
    with question.place, side_by_side("why"):
        explanation = explain(run.trace, run.dialogs, 0, turn, token)
        with panel("reason"):
            told = list(sentences(explanation))
            if explanation.left is not None and explanation.left[0] < turn:
                then = explain(run.trace, run.dialogs, 0, explanation.left[0], token)
                told.append(" ".join(sentences(then)))
            if question.counterfactual and explanation.left is None:
                told.append("It is not evicted up to this turn, so nothing need have kept it.")
            st.markdown(Markdown("\n\n").join(told))
            if question.counterfactual and explanation.left is not None:
                _what_would_have_kept_it(run, turn, token)
        with panel("life"):
            course = life(run.trace, run.dialogs, 0, token)
            spec = life_spec(run.dialogs.turns, tuple(course.channels), page_theme())
            data = {**life_tables(course), "cursor": cursor_data(turn)}
            show_chart(question.page, "life", with_data(spec, data), alt=LIFE_ALT)


def _what_would_have_kept_it(run: Run, turn: int, token: int) -> None:
    """Show for each setting the smallest change that would have kept the entry."""
    changes = counterfactual(run.trace, run.dialogs, 0, turn, token)
    best = nearest(changes)
    if best is None:
        st.markdown("No value that was tried of any single setting would have kept it.")
    else:
        st.markdown(
            Markdown(
                "The smallest change: {}. The dialog was run again with every value that is "
                "listed as tried, the nearest first."
            ).format(_change_words(best))
        )
    st.dataframe(
        [
            {
                "setting": change.label,
                "now": written(change.before),
                "would keep it": "–" if change.after is None else written(change.after),
                "share of its range": "–" if change.share is None else percent(change.share, 2),
                "tried": change.tried,
            }
            for change in changes
        ],
        hide_index=True,
        height="content",
        column_config={
            name: st.column_config.TextColumn(alignment="right")
            for name in ("now", "would keep it", "share of its range")
        },
        alt="Each setting, its value now, the value that would keep the entry, how far that is, "
        "and which values were tried",
    )


def _change_words(change: Change) -> Markdown:
    assert change.after is not None
    assert change.share is not None
    return Markdown("{}{} from {} to **{}**, {} of its valid range").format(
        change.label.lower(),
        Markdown(" ${}$").format(Markdown(change.symbol)) if change.symbol else "",
        *(written(change.before), written(change.after), percent(change.share, 2)),
    )
