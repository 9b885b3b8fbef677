"""Step through: one dialog and one policy, turn by turn."""

import streamlit as st

from fdkvc.ui import fields, settings, step_view, story, tour
from fdkvc.ui.entry import rerun_if_picked
from fdkvc.ui.frame import enter_page, heading, problems
from fdkvc.ui.runs import RunChoice, load_run
from fdkvc.ui.transport import playback, transport

PAGE = "step"

enter_page()

link = fields.arriving_link()
wrong = settings.adopt_link(PAGE, link)

heading(
    "Step through",
    "A dialog passes turn by turn through a cache that holds only so many tokens. Each turn brings "
    "new ones; the policy scores every entry, and the lowest are evicted. Step with the arrow "
    "keys, and click any entry to see why it stays or goes.",
)
problems(wrong)

with st.sidebar:
    dialog, budget = settings.choose_dialog(PAGE)
    policy, beside = settings.choose_policy(PAGE)
    asked = settings.choose_metrics(PAGE, dialog.size)

run = load_run(RunChoice(dialog, policy, budget, asked))
settings.tell_rules(beside, run.trace)
problems(settings.keep_to_dialog(PAGE, run.dialogs, link))

with st.container(horizontal=True, vertical_alignment="center"):
    every = playback(PAGE, run.dialogs.turns)
    step_view.downloads(PAGE, run)
    tour.guided_walk(PAGE)
    order = step_view.choose_order(PAGE)
tour.tell_stop(PAGE, run)


views = st.container()
question = story.ask_why(PAGE, run, settings.entry_field(PAGE))
algorithm = story.algorithm(run)


@st.fragment(run_every=every)
def stepping() -> None:
    """Everything that a step changes."""
    turn = transport(PAGE, run.dialogs.turns, every)
    rerun_if_picked(PAGE, question.token)
    step_view.views(PAGE, run, turn, order)
    story.why(run, turn, question)
    story.inside_turn(run, turn, algorithm)
    settings.write_link(PAGE)


with views:
    stepping()
