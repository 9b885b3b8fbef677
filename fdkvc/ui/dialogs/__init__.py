"""The Dialogs page."""
