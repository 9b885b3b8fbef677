"""Ablation: any hyperparameter of any policy over many values, or searched for several goals."""

from fdkvc.ui.ablation import tabs
from fdkvc.ui.kit import fields
from fdkvc.ui.kit.frame import enter_page, heading, problems

PAGE = "ablation"

enter_page()

wrong = tabs.adopt_link(PAGE, fields.arriving_link())

heading(
    "Ablation",
    "What does a hyperparameter do? Sweep one, or two at once, over the same dialogs, and every "
    "policy stands beside them; or search any of them for several goals at once.",
)
problems(wrong)
tabs.show(PAGE)
fields.write_link(PAGE, tabs.fields_of(PAGE))
