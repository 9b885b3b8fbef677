"""Redirects links to the Ablation page, before 2.0 a page of its own, to Benchmark's section."""

from fdkvc.ui.frame import lead_to

lead_to("pages/benchmark.py", section="ablation")
