"""Leads links to the page Ablation of before 2.0 to the section of Benchmark that it is now."""

from fdkvc.ui.frame import lead_to

lead_to("pages/benchmark.py", section="ablation")
