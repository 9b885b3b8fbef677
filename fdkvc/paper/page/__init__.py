"""The pages Benchmark and Ablation."""
