"""Ablation: any hyperparameter of any policy over many values."""

from fdkvc.paper.page import ablation
from fdkvc.ui.frame import page

with page(
    "ablation",
    "What does a hyperparameter of a policy do? Vary one, or two at once, on the same dialogs.",
    ablation.link_fields,
) as shown:
    ablation.show(shown.name, shown.beside_title)
