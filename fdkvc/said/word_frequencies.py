"""Word frequencies: how surprising a word is by itself, whatever was said before it.

They are counted from the training dialogues of the Schema-Guided Dialogue dataset, 2.6 million
words of people and services in English; ``word_frequencies.tsv`` names source and licence. A model
that reads a dialog says better what surprises it, because it knows what came before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_suffix(".tsv")


def word_surprisal(word: str) -> float:
    """Return −ln of a word's share of all that was said, in nats, whatever the case of its letters.

    A word that the table does not have counts as if it had been said once.

    Examples
    --------
    >>> round(word_surprisal("the"), 1), round(word_surprisal("Metreon"), 1)
    (3.6, 11.4)
    """
    counts = _counts()
    return math.log(counts[""]) - math.log(counts.get(word.casefold(), 1))


@cache
def _counts() -> Mapping[str, int]:
    """Return how often each word is said; the empty one stands for all."""
    lines = (line.split("\t") for line in TABLE.read_text("utf-8").splitlines() if line[0] != "#")
    return {word: int(count) for word, count in lines}
