"""Step through: one dialog and one policy, turn by turn."""

from functools import partial

import streamlit as st

from fdkvc.player.moments import nearly_kept
from fdkvc.ui import fields, sidebar
from fdkvc.ui.component import payload
from fdkvc.ui.follow import open_on, show_downloads
from fdkvc.ui.frame import page
from fdkvc.ui.lanes import load_lanes
from fdkvc.ui.step import scene
from fdkvc.ui.step.before import choose_ghost

PAGE = "step"

with page(
    PAGE,
    "Each square is a token of a made-up dialog, its letter the topic. Each turn the policy evicts "
    "those with the lowest scores; a panel says why the marked one stayed or went.",
    adopt=sidebar.adopt_link,
    staged=True,
) as shown:
    with st.sidebar:
        policy = sidebar.choose_policy(PAGE)
        dialog, budget = sidebar.choose_dialog(PAGE)
        metrics = sidebar.choose_metrics(PAGE)

    (run,) = load_lanes(dialog, [policy], budget, metrics)
    open_on(shown, run.dialogs, lambda: nearly_kept(run))

    ghost = choose_ghost(PAGE, run, sidebar.view_fields)
    with shown.beside_title:
        show_downloads(PAGE, [run], partial(payload, run, "", *ghost), further_runs=ghost.named)
    scene.show(PAGE, run, fields.link_writer(PAGE, sidebar.view_fields(PAGE)), ghost)
