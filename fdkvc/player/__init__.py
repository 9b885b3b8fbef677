"""A recorded run in the browser: packed, stepped through, saved."""
