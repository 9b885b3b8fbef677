"""The dialogs page."""
