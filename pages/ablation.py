"""Ablation: any hyperparameter of any policy over many values, or two at once."""

import streamlit as st

from fdkvc.ui.ablation import choices, sections
from fdkvc.ui.kit import fields, past
from fdkvc.ui.kit.files import show_sweep_files
from fdkvc.ui.kit.frame import enter_page, heading, problems
from fdkvc.ui.kit.run_panel import run_panel
from fdkvc.ui.kit.work import sweep_work

PAGE = "ablation"
RUNS = choices.runs_of(PAGE)

enter_page()

link = fields.arriving_link()
wrong = fields.adopt_link(PAGE, [*choices.link_fields(PAGE, link), past.LINKED], link)

heading(
    "Ablation",
    "What does a hyperparameter do? Sweep one, or two at once, over the same dialogs; the paper's "
    "own sweeps are overlaid, its defaults marked, and every policy stands beside them.",
)
problems(wrong)
with st.sidebar:
    chosen = choices.choose_sweep(PAGE)

run_panel(PAGE, "Run", sweep_work(chosen), content=chosen)
shown = past.at_hand(RUNS, chosen)
past.show_runs(RUNS, shown)

if shown is None:
    past.offer()
else:
    sections.about_sweep(shown, chosen)
    sections.show_sweep(PAGE, shown)
    show_sweep_files(PAGE, *shown.result)
fields.write_link(PAGE, [*choices.link_fields(PAGE), *past.linked(PAGE)])
