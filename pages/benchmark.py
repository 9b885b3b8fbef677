"""Benchmark: the paper's tables, figures and claims, measured beside published; its sweeps."""

from fdkvc.paper.page import sections
from fdkvc.ui.frame import page

with page(
    "benchmark",
    "Is the paper on FD-KVC right? Every policy runs on the same dialogs, and each published "
    "figure and claim gets a verdict.",
    sections.link_fields,
    adopt=sections.adopt_link,
) as shown:
    sections.show(shown.name, shown.beside_title)
