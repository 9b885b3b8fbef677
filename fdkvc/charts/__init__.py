"""Charts as functions of data; what follows a stage has a spec that is built once."""
