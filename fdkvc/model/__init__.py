"""A small language model in NumPy: what it reads and writes, with its cache under a policy."""

from pathlib import Path

HOUSE = Path(__file__).parent / "house"
"""The folder of the model that comes with the project."""
