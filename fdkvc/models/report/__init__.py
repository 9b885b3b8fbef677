"""Reports on a model's answers."""
