"""A small language model in NumPy whose caches evict by a policy."""

from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""The folder of the bundled model."""
