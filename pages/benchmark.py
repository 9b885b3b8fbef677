"""Benchmark: the paper's tables, figures and claims, measured beside published."""

from fdkvc.paper.page import choices, sections
from fdkvc.ui.frame import page

with page(
    "benchmark",
    "Every policy runs on the same dialogs: see each result beside the paper's figure, with its "
    "95 % interval and a verdict.",
    choices.FIELDS,
) as shown:
    sections.show(shown.name, shown.beside_title)
