"""Why an entry stayed or went, in numbers and in words."""
