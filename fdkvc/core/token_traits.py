"""Traits of tokens: what follows from their text alone, and how surprising a word is.

Surprisal comes from a word's frequency in the training dialogs of the Schema-Guided Dialogue
dataset, 2.6 million English words; ``word_frequencies.tsv`` names source and licence. Unlike a
model's surprisal, it ignores context.
"""

import math
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fdkvc.core.attention import TRAITS, Floats, word_id
from fdkvc.core.limits import MAX_CACHED_WORDS
from fdkvc.core.scripts import plain, word_spans
from fdkvc.core.transcripts import words_at

TABLE = Path(__file__).with_name("word_frequencies.tsv")

_WORD, _MARK = TRAITS.index("word"), TRAITS.index("mark")
_MARKS = str.maketrans("。，、；؟،؛।", ".,,;?,;.")
_IDENTITIES = 2**24 - 1  # beyond 2²⁴, float32 does not hold every whole number


def token_traits(text: str, spans: ArrayLike, user: bool) -> Floats:
    """Return the `fdkvc.core.attention.TRAITS` of the tokens of a turn (n, F).

    A token has the traits of the first word that its span of the turn's text overlaps. One without
    text has zeros, except for ``user`` and ``mark``.

    Examples
    --------
    >>> traits = token_traits("In 5 days", [(0, 2), (3, 4)], user=True)
    >>> traits[:, TRAITS.index("digit")].tolist()
    [0.0, 1.0]
    """
    words = word_spans(text)
    texts = [text[start:end] for start, end in words]
    places = words_at(words, spans)
    index = np.array(places, np.intp)
    traits = np.zeros((len(index), len(TRAITS)), np.float32)
    traits[index >= 0] = _word_traits(texts)[index[index >= 0]]
    traits[index < 0, _MARK] = 1
    ids = [word_id(word) for word in texts]
    # Tokens are numbered within their word, so that the parts of a word do not equal each other.
    previous, part = -1, 0
    for row, place in enumerate(places):
        if place >= 0:
            part = part + 1 if place == previous else 0
            previous = place
            traits[row, _WORD] = 1 + (ids[place] + part) % _IDENTITIES
    traits[:, TRAITS.index("user")] = user
    return traits


def _word_traits(words: list[str]) -> Floats:
    """Return the traits of the words of a turn (n, F); word, speaker and mark are left at 0."""
    place = np.arange(len(words))
    surprisal = np.array([word_surprisal(word) for word in words], np.float32)
    # A capital says nothing where a sentence begins.
    previous = [".", *words][: len(words)]
    begins = np.array([word in ".!?" for word in previous], bool)
    capital = np.array([word[0].isupper() for word in words], bool) & ~begins
    digit = np.array([any(map(str.isdigit, word)) for word in words], bool)
    named = {
        "surprisal": surprisal,
        "capital": capital,
        "digit": digit,
        "punctuation": [not word[0].isalnum() for word in words],
        "near_surprisal": _beside(surprisal, -2, -1, 1, 2) / 4,
        "near_capital": _beside(capital, -1, 1),
        "near_digit": _beside(digit, -1, 1),
        "position": place / (place + 10),
    }
    traits = np.zeros((len(words), len(TRAITS)), np.float32)
    for name, column in named.items():
        traits[:, TRAITS.index(name)] = column
    return traits


def _beside(column: NDArray[Any], *steps: int) -> NDArray[Any]:
    """Return the sum over the words at these distances, 0 beyond the turn."""
    padded = np.zeros(len(column) + 4, np.float32)
    padded[2:-2] = column
    return np.asarray(sum(padded[2 + step : 2 + step + len(column)] for step in steps))


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_surprisal(word: str) -> float:
    """Return −ln of a word's relative frequency, in nats, ignoring case.

    A word that is not in the table counts as occurring once, and a punctuation mark of another
    script as the English one.

    Examples
    --------
    >>> round(word_surprisal("the"), 1), round(word_surprisal("Metreon"), 1)
    (3.6, 11.4)
    """
    counts = _counts()
    return math.log(counts[""]) - math.log(counts.get(plain(word).translate(_MARKS).casefold(), 1))


@lru_cache(maxsize=MAX_CACHED_WORDS)
def text_surprisal(text: str) -> float:
    """Return the surprisal of the first word of a text, 0 without one."""
    words = word_spans(text)
    return word_surprisal(text[slice(*words[0])]) if words else 0.0


@cache
def _counts() -> Mapping[str, int]:
    """Return the count of each word; that of the empty word is the total."""
    lines = TABLE.read_text("utf-8").splitlines()
    # Comments have no tab; a # alone would not do, since it is also a word.
    rows = (line.split("\t") for line in lines if "\t" in line)
    return {word: int(count) for word, count in rows}
