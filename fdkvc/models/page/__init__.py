"""The page Answers."""
