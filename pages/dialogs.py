"""Dialogs: what real conversations lose, what to set, and each loss in the transcript."""

import streamlit as st

from fdkvc.core.limits import MAX_LANES
from fdkvc.ui import sidebar
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import hide, page
from fdkvc.ui.lanes import load_lanes
from fdkvc.ui.variants import choose_policies
from fdkvc.verdict.page import choices, transcript
from fdkvc.verdict.page.headline import show_headline
from fdkvc.verdict.page.verdict import show_verdict

PAGE = "dialogs"
ROW = "transcript-row"

with page(
    PAGE,
    "What do your conversations lose at today's limit, and what should you set? Then see each loss "
    "in the transcript.",
    adopt=choices.adopt_link,
    staged=True,
) as shown:
    with shown.beside_title:
        choices.offer_own_file(PAGE)
    card = st.container()
    controls = st.container(horizontal=True, vertical_alignment="bottom", key=ROW)
    with st.sidebar:
        chosen = choices.choose_dialog(shown, controls)
        policies = choose_policies(PAGE, choices.POLICIES, MAX_LANES)
        metrics = sidebar.choose_metrics(PAGE)

    with card:
        setting_known = show_verdict(PAGE, chosen.file)
    if not setting_known:
        hide(ROW)
        st.stop()
    try:
        lanes = load_lanes(chosen.head, policies, chosen.budget, metrics)
    except ValueError as error:
        shown.show_problems([f"{error}."])
        st.stop()
    with controls:
        view = choices.choose_view(PAGE)
        lane = choices.choose_look(PAGE, lanes)
    recording = chosen.head.recording
    which = choices.which_dialog(PAGE)
    open_on(shown, recording.dialogs, lambda: transcript.first_failure(recording, lane), which)

    with st.container(key="headline"):
        show_headline(PAGE, recording, lane)
    transcript.show_source(recording, lanes)
    transcript.show_view(PAGE, view, recording, lanes, lane, controls)
