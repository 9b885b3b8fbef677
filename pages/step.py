"""Step through: one dialog and one policy, turn by turn."""

import streamlit as st

from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.frame import page
from fdkvc.ui.kit.runs import RunChoice, load_run
from fdkvc.ui.kit.variants import tell_idle_in
from fdkvc.ui.stage.follow import nearly_kept, open_on
from fdkvc.ui.step import scene, tour

PAGE = "step"

with page(
    PAGE,
    "Step through",
    "A language model remembers a dialog in a cache, which has room for only so many tokens. "
    "Watch, turn by turn, how a policy scores them and evicts the lowest.",
    adopt=sidebar.adopt_link,
    staged=True,
) as shown:
    with st.sidebar:
        policy, beside = sidebar.choose_policy(PAGE)
        dialog, budget = sidebar.choose_dialog(PAGE)
        asked = sidebar.choose_metrics(PAGE)

    run = load_run(RunChoice(dialog, policy, budget, asked))
    sidebar.tell_rules(beside, run.trace)
    tell_idle_in([policy], run.dialogs)
    open_on(PAGE, shown.link, lambda: nearly_kept(run))
    shown.say_wrong(sidebar.keep_to_dialog(PAGE, run.dialogs, shown.link))

    with shown.beside_title:
        scene.downloads(PAGE, run)
        tour.guided_walk(PAGE)
    tour.tell_stop(PAGE, run)
    write = fields.link_writer(PAGE, sidebar.view_fields(PAGE), sidebar.MOVING)
    follow = scene.show(PAGE, run, write, beside=tour.beside(PAGE, run))
    follow()
