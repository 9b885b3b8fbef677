"""The page Benchmark."""
