"""A small language model in NumPy whose caches evict by a policy."""

from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""The folder of the bundled model."""

MEASURED, MEASURED_ON = BUNDLED / "answers", "23 November 2026"
"""Its answers under eleven policies, measured by ``python -m fdkvc answers``, and the date."""
