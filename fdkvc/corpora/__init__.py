"""What people said: files of dialogs, their words as vectors, and what a model makes of them."""
