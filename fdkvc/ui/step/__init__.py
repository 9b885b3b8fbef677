"""The step page."""
