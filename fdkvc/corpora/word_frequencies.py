"""Word frequencies: how surprising a word is by itself, whatever was said before it.

They are counted from the training dialogues of the Schema-Guided Dialogue dataset, 2.6 million
words of people and services in English; ``word_frequencies.tsv`` names source and licence. A model
that reads a dialog says better what surprises it, because it knows what came before.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from fdkvc.corpora.transcripts import words

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


def surprisal_in(text: str, spans: Iterable[tuple[int, int]]) -> list[float]:
    """Return the surprisal of tokens of a text: that of the first word of which each has a part.

    Parameters
    ----------
    spans : iterable of (start, end)
        Characters that each token stands for; one that stands for no word surprises nobody.

    Examples
    --------
    >>> whole, spaced, part, none = surprisal_in("the theatre", [(4, 11), (3, 11), (7, 11), (3, 4)])
    >>> whole == spaced == part == word_surprisal("theatre"), none
    (True, 0.0)
    """
    found = words(text)
    ends = [end for _, end in found]
    surprisal = []
    for start, end in spans:
        at = bisect_right(ends, start)
        has_part = at < len(found) and max(found[at][0], start) < end
        surprisal.append(word_surprisal(text[slice(*found[at])]) if has_part else 0.0)
    return surprisal


@cache
def _counts() -> Mapping[str, int]:
    """Return how often each word is said; the empty one stands for all."""
    lines = TABLE.read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if "\t" in line)  # a word, too, may begin with #
    return {word: int(count) for word, count in rows}
