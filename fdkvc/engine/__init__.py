"""The loop over turns, its record and its metrics."""
