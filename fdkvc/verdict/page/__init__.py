"""The page Dialogs."""
