"""Ablation: any hyperparameter of any policy over many values."""

from fdkvc.ui.ablation import choices, sections
from fdkvc.ui.kit.frame import page

with page(
    "ablation",
    "Ablation",
    "What does a hyperparameter of a policy do? Vary one, or two at once, on the same dialogs.",
    choices.link_fields,
    adopt=choices.adopt,
) as shown:
    sections.show(shown.name)
