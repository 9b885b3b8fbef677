"""Dialogs: real conversations, and what each cache still holds of them, turn by turn."""

import streamlit as st

from fdkvc.core.limits import MAX_LANES
from fdkvc.ui import sidebar
from fdkvc.ui.follow import open_on
from fdkvc.ui.frame import page
from fdkvc.ui.lanes import load_lanes
from fdkvc.ui.variants import choose_policies
from fdkvc.verdict.page import choices, transcript
from fdkvc.verdict.page.evidence import show_evidence, show_headline
from fdkvc.verdict.page.verdict import show_verdict

PAGE = "dialogs"

with page(
    PAGE,
    "Real dialogs, including your own: see which words each policy has evicted from the "
    "model's cache, and what needed them later.",
    adopt=choices.adopt_link,
    staged=True,
) as shown:
    with shown.beside_title:
        choices.offer_own_file(PAGE)
    card, place = st.container(), st.empty()
    controls = place.container(horizontal=True, vertical_alignment="bottom", key="transcript-row")
    with st.sidebar:
        chosen = choices.choose_dialog(shown, controls)
        policies = choose_policies(PAGE, choices.POLICIES, MAX_LANES)
        metrics = sidebar.choose_metrics(PAGE)

    if not chosen.file.is_log:  # a session has its own card
        with card:
            setting_known = show_verdict(PAGE, chosen, policies)
        if not setting_known:
            place.empty()
            st.stop()
    try:
        lanes = load_lanes(chosen.head, policies, chosen.budget, metrics)
    except ValueError as error:
        shown.show_problems([f"{error}."])
        st.stop()
    with controls:
        view = choices.choose_view(PAGE)
        lane = choices.choose_look(PAGE, lanes)
    recording, which = chosen.head.recording, choices.which_dialog(PAGE)
    open_on(shown, recording.dialogs, lambda: transcript.first_failure(recording, lane), which)

    with st.container(key="headline"):
        show_headline(PAGE, recording, lane)
    transcript.show_source(recording)
    transcript.show_view(PAGE, view, recording, lanes, lane, controls)
    with st.expander("What later turns need, and which policies held it"):
        show_evidence(PAGE, recording, lanes)
