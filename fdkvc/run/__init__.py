"""Run a policy over dialogs, turn by turn, and measure the run."""
