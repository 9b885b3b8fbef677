"""The headline of a transcript: a value that a policy had lost when it was needed."""

import numpy as np
import streamlit as st

from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import GIVEN_BY
from fdkvc.core.words import count
from fdkvc.player.run import StageRun
from fdkvc.ui.fields import held
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.sidebar import ENTRY, TURN
from fdkvc.verdict.page.transcript import Outcome, demand_kind, outcomes_of


def show_headline(page: str, recording: Recording, lane: StageRun) -> None:
    """Show a value that a policy had lost when it was needed, or that there is none.

    It is the value that the entry on the stage is a piece of, if that turn needed it, or else the
    first one.
    """
    kind, name = demand_kind(recording)
    outcomes = [row for row in outcomes_of(lane, recording) if row.demand.kind == kind]
    losses = [outcome for outcome in outcomes if outcome.lost >= 0]
    turn = held(page, TURN)
    entry = held(page, ENTRY)
    pointed = [
        loss for loss in losses if loss.demand.turn == turn and loss.mentions_token(entry)
    ]
    row = lane.trace.kept_tokens[0, len(recording.tokens) - 1]
    held_tokens = row[row >= 0]
    tokens = int(recording.starts[-1])
    if losses:
        words: str = headline(name, recording, lane, (pointed or losses)[0])
    elif len(held_tokens) == tokens:
        words = (
            f"{lane.policy.title} evicted nothing: this dialog has only "
            f"{count(tokens, 'token')}"
        )
    elif outcomes:
        unread = recording.transcript.malformed_calls
        besides = f", except {count(unread, 'call')} that cannot be read" if unread else ""
        words = f"{lane.policy.title} still held everything that each {name} needed{besides}"
    else:
        oldest = held_tokens.min(initial=tokens)
        turn = int(np.searchsorted(recording.starts, oldest, "right")) - 1
        words = (
            f"{lane.policy.title} ends with {len(held_tokens):,} of {count(tokens, 'token')}"
        )
        words += f"; the oldest is from turn {turn}"
    st.header(plain(words), anchor=False)


def headline(name: str, recording: Recording, lane: StageRun, lost: Outcome) -> Markdown:
    """Return what a call or state lacked, who mentioned it when, and when it was lost."""
    demand = lost.demand
    turn, start, _ = demand.mentions[-1]
    of_state = "" if demand.kind == "call" else f"The {name} of "
    return Markdown("{}{} in turn {} needs {} = *{}*, {} in turn {}. {}: {}.").format(
        of_state,
        demand.source,
        demand.turn,
        demand.slot,
        demand.value,
        GIVEN_BY[recording.transcript.span_kind(turn, start)],
        turn,
        lane.policy.title,
        lost.words,
    )
