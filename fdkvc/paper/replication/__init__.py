"""Measured figures beside published ones, with verdicts."""
