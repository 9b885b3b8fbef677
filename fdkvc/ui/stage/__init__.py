"""The stage: a recorded run that a person steps through in the browser alone."""
