"""A recorded reading of a dialog: what policies cost it, and which entries are attended to.

The one that is shipped is SmolLM2's of an example, written by ``python -m benchmarks.smollm2``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.core.attention import Floats
from fdkvc.core.transcripts import Transcript
from fdkvc.models import numpy as lm
from fdkvc.models.answer_causes import Word
from fdkvc.models.damage import (
    Cause,
    Damage,
    HurtWord,
    Part,
    Text,
    attention_received,
    dialog_text,
    read_damage,
)
from fdkvc.models.numpy.language_model import LanguageModel
from fdkvc.models.numpy.text_cache import read
from fdkvc.policies import Policy

SHIPPED = Path(lm.__file__).parent / "recorded" / "smollm2.json"

NAMES = "model", "parameters", "dialog", "budget"

DIGITS, SHARE_DIGITS = 4, 3
"""Digits after the point of nats and of shares of attention."""


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
    """By the name of the policy, each of whose KV heads decides by itself."""
    received: Floats
    """Shape (L, N). The mean attention that each token gets from later ones, over a layer's
    heads."""

    def to_json(self) -> str:
        """Return it as a file's text."""
        first = next(iter(self.damages.values()))
        content = {
            **{name: getattr(self, name) for name in NAMES},
            "ids": self.text.ids,
            "parts": self.text.parts,
            "words": [(word.text, word.passage, *word.span) for word in self.text.words],
            "full_nats": _rounded(first.full_nats),
            "damages": {
                name: {
                    "nats": _rounded(damage.nats),
                    "kl": _rounded(damage.kl),
                    "hurt": damage.hurt,
                }
                for name, damage in self.damages.items()
            },
            "received": [_rounded(layer, SHARE_DIGITS) for layer in self.received],
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def _rounded(numbers: Floats, digits: int = DIGITS) -> list[float]:
    return [round(number, digits) for number in numbers.tolist()]


def record_damage(
    model: LanguageModel,
    transcript: Transcript,
    policies: Sequence[Policy],
    budget: int,
    on_policy: Callable[[str], object] = lambda name: None,
) -> RecordedDamage:
    """Let a model read a dialog under each policy; `on_policy` gets the name of each that began."""
    text, full = dialog_text(model.tokens, transcript), model.full().without_hidden()
    read([full], text.ids, last=0)
    received = attention_received(full).mean(axis=1)
    del full
    damages = {}
    for policy in policies:
        on_policy(policy.name)
        cache = model.evicting(policy, budget)
        damages[policy.name] = read_damage(model, cache, text)
    names = model.name, model.decoder.shape.parameters, transcript.name
    return RecordedDamage(*names, budget, text, damages, received)


def read_recorded(content: str) -> RecordedDamage:
    """Return what `RecordedDamage.to_json` wrote."""
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
