"""Dialogs: what people really said, and what each cache still holds of it, turn by turn."""

import streamlit as st

from fdkvc.ui.dialogs import choices, sections
from fdkvc.ui.dialogs.evidence import show_headline
from fdkvc.ui.dialogs.transcript import explain_colours, show_transcript
from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.entry import rerun_if_picked
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.lanes import MOST_LANES, load_lanes
from fdkvc.ui.kit.transport import playback, transport
from fdkvc.ui.kit.variants import choose_policies
from fdkvc.ui.step import scene

PAGE = "dialogs"

enter_page()

link = fields.arriving_link()
wrong = choices.adopt_link(PAGE, link)

heading(
    "Dialogs",
    "Real conversations, yours too, replayed through every policy. Read what people said, see "
    "what each cache forgot of it, and whether a later service call still found its arguments.",
)
problems(wrong)

with st.sidebar:
    chosen = choices.choose_dialog(PAGE)
    policies = choose_policies(PAGE, choices.POLICIES, most=MOST_LANES)
    asked = sidebar.choose_metrics(PAGE, chosen.head.size if chosen else 0)
if chosen is None:
    choices.ask_for_file()
    fields.write_link(PAGE, choices.FIELDS)
    st.stop()

head = chosen.head
lanes = load_lanes(head, policies, chosen.budget, asked)
turns = len(chosen.recording.tokens)
problems(sidebar.keep_to_dialog(PAGE, head.recording.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, turns)
    lane = choices.choose_look(PAGE, lanes)
    order = scene.choose_order(PAGE)
with st.container(key="headline"):
    show_headline(head.recording, lane)
explain_colours(head)
transcript = st.container()
picked = fields.held(PAGE, sidebar.ENTRY)
steps = sections.open_section(PAGE, chosen, lanes, lane, order, asked)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, turns, every)
    rerun_if_picked(PAGE, picked)
    show_transcript(head, lanes, turn, picked)
    steps(turn)
    fields.write_link(PAGE, choices.FIELDS)


with transcript:
    stepping()
