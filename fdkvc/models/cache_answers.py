"""What a model answers under several caches, how well each predicts the true text, and recordings.

Those that are shipped are of an example each; ``python -m benchmarks.recorded_answer`` wrote them.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from fdkvc.models import numpy as lm
from fdkvc.models.answer_causes import GradedCall, Restoration
from fdkvc.models.numpy.model_text import Writer
from fdkvc.runs.record import read_value

RECORDED = Path(lm.__file__).parent / "recorded"
"""The folder of the shipped recordings."""


class Predicted(NamedTuple):
    """A word of a text, or an argument's value, that is predicted after the text before it."""

    text: str
    right: bool
    """Whether the likeliest tokens are its words, apart from punctuation at its ends."""
    instead: str
    """The text of the likeliest tokens."""
    evicted: bool = False
    """Whether it, or a word of it, had been said and was evicted wherever that was; see
    `evicted_words`."""


@dataclass(frozen=True)
class CacheAnswer:
    """What a model answers with one cache."""

    title: str
    """The title of the cache."""
    held: int
    """Entries in each head."""
    count: int
    """Tokens of the text before the answer."""
    passages: tuple[tuple[Writer, str], ...]
    """What it wrote."""
    calls: tuple[GradedCall, ...] = ()
    """Its calls, graded against the expected ones; none while the model writes."""
    predicted: tuple[Predicted, ...] = ()
    """The readable words of a text that all caches predict, the same for all."""
    note: str = ""
    """A sentence if the answer was cut off or stopped."""

    @property
    def as_expected(self) -> bool:
        """Whether all calls are the expected ones."""
        return all(call.as_expected for call in self.calls)

    @property
    def by_full(self) -> bool:
        """Whether its calls are compared with the full cache's, and not with recorded ones."""
        return any(call.by_full for call in self.calls)

    @property
    def verdict(self) -> str:
        """How its calls compare: what the headline of *Answers* and *Restore* say."""
        if self.by_full:
            return "the same as the full cache's" if self.as_expected else "different"
        return "right" if self.as_expected else "wrong"


@dataclass(frozen=True)
class RecordedAnswer:
    """The answer of a model to an example under several caches, and with words restored."""

    model: str
    """The name of the model."""
    file: str
    """The name of the example."""
    turn: int
    """The turn that is answered."""
    budget: int
    """Entries that a KV head may hold after a turn; each decides by itself."""
    stops: str
    """The length of the answer, as in a link."""
    prompt: str
    """The system prompt that the model's chat template adds."""
    answers: dict[str, CacheAnswer]
    """The answers by the name of the policy, the full cache's first."""
    restored: dict[str, Restoration]
    """The answers with words restored, by the name of the policy."""


def read_recorded(content: str) -> RecordedAnswer:
    """Return a recording from its file's text."""
    recorded: RecordedAnswer = read_value(RecordedAnswer, json.loads(content), "")
    return recorded


@cache
def shipped_answer(example: str = "birthday") -> RecordedAnswer:
    """Return the recording of an example that is shipped, by default SmolLM2's."""
    return read_recorded((RECORDED / f"{example}.json").read_text("utf-8"))
