"""Charts as functions of data."""
