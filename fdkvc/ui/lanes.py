"""Runs for the screen, each computed once, and the lanes of a comparison over one dialog."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import streamlit as st

from fdkvc.core.dialogs import DialogBatch
from fdkvc.core.parameters import Field
from fdkvc.explain.notes import available_in
from fdkvc.explain.tables import difference_table, overlap_table
from fdkvc.player.run import ChosenDialog, StageRun, build_run
from fdkvc.policies import Policy
from fdkvc.ui import fields
from fdkvc.ui.fields import held, hold
from fdkvc.ui.lru import cached
from fdkvc.ui.sidebar import read_name
from fdkvc.ui.variants import CHOSEN, warn_no_effect


@cached
def _load_dialog(choice: ChosenDialog) -> DialogBatch:
    return choice.load()


@cached
def load_run(
    dialog: ChosenDialog, policy: Policy, budget: int, optional: tuple[str, ...]
) -> StageRun:
    """Run the policy over the dialog, which is loaded once for all policies."""
    return build_run(dialog, policy, budget, optional, _load_dialog(dialog))


POLICIES = replace(CHOSEN, follows=True)
"""The policies of the lanes, carried over from page to page."""


def load_lanes(
    dialog: ChosenDialog,
    policies: Sequence[Policy],
    budget: int,
    metrics: tuple[str, ...] = (),
) -> tuple[StageRun, ...]:
    """Run each policy over the dialog, and say which settings have no effect in it.

    `metrics` are further metrics.
    """
    lanes = [load_run(dialog, policy, budget, metrics) for policy in policies]
    warn_no_effect(policies, available_in(lanes[0].dialogs))
    return tuple(lanes)


PAIR = (
    Field("One policy", name="one", default="", read=read_name),
    Field("Another", name="other", default="", read=read_name),
)
"""The two lanes that are compared in detail."""


def choose_pair(page: str, lanes: Sequence[StageRun]) -> tuple[StageRun, StageRun]:
    """Let a person choose two lanes, by default the last two.

    A variant that is added is compared with the first lane of its policy.
    """
    by_name = {lane.policy.name: lane for lane in lanes}
    names = list(by_name)
    titles = {name: lane.policy.title for name, lane in by_name.items()}
    key = f"{page}/lanes"
    previous_names = st.session_state.get(key, names)
    st.session_state[key] = names
    cores = {lane.policy.name: lane.policy.core.key for lane in lanes}
    # The last name that is new since the previous run, and the first lane of its policy.
    added = next((name for name in reversed(names) if name not in previous_names), None)
    sibling = next((name for name in names if added and cores[name] == cores[added]), added)
    if sibling != added and added not in [held(page, field) for field in PAIR]:
        for field, name in zip(PAIR, (sibling, added), strict=True):
            hold(page, field, name)
    last_two = names[-2:] if len(names) > 1 else [*names, *names]
    with st.container(horizontal=True):
        pair = []
        for field, default in zip(PAIR, last_two, strict=True):
            name = fields.choice(page, replace(field, default=default, choices=titles))
            pair.append(by_name[name])
    return pair[0], pair[1]


@cached
def overlap(run: StageRun, other_run: StageRun) -> pd.DataFrame:
    """Return for each turn how many entries two runs share."""
    table = overlap_table(run.entries, other_run.entries).set_index("turn")
    # Turns before the first word have no entries: empty caches are equal, so the overlap is 1.
    turns = pd.RangeIndex(run.dialogs.turns, name="turn")
    return table.reindex(turns).fillna({"jaccard": 1.0}).fillna(0).reset_index()


@cached
def differences(run: StageRun, other_run: StageRun) -> pd.DataFrame:
    """Return the entries that only one of two runs keeps, in each turn."""
    return difference_table(run.entries, other_run.entries)
