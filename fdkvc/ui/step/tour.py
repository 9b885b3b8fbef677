"""A guided walk: a few stops through one prepared dialog, each a view with a word on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import streamlit as st

from fdkvc.dialogs.scenarios import World, scenario_named
from fdkvc.measured.benchmark import Benchmark
from fdkvc.policies import policy_named
from fdkvc.ui.kit.fields import adopt
from fdkvc.ui.kit.markdown import Markdown
from fdkvc.ui.kit.runs import DialogChoice, Run, RunChoice
from fdkvc.ui.kit.sidebar import view_fields


@dataclass(frozen=True)
class Stop:
    """One stop of the walk.

    Attributes
    ----------
    words : str
        What to see; ``{retention}``, ``{cached}``, ``{topic}`` stand for this run's numbers.
    turn : int
    view : mapping of str to str
        The rest of the view, as in a permalink.
    """

    words: str
    turn: int
    view: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def choice(self) -> RunChoice:
        """The run that it speaks of."""
        scenario = scenario_named(self.view["scenario"])
        dialog = DialogChoice(scenario, int(self.view["seed"]), World())
        return RunChoice(dialog, policy_named(self.view["policy"]), Benchmark.budget)


_SHIFT = {"scenario": "shift", "seed": "7"}

STOPS = (
    Stop(
        "Three turns speak of A, and the cache is full of A. So far every policy looks the same: "
        "{retention} of the entries are of the current topic, {topic}.",
        2,
        {**_SHIFT, "policy": "h2o"},
    ),
    Stop(
        "The dialog turns to {topic} for good. H2O protects the newest half of the budget, so half "
        "of the cache follows at once: retention is {retention}.",
        3,
        {**_SHIFT, "policy": "h2o"},
    ),
    Stop(
        "Six turns later, retention still stands at {retention}. In the river, the lower half has "
        "not changed colour since turn 2: those entries had gathered their attention early, and a "
        "sum never shrinks. This is the stale cache.",
        9,
        {**_SHIFT, "policy": "h2o"},
    ),
    Stop(
        "One of the stale entries: it was never near eviction. Its accumulated attention towers "
        "over what a new entry can gather in the turn or two that the window gives it.",
        9,
        {**_SHIFT, "policy": "h2o", "entry": "20"},
    ),
    Stop(
        "The same dialog under FD-KVC. At the turn to {topic} it adapts more slowly than H2O: "
        "retention is {retention}, because the old entries' recency scores still stand high.",
        3,
        {**_SHIFT, "policy": "fd-kvc"},
    ),
    Stop(
        "But recency decays every turn, and the old entries are no longer reinforced: two turns "
        "on, {retention}. The purple part of the bars is what they lose.",
        5,
        {**_SHIFT, "policy": "fd-kvc"},
    ),
    Stop(
        "At the end {retention} of the cache is of topic {topic}. The price: what the dialog said "
        "of A is gone. Try the Topic Return scenario to see when that hurts.",
        9,
        {**_SHIFT, "policy": "fd-kvc"},
    ),
)


def guided_walk(page: str) -> None:
    """Show the button that starts the walk, or where it stands with Next, Back and End."""
    key = f"{page}/stop"
    at = st.session_state.get(key)

    def go(to: int | None) -> None:
        st.session_state[key] = to
        if to is not None:
            view = {**STOPS[to].view, "turn": str(STOPS[to].turn)}
            adopt(page, view_fields(page, view["policy"]), view)

    if at is None:
        st.button(
            "Guided walk",
            key=f"{page}/walk",
            icon=":material/explore:",
            on_click=go,
            args=(0,),
            help="Seven stops: the stale cache under H2O, then the same dialog under FD-KVC.",
        )
        return
    st.button("End the walk", key=f"{page}/walk-end", on_click=go, args=(None,))
    if at:
        st.button("Previous stop", key=f"{page}/walk-back", on_click=go, args=(at - 1,))
    if at < len(STOPS) - 1:
        st.button("Next stop", key=f"{page}/walk-next", type="primary", on_click=go, args=(at + 1,))


def tell_stop(page: str, run: Run) -> None:
    """Say what there is to see at the stop of the walk, with this run's own numbers."""
    at = st.session_state.get(f"{page}/stop")
    if at is None:
        return
    stop = STOPS[at]
    if replace(run.choice, asked=()) != stop.choice:
        st.info(
            Markdown(
                "**Stop {} of {}** is about {}. The settings have changed since: the next stop, or "
                "the one before, shows its own again."
            ).format(at + 1, len(STOPS), stop.choice.policy.label),
            icon=":material/explore:",
        )
        return
    row = run.turns.iloc[min(stop.turn, len(run.turns) - 1)]
    words = stop.words.format(
        retention=f"{row['retention']:.0%}", topic=row["topic"], cached=f"{row['cached']:.0f}"
    )
    st.info(
        Markdown("**Stop {} of {}.** {}").format(at + 1, len(STOPS), words),
        icon=":material/explore:",
    )
