"""Dialogs: what happens in them, how they are drawn, and the arrays that a run reads."""
