"""A small language model in NumPy whose caches evict by a policy."""

import json
from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""The folder of the bundled model."""

BUNDLED_SERVICES: frozenset[str] = frozenset(
    json.loads((BUNDLED / "services.json").read_text("utf-8"))["services"]
)
"""The services in its training dialogues."""

MEASURED, MEASURED_ON = BUNDLED / "answers", "23 November 2026"
"""Its answers under eleven policies, measured by ``python -m fdkvc answers``, and the date."""
