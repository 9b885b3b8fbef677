"""The ablation page."""
