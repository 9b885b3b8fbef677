"""The stage: a recorded run laid out, packed, and drawn by the browser alone."""
