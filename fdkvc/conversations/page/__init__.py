"""The choice of a conversation on a page."""
