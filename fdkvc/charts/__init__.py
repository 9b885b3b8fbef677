"""Charts as functions of data: each spec is built once and cached, its data comes and goes."""
