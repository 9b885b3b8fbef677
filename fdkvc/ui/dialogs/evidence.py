"""Evidence: what later turns need, and which policies and heads still held it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import streamlit as st

from fdkvc.attention import Floats
from fdkvc.corpora.recordings import Recording
from fdkvc.corpora.transcripts import SPAN_KINDS, SpanKind, Transcript
from fdkvc.experiments.replay import default_heads
from fdkvc.explain.notes import missing_value_notes
from fdkvc.explain.overlap import share_of_differences
from fdkvc.policies import Policy
from fdkvc.policies.together import Together
from fdkvc.run.evidence import OLD, Demands, Evidence, demand_results, recall
from fdkvc.run.metrics import metrics_of
from fdkvc.run.simulate import simulate
from fdkvc.run.trace import Rule
from fdkvc.ui.dialogs.choices import Chosen
from fdkvc.ui.dialogs.transcript import Outcome, demand_kind, verdicts
from fdkvc.ui.kit.fields import held, segments
from fdkvc.ui.kit.frame import show_grid
from fdkvc.ui.kit.glossary import show_glossary
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import Markdown, plain
from fdkvc.ui.kit.sidebar import ENTRY, TURN
from fdkvc.words import count

KINDS = {"call": "Service calls", "state": "Dialogue states"}

GIVEN_BY: Mapping[SpanKind, str] = {
    "system": "said in the system prompt",
    "user": "said by the user",
    "assistant": "said by the assistant",
    "call": "used in a call",
    "result": "returned by a tool",
}


def show_headline(page: str, recording: Recording, lane: Lane) -> None:
    """Show a value that a policy had lost when it was needed, or that there is none.

    It is the value that the entry on the stage is a piece of, if that turn needed it, or else the
    first one.
    """
    kind, name = demand_kind(recording)
    own = [each for each in verdicts(lane.run, recording) if each.demand.kind == kind]
    losses = [each for each in own if each.lost >= 0]
    turn, entry = held(page, TURN), held(page, ENTRY)
    shown = [
        each
        for each in losses
        if each.demand.turn == turn and any(entry in tokens for tokens in each.mentions)
    ]
    lost = next(iter(shown or losses), None)
    unread = recording.transcript.malformed_calls
    besides = f", except {count(unread, 'call')} that cannot be read" if unread else ""
    words = f"{lane.label} still held everything that each {name} needed{besides}"
    if lost is not None:
        words = headline(name, recording, lane, lost)
    elif not own:
        kept = lane.run.trace.kept[0, len(recording.tokens) - 1]
        kept = kept[kept >= 0]
        oldest = int(np.searchsorted(recording.starts, kept.min(), "right")) - 1 if len(kept) else 0
        of = count(recording.starts[-1], "token")
        words = f"{lane.label} ends with {len(kept):,} of {of}; the oldest is from turn {oldest}"
    st.header(plain(words), anchor=False)


def headline(name: str, recording: Recording, lane: Lane, lost: Outcome) -> Markdown:
    """Return what a call or state lacked, who mentioned it when, and which rule evicted it when."""
    demand = lost.demand
    turn, start, _ = demand.mentions[-1]
    result = lane.run.trace.result(lost.lost)
    mentioned = np.isin(result.token[0], [token for some in lost.mentions for token in some])
    rule = Rule(result.rule[0][mentioned].max(initial=Rule.none))
    of_state = "" if demand.kind == "call" else f"The {name} of "
    return Markdown("{}{} in turn {} needs {} = *{}*, {} in turn {}. {} evicted it {}{}").format(
        of_state,
        demand.source,
        demand.turn,
        demand.slot,
        demand.value,
        GIVEN_BY[recording.transcript.span_kind(turn, start)],
        turn,
        lane.label,
        "at once" if lost.lost == turn else f"in turn {lost.lost}",
        f", by the {rule.name}" if rule else "",
    )


def show_evidence(page: str, chosen: Chosen, lanes: Sequence[Lane]) -> None:
    """Show each policy's share of met demands, and its verdict on every demand."""
    recording = chosen.recording
    missing = recording.transcript.missing
    present: set[str] = {demand.kind for demand, _ in recording.evidence}
    kinds = {kind: label for kind, label in KINDS.items() if kind in present}
    if not kinds:
        st.info(
            plain(
                "This dialog does not record what later turns need. Service calls (SGD), dialogue "
                "states (MultiWOZ) and tool calls (chats) do."
                if not missing
                else f"Later turns of this dialog need {count(missing, 'value')}, but the text "
                "never contains them in these words."
            )
        )
        return
    show_grid(_figures(recording, lanes), "Share of the evidence that each policy held")
    show_glossary(metrics_of("evidence"), (lane.run.trace.policy for lane in lanes))
    with st.container(horizontal=True, vertical_alignment="center"):
        kind = segments(f"{page}/evidence/kind", "Needed by", kinds)
        parted = st.toggle(
            "Only where policies differ", key=f"{page}/evidence/parted", disabled=len(lanes) < 2
        )
    rows = [
        row
        for row in zip(*(verdicts(lane.run, recording) for lane in lanes), strict=True)
        if row[0].demand.kind == kind
        and not (parted and len({verdict.lost < 0 for verdict in row}) == 1)
    ]
    table = _demands(recording.transcript, rows, lanes)
    show_grid(table, "Each needed value and which policies held it")
    meaning = (
        "A value is held if at least one complete mention was still cached at the end of the "
        "previous turn. If not, the turn shown evicted part of the last complete mention. "
        "Percentages: the share of values held, averaged over calls (for states, over turns)."
    )
    st.caption(plain(" ".join([meaning, *missing_value_notes([recording.transcript])])))


