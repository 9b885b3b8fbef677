"""Heads: what each keeps by itself, and what changes when they decide together."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from fdkvc.attention import Floats
from fdkvc.corpora.recordings import Recording
from fdkvc.experiments.replay import default_heads
from fdkvc.explain.overlap import share_of_differences
from fdkvc.policies import Policy
from fdkvc.policies.together import Together
from fdkvc.run.evidence import Demands, demand_results, recall
from fdkvc.run.simulate import simulate
from fdkvc.ui.dialogs.choices import Chosen
from fdkvc.ui.dialogs.transcript import demand_kind
from fdkvc.ui.kit.frame import table_html
from fdkvc.ui.kit.lanes import Lane
from fdkvc.ui.kit.lru import cached
from fdkvc.ui.kit.markdown import plain


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
    st.html(table_html(columns, "Each policy, each head by itself and all together"))
    st.caption(
        "Together: entries are ranked by their mean score over the heads, so all heads keep the "
        "same tokens. Entries that differ: of the entries that a head keeps in either case, the "
        "share that it keeps in only one, averaged over turns and heads."
    )
    st.header(plain(f"{lane.label}, head by head"), anchor=False)
    alone, _, differ = ways[lanes.index(lane)]
    st.html(
        table_html(
            {
                "head": [f"head {head}" for head in recording.heads],
                f"{met}, by itself": [_percent(share) for share in alone],
                "entries that differ": [_percent(share) for share in differ],
            },
            f"The heads under {lane.label}",
        )
    )


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
