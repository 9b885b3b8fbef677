"""Compare: several policies over one dialog, in step, and what would have happened if."""

import streamlit as st

from fdkvc.ui.compare import scenes, what_if
from fdkvc.ui.compare.figures import show_figures
from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.entry import rerun_if_picked
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.lanes import MOST_LANES, POLICIES, load_lanes
from fdkvc.ui.kit.transport import playback, transport
from fdkvc.ui.kit.variants import choose_policies

PAGE = "compare"

enter_page()

link = fields.arriving_link()
wrong = scenes.adopt_link(PAGE, link)

heading(
    "Compare",
    "Several policies read the same dialog, all at the same turn. See where their caches part, "
    "what only one of them keeps, and what would have happened if you had changed something on "
    "the way.",
)
problems(wrong)

with st.sidebar:
    dialog, budget = sidebar.choose_dialog(PAGE)
    policies = choose_policies(PAGE, POLICIES, most=MOST_LANES)
    asked = sidebar.choose_metrics(PAGE, dialog.size)

runs = load_lanes(dialog, policies, budget, asked)
turns = runs[0].run.dialogs.turns
problems(sidebar.keep_to_dialog(PAGE, runs[0].run.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, turns)
    what_if.ask(PAGE, runs)
    files = st.container(width="content")
    picked = scenes.follow_entry(PAGE, runs)
lanes = what_if.with_fork(PAGE, runs)
with files:
    scenes.downloads(PAGE, lanes)

rivers = st.container()
lines, pair, difference = scenes.difference_panels(PAGE, lanes)
show_figures(lanes)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, turns, every)
    rerun_if_picked(PAGE, picked)
    scenes.show_lanes(PAGE, lanes, turn)
    with lines:
        scenes.show_lines(PAGE, lanes, turn)
    with difference:
        scenes.show_difference(PAGE, *pair, turn)
    fields.write_link(PAGE, scenes.FIELDS)


with rivers:
    stepping()
