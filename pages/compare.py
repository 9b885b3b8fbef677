"""Compare: several policies over one dialog, in step, and what would have happened if."""

import streamlit as st

from fdkvc.ui import fields, lanes_view, settings, what_if
from fdkvc.ui.entry import rerun_if_picked
from fdkvc.ui.frame import enter_page, heading, problems
from fdkvc.ui.lane_figures import show_figures
from fdkvc.ui.lanes import MOST_LANES, load_lanes
from fdkvc.ui.transport import playback, transport
from fdkvc.ui.variants import choose_policies

PAGE = "compare"

enter_page()

link = fields.arriving_link()
wrong = lanes_view.adopt_link(PAGE, link)

heading(
    "Compare",
    "Several policies read the same dialog, all at the same turn. See where their caches part, "
    "what only one of them keeps, and what would have happened with something changed from some "
    "turn on.",
)
problems(wrong)

with st.sidebar:
    dialog, budget = settings.choose_dialog(PAGE)
    policies = choose_policies(PAGE, most=MOST_LANES)
    asked = settings.choose_metrics(PAGE, dialog.size)

runs = load_lanes(dialog, policies, budget, asked)
turns = runs[0].run.dialogs.turns
problems(settings.keep_to_dialog(PAGE, runs[0].run.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, turns)
    what_if.ask(PAGE, runs)
    files = st.container(width="content")
    picked = lanes_view.follow_entry(PAGE, runs)
lanes = what_if.with_fork(PAGE, runs)
with files:
    lanes_view.downloads(PAGE, lanes)

rivers = st.container()
lines, pair, difference = lanes_view.difference_panels(PAGE, lanes)
show_figures(lanes)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, turns, every)
    rerun_if_picked(PAGE, picked)
    lanes_view.show_lanes(PAGE, lanes, turn)
    with lines:
        lanes_view.show_lines(PAGE, lanes, turn)
    with difference:
        lanes_view.show_difference(PAGE, *pair, turn)
    lanes_view.write_link(PAGE)


with rivers:
    stepping()
