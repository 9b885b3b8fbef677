"""Synthetic dialogs: scenarios, random generation, and the batch that a run reads."""
