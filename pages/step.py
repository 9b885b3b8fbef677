"""Step through: one dialog and one policy, turn by turn."""

import streamlit as st

from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.runs import RunChoice, load_run
from fdkvc.ui.kit.variants import tell_idle_in
from fdkvc.ui.stage.follow import nearly_kept, open_on
from fdkvc.ui.step import scene, tour

PAGE = "step"

enter_page()

link = sidebar.with_numbers_apart(fields.arriving_link())
wrong = fields.adopt_link(PAGE, sidebar.view_fields(PAGE, link), link)

with st.container(horizontal=True, vertical_alignment="center", key="stage-head"):
    heading(
        "Step through",
        "Each turn brings tokens; the policy scores every entry of the cache, and the lowest are "
        "evicted.",
    )
    beside_title = st.container(horizontal=True, width="content")
problems(wrong)

with st.sidebar:
    dialog, budget = sidebar.choose_dialog(PAGE)
    policy, beside = sidebar.choose_policy(PAGE)
    asked = sidebar.choose_metrics(PAGE)

run = load_run(RunChoice(dialog, policy, budget, asked))
sidebar.tell_rules(beside, run.trace)
tell_idle_in([policy], run.dialogs)
open_on(PAGE, link, lambda: nearly_kept(run))
problems(sidebar.keep_to_dialog(PAGE, run.dialogs, link))

with beside_title:
    scene.downloads(PAGE, run)
    tour.guided_walk(PAGE)
tour.tell_stop(PAGE, run)
follow = scene.show(
    PAGE,
    run,
    fields.link_writer(PAGE, sidebar.view_fields(PAGE), sidebar.MOVING),
    beside=tour.beside(PAGE, run),
)
follow()
