"""A small language model in NumPy: what it reads and writes, with its cache under a policy."""

from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""The folder of the model that comes with the project."""

MEASURED, MEASURED_ON = BUNDLED / "answers", "22 November 2026"
"""What its answers lose under every policy, as ``python -m fdkvc answers`` wrote it, and when."""