def _figures(recording: Recording, lanes: Sequence[Lane]) -> dict[str, list[str]]:
    evidence = [Evidence(lane.run.trace, recording) for lane in lanes]
    columns = {"policy": [lane.label for lane in lanes]}
    for metric in metrics_of("evidence", optional=False).values():
        values = [metric.measure(each) for each in evidence]
        columns[metric.label] = [
            "–" if math.isnan(value) else metric.with_unit(value) for value in values
        ]
    return columns


def _demands(
    transcript: Transcript, rows: Sequence[tuple[Outcome, ...]], lanes: Sequence[Lane]
) -> dict[str, Sequence[str]]:
    demands = [row[0].demand for row in rows]
    last = [each.mentions[-1] for each in demands]
    return {
        "value": [f"{each.slot} “{each.value}”" for each in demands],
        "needed by": [each.source for each in demands],
        "in turn": [str(each.turn) for each in demands],
        "last mentioned in": [
            f"{each.mentions[-1].turn}{' (old)' if each.age > OLD else ''}"
            f"{', of another service' if each.carried else ''}"
            for each in demands
        ],
        "mentioned by": [SPAN_KINDS[transcript.span_kind(each.turn, each.start)] for each in last],
        **{
            lane.label: [f"{'✓' if each.lost < 0 else '✗'} {each.words}" for each in column]
            for lane, column in zip(lanes, zip(*rows, strict=True), strict=False)
        },
    }


# ------------------------------------------------------------------------------- head by head


def show_heads(chosen: Chosen, lanes: Sequence[Lane], lane: Lane) -> None:
    """Show for each policy what deciding together changes, and one policy head by head."""
    recording = chosen.recording
    if len(recording.heads) == 1:
        st.info("This dialog has one head. Traces from `python -m fdkvc capture` have several.")
        return
    kind, name = demand_kind(recording)
    met = f"{name} evidence held"
    policies = [lane.run.trace.policy for lane in lanes]
    every = len(recording.heads)
    ways = [_both_ways(policy, recording, chosen.budget, kind, every) for policy in policies]
    columns = {
        "policy": [lane.label for lane in lanes],
        f"{met}, each head by itself": [_percent(way[0].mean()) for way in ways],
        "range over heads": [
            f"{_percent(way[0].min())} to {_percent(way[0].max())}" for way in ways
        ],
        f"{met}, together": [_percent(way[1].mean()) for way in ways],
        "entries that differ": [_percent(way[2].mean()) for way in ways],
    }
    if default_heads(recording) == "kv":
        size = recording.groups[0]
        shared = [
            _both_ways(policy, recording, chosen.budget, kind, size)[1] for policy in policies
        ]
        columns[f"{met}, those that share keys together"] = [_percent(it.mean()) for it in shared]
    show_grid(columns, "Each policy, each head by itself and all together")
    st.caption(
        "Together: entries are ranked by their mean score over the heads, so all heads keep the "
        "same tokens. Entries that differ: of the entries that a head keeps in either case, the "
        "share that it keeps in only one, averaged over turns and heads."
    )
    st.header(plain(f"{lane.label}, head by head"), anchor=False)
    alone, _, differ = ways[lanes.index(lane)]
    heads = {
        "head": [f"head {head}" for head in recording.heads],
        f"{met}, by itself": [*map(_percent, alone)],
        "entries that differ": [*map(_percent, differ)],
    }
    show_grid(heads, f"The heads under {lane.label}")


@cached
def _both_ways(
    policy: Policy, recording: Recording, budget: int, kind: str, together: int
) -> tuple[Floats, Floats, Floats]:
    """Return each head's recall, alone and together, and the share of entries that differ."""
    dialogs = recording.dialogs
    alone, joined = (
        simulate(deciding, dialogs, budget, entries=False, outputs_from=dialogs.turns)
        for deciding in (policy, Together(policy, together))
    )
    shares = [recall(demand_results(trace, recording), Demands(kind)) for trace in (alone, joined)]
    return shares[0], shares[1], share_of_differences(alone, joined).mean(axis=1)


def _percent(share: float) -> str:
    return "–" if share != share else f"{100 * share:.0f} %"
