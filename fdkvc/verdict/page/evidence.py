"""Evidence: what later turns need, and which policies still held it."""

from collections.abc import Sequence

import numpy as np
import streamlit as st

from fdkvc.core.recordings import Recording
from fdkvc.core.transcripts import GIVEN_BY, SPAN_KINDS, Transcript
from fdkvc.core.words import count
from fdkvc.engine.evidence import OLD
from fdkvc.explain.notes import missing_value_notes
from fdkvc.ui.fields import held, segments
from fdkvc.ui.frame import show_grid
from fdkvc.ui.lanes import Lane
from fdkvc.ui.markdown import Markdown, plain
from fdkvc.ui.sidebar import ENTRY, TURN
from fdkvc.verdict.page.transcript import DEMANDS, Outcome, demand_kind, outcomes_of


def show_headline(page: str, recording: Recording, lane: Lane) -> None:
    """Show a value that a policy had lost when it was needed, or that there is none.

    It is the value that the entry on the stage is a piece of, if that turn needed it, or else the
    first one.
    """
    kind, name = demand_kind(recording)
    outcomes = [row for row in outcomes_of(lane.run, recording) if row.demand.kind == kind]
    losses = [outcome for outcome in outcomes if outcome.lost >= 0]
    turn, entry = held(page, TURN), held(page, ENTRY)
    pointed = [loss for loss in losses if loss.demand.turn == turn and loss.mentions_token(entry)]
    row = lane.run.trace.kept_tokens[0, len(recording.tokens) - 1]
    held_tokens, tokens = row[row >= 0], int(recording.starts[-1])
    if losses:
        words: str = headline(name, recording, lane, (pointed or losses)[0])
    elif len(held_tokens) == tokens:
        words = f"{lane.label} evicted nothing: this dialog has only {count(tokens, 'token')}"
    elif outcomes:
        unread = recording.transcript.malformed_calls
        besides = f", except {count(unread, 'call')} that cannot be read" if unread else ""
        words = f"{lane.label} still held everything that each {name} needed{besides}"
    else:
        oldest = held_tokens.min(initial=tokens)
        turn = int(np.searchsorted(recording.starts, oldest, "right")) - 1
        words = f"{lane.label} ends with {len(held_tokens):,} of {count(tokens, 'token')}"
        words += f"; the oldest is from turn {turn}"
    st.header(plain(words), anchor=False)


def headline(name: str, recording: Recording, lane: Lane, lost: Outcome) -> Markdown:
    """Return what a call or state lacked, who mentioned it when, and when it was evicted."""
    demand = lost.demand
    turn, start, _ = demand.mentions[-1]
    of_state = "" if demand.kind == "call" else f"The {name} of "
    return Markdown("{}{} in turn {} needs {} = *{}*, {} in turn {}. {} evicted it {}.").format(
        of_state,
        demand.source,
        demand.turn,
        demand.slot,
        demand.value,
        GIVEN_BY[recording.transcript.span_kind(turn, start)],
        turn,
        lane.label,
        "at once" if lost.lost == turn else f"in turn {lost.lost}",
    )


def show_evidence(page: str, recording: Recording, lanes: Sequence[Lane]) -> None:
    """Show whether each policy held each needed value."""
    missing = recording.transcript.missing
    present: set[str] = {demand.kind for demand, _ in recording.evidence}
    kinds = {kind: f"{name.capitalize()}s" for kind, name in DEMANDS.items() if kind in present}
    if not kinds:
        words = (
            "This dialog does not record what later turns need. Service calls (SGD), dialogue "
            "states (MultiWOZ) and tool calls (chats) do."
        )
        if missing:
            words = (
                f"Later turns of this dialog need {count(missing, 'value')}, but the text never "
                "contains them in these words."
            )
        st.info(plain(words))
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        kind = next(iter(kinds))
        if len(kinds) > 1:
            kind = segments(f"{page}/evidence/kind", "Needed by", kinds)
        parted = st.toggle(
            "Only where policies differ", key=f"{page}/evidence/parted", disabled=len(lanes) < 2
        )
    by_demand = zip(*(outcomes_of(lane.run, recording) for lane in lanes), strict=True)
    rows = [row for row in by_demand if row[0].demand.kind == kind]
    if parted:
        rows = [row for row in rows if len({outcome.lost < 0 for outcome in row}) > 1]
    table = _demands(recording.transcript, rows, lanes)
    show_grid(table, "Each needed value and which policies held it")
    meaning = (
        "A value is held if at least one complete mention was still cached at the end of the "
        "previous turn. If not, the turn shown evicted part of the last complete mention."
    )
    st.caption(plain(" ".join([meaning, *missing_value_notes([recording.transcript])])))


def _demands(
    transcript: Transcript, rows: Sequence[tuple[Outcome, ...]], lanes: Sequence[Lane]
) -> dict[str, Sequence[str]]:
    demands = [row[0].demand for row in rows]
    last = [demand.mentions[-1] for demand in demands]
    return {
        "value": [f"{demand.slot} “{demand.value}”" for demand in demands],
        "needed by": [demand.source for demand in demands],
        "in turn": [str(demand.turn) for demand in demands],
        "last mentioned in": [
            f"{demand.mentions[-1].turn}{' (old)' if demand.age > OLD else ''}"
            f"{', of another service' if demand.carried else ''}"
            for demand in demands
        ],
        "mentioned by": [SPAN_KINDS[transcript.span_kind(turn, start)] for turn, start, _ in last],
        **{
            lane.label: [f"{'✗' if cell.lost >= 0 else '✓'} {cell.words}" for cell in column]
            for lane, column in zip(lanes, zip(*rows, strict=True), strict=False)
        },
    }
