"""A small language model in NumPy: what it reads and writes, with its cache under a policy."""

import json
from pathlib import Path

BUNDLED = Path(__file__).parent / "bundled"
"""The folder of the model that comes with the project."""

BUNDLED_SERVICES: frozenset[str] = frozenset(
    json.loads((BUNDLED / "services.json").read_text("utf-8"))["services"]
)
"""The services in the dialogues that it was trained on."""

MEASURED, MEASURED_ON = BUNDLED / "answers", "22 November 2026"
"""What its answers lose under every policy, as ``python -m fdkvc answers`` wrote it, and when."""
