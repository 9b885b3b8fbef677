"""The answers page: its controls, its conversation and its sections."""
