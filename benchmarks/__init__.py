"""What is measured and pictured of the running project; run with ``python -m benchmarks.NAME``."""
