"""Unigram surprisal of words, from their frequencies.

Counted in the training dialogues of the Schema-Guided Dialogue dataset, 2.6 million English words;
``word_frequencies.tsv`` names source and licence. Unlike a model's surprisal, it ignores context.
"""

import math
from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from pathlib import Path

from fdkvc.corpora.transcripts import word_spans, words_at
from fdkvc.limits import MAX_CACHED_WORDS

TABLE = Path(__file__).with_suffix(".tsv")


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_surprisal(word: str) -> float:
    """Return −ln of a word's relative frequency, in nats, ignoring case.

    A word that is not in the table counts as occurring once.

    Examples
    --------
    >>> round(word_surprisal("the"), 1), round(word_surprisal("Metreon"), 1)
    (3.6, 11.4)
    """
    counts = _counts()
    return math.log(counts[""]) - math.log(counts.get(word.casefold(), 1))


def surprisal_in(text: str, spans: Iterable[tuple[int, int]]) -> list[float]:
    """Return the surprisal of tokens of a text: that of the first word each overlaps, else 0.

    Examples
    --------
    >>> whole, spaced, part, none = surprisal_in("the theatre", [(4, 11), (3, 11), (7, 11), (3, 4)])
    >>> whole == spaced == part == word_surprisal("theatre"), none
    (True, 0.0)
    """
    words = word_spans(text)
    surprisal = [*(word_surprisal(text[start:end]) for start, end in words), 0.0]
    return [surprisal[at] for at in words_at(words, spans)]


@cache
def _counts() -> Mapping[str, int]:
    """Return the count of each word; that of the empty one is the total."""
    lines = TABLE.read_text("utf-8").splitlines()
    rows = (line.split("\t") for line in lines if "\t" in line)  # a word may begin with #, too
    return {word: int(count) for word, count in rows}
