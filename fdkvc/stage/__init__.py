"""The stage: a recorded run that the browser steps through by itself."""
