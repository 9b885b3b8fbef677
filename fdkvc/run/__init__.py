"""Running a policy over dialogs, turn by turn, and what is measured of a run."""
