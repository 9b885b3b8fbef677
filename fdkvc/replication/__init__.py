"""What was measured, beside what is published, with a verdict."""
