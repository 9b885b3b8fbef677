"""A small language model in NumPy: what it reads and writes, with its cache under a policy."""
