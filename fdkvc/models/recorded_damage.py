"""A recorded reading of a dialog: what policies cost it, and which entries are attended to.

The shipped one is SmolLM2's reading of an example; ``python -m benchmarks.smollm2`` wrote it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.models import numpy as lm
from fdkvc.models.answer_causes import Word
from fdkvc.models.damage import Cause, Damage, HurtWord, Part, Text

SHIPPED = Path(lm.__file__).parent / "recorded" / "smollm2.json"

NAMES = "model", "parameters", "dialog", "budget"


@dataclass(frozen=True, eq=False)
class RecordedDamage:
    """A dialog as a model read it under several policies."""

    model: str
    """The name of the model."""
    parameters: int
    """How many parameters it has."""
    dialog: str
    """The name of the dialog."""
    budget: int
    """Entries that a KV head may hold after a turn."""
    text: Text
    """What was read."""
    damages: Mapping[str, Damage]
    """The damage by the name of the policy; each KV head decided by itself."""
    received: Floats
    """Shape (L, N). The attention that each token gets from later ones, as a mean over these and
    over a layer's heads."""


def read_recorded(content: str) -> RecordedDamage:
    """Return a recording from its file's text."""
    stored: dict[str, Any] = json.loads(content)
    words = tuple(Word(*word) for word in stored["words"])
    text = Text(tuple(stored["ids"]), tuple(Part(*part) for part in stored["parts"]), words)

    def numbers(values: Any) -> Floats:
        return np.array(values, np.float32)

    def hurt(words: Any) -> tuple[HurtWord, ...]:
        return tuple(
            HurtWord(word, kl, tuple(Cause(*cause) for cause in causes))
            for word, kl, causes in words
        )

    full = numbers(stored["full_nats"])
    damages = {
        name: Damage(text, full, numbers(row["nats"]), numbers(row["kl"]), hurt(row["hurt"]))
        for name, row in stored["damages"].items()
    }
    model, parameters, dialog, budget = (stored[name] for name in NAMES)
    received = numbers(stored["received"])
    return RecordedDamage(model, parameters, dialog, budget, text, damages, received)


@lru_cache(maxsize=1)
def shipped_damage() -> RecordedDamage:
    """Return the recording that is shipped."""
    return read_recorded(SHIPPED.read_text("utf-8"))
