"""Ablation: any hyperparameter of any policy over many values, or two at once."""

import streamlit as st

from fdkvc.ui.ablation import choices, sections
from fdkvc.ui.kit.files import show_sweep_files
from fdkvc.ui.kit.frame import enter_page, heading
from fdkvc.ui.kit.run_panel import run_panel
from fdkvc.ui.kit.work import sweep_work

PAGE = "ablation"

enter_page()

heading(
    "Ablation",
    "What does a hyperparameter do? Sweep one, or two at once, over the same dialogs; the paper's "
    "own sweeps are overlaid, its defaults marked, and every policy stands beside them.",
)
with st.sidebar:
    chosen = choices.choose_sweep(PAGE)

done = run_panel(PAGE, "Run", sweep_work(chosen))

if done is not None:
    sweep, results = done
    sections.about_sweep(sweep, results, chosen)
    sections.show_sweep(PAGE, sweep, results)
    show_sweep_files(PAGE, sweep, results)
