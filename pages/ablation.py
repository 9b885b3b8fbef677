"""Ablation: any hyperparameter of any policy over many values, or searched for several goals."""

from fdkvc.ui.ablation import tabs
from fdkvc.ui.kit.frame import page

with page(
    "ablation",
    "Ablation",
    "What does a hyperparameter of a policy do? Vary one, or two at once, on the same dialogs, "
    "or search for the values that serve several goals best.",
    tabs.fields_of,
) as shown:
    tabs.show(shown.name)
