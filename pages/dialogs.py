"""Dialogs: what people really said, and what each cache still holds of it, turn by turn."""

import streamlit as st

from fdkvc.ui import dialog_sections, dialog_settings, fields, settings, step_view
from fdkvc.ui.entry import rerun_if_picked
from fdkvc.ui.frame import enter_page, heading, problems
from fdkvc.ui.lanes import MOST_LANES, load_lanes
from fdkvc.ui.transcript_view import explain_colours, show_transcript
from fdkvc.ui.transport import playback, transport
from fdkvc.ui.variants import choose_policies

PAGE = "dialogs"

enter_page()

link = fields.arriving_link()
wrong = dialog_settings.adopt_link(PAGE, link)

heading(
    "Dialogs",
    "Real conversations, yours too, replayed through every policy. Read what people said, see "
    "what each cache forgot of it, and whether a later service call still found its arguments.",
)
problems(wrong)

with st.sidebar:
    chosen = dialog_settings.choose_dialog(PAGE)
    policies = choose_policies(PAGE, dialog_settings.POLICIES_AT_FIRST, most=MOST_LANES)
    asked = settings.choose_metrics(PAGE, chosen.head.size if chosen else 0)
if chosen is None:
    dialog_settings.ask_for_file()
    dialog_settings.write_link(PAGE)
    st.stop()

head = chosen.head
lanes = load_lanes(head, policies, chosen.budget, asked)
turns = len(chosen.recording.tokens)
problems(settings.keep_to_dialog(PAGE, head.recording.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, turns)
    lane = dialog_settings.choose_look(PAGE, lanes)
    order = step_view.choose_order(PAGE)
explain_colours(head)
transcript = st.container()
picked = settings.entry_field(PAGE).value
steps = dialog_sections.open_section(PAGE, chosen, lanes, lane, order, asked)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, turns, every)
    rerun_if_picked(PAGE, picked)
    show_transcript(head, lanes, turn, picked)
    steps(turn)
    dialog_settings.write_link(PAGE)


with transcript:
    stepping()
