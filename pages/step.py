"""Step through: one dialog and one policy, turn by turn."""

import streamlit as st

from fdkvc.ui.kit import fields, sidebar
from fdkvc.ui.kit.entry import rerun_if_picked
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.runs import RunChoice, load_run
from fdkvc.ui.kit.transport import playback, transport
from fdkvc.ui.step import scene, story, tour

PAGE = "step"

enter_page()

link = fields.arriving_link()
wrong = fields.adopt_link(PAGE, sidebar.view_fields(PAGE, link.get("policy")), link)

heading(
    "Step through",
    "A dialog passes turn by turn through a cache that holds only so many tokens. Each turn brings "
    "new ones; the policy scores every entry, and the lowest are evicted. Step with the arrow "
    "keys, and click any entry to see why it stays or goes.",
)
problems(wrong)

with st.sidebar:
    dialog, budget = sidebar.choose_dialog(PAGE)
    policy, beside = sidebar.choose_policy(PAGE)
    asked = sidebar.choose_metrics(PAGE, dialog.size)

run = load_run(RunChoice(dialog, policy, budget, asked))
sidebar.tell_rules(beside, run.trace)
problems(sidebar.keep_to_dialog(PAGE, run.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, run.dialogs.turns)
    scene.downloads(PAGE, run)
    tour.guided_walk(PAGE)
    order = scene.choose_order(PAGE)
tour.tell_stop(PAGE, run)


views = st.container()
question = story.ask_why(PAGE, run)
algorithm = story.algorithm(run)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, run.dialogs.turns, every)
    rerun_if_picked(PAGE, question.token)
    scene.views(PAGE, run, turn, order)
    story.why(run, turn, question)
    story.inside_turn(run, turn, algorithm)
    fields.write_link(PAGE, sidebar.view_fields(PAGE))


with views:
    stepping()
