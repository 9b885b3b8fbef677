"""Compare: several policies over one dialog, turn by turn."""

import streamlit as st

from fdkvc.core.limits import MAX_LANES
from fdkvc.player.moments import held_at_return
from fdkvc.ui import fields, sidebar
from fdkvc.ui.compare import scenes
from fdkvc.ui.follow import open_on, show_downloads
from fdkvc.ui.frame import page
from fdkvc.ui.lanes import POLICIES, load_lanes
from fdkvc.ui.variants import choose_policies

PAGE = "compare"

with page(
    PAGE,
    "Several policies read the same dialog with room for the same number of tokens: see, turn by "
    "turn, what each still holds and where they differ.",
    adopt=scenes.adopt_link,
    staged=True,
) as shown:
    with st.sidebar:
        policies = choose_policies(PAGE, POLICIES, MAX_LANES)
        dialog, budget = sidebar.choose_dialog(PAGE)
        metrics = sidebar.choose_metrics(PAGE)

    lanes = load_lanes(dialog, policies, budget, metrics)
    open_on(shown, lanes[0].dialogs, lambda: held_at_return(lanes))
    with shown.beside_title:
        show_downloads(PAGE, lanes)
    scenes.show(PAGE, lanes, fields.link_writer(PAGE, scenes.FIELDS))
