"""Ablation: any hyperparameter of any policy over many values, or searched for several goals."""

from fdkvc.ui.ablation import tabs
from fdkvc.ui.kit.frame import page

with page(
    "ablation",
    "Ablation",
    "What does a hyperparameter do? Sweep one, or two at once, over the same dialogs, and every "
    "policy stands beside them; or search any of them for several goals at once.",
    tabs.fields_of,
    adopt=tabs.adopt_link,
) as shown:
    tabs.show(shown.name)
