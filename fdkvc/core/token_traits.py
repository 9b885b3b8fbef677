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

_WORD = TRAITS.index("word")
_MARK = TRAITS.index("mark")
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
    bounds = word_spans(text)
    words = [text[start:end] for start, end in bounds]
    places = words_at(bounds, spans)
    index = np.array(places, np.intp)
    traits = np.zeros((len(index), len(TRAITS)), np.float32)
    traits[index >= 0] = _word_traits(words)[index[index >= 0]]
    traits[index < 0, _MARK] = 1
    ids = [*map(word_id, words)]
    # Tokens are numbered within their word, so that the parts of a word do not equal each other.
    previous = -1
    part = 0
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
    surprisal = np.array([*map(word_surprisal, words)], np.float32)
    capital = np.zeros(len(words), np.bool_)
    digit = np.zeros_like(capital)
    punctuation = np.zeros_like(capital)
    previous = "."
    for index, word in enumerate(words):
        # A capital says nothing where a sentence begins.
        capital[index] = word[0].isupper() and previous not in ".!?"
        digit[index] = any(map(str.isdigit, word))
        punctuation[index] = not word[0].isalnum()
        previous = word
    named = {
        "surprisal": surprisal,
        "capital": capital,
        "digit": digit,
        "punctuation": punctuation,
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
    total = np.zeros(len(column), np.float32)
    for step in steps:
        total += padded[2 + step : 2 + step + len(column)]
    return total


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
    usual = plain(word).translate(_MARKS).casefold()
    return math.log(counts[""]) - math.log(counts.get(usual, 1))


@lru_cache(maxsize=MAX_CACHED_WORDS)
def text_surprisal(text: str) -> float:
    """Return the surprisal of the first word of a text, 0 without one."""
    bounds = word_spans(text)
    return word_surprisal(text[slice(*bounds[0])]) if bounds else 0.0


@cache
def _counts() -> Mapping[str, int]:
    """Return the count of each word; that of the empty word is the total."""
    counts = {}
    for line in TABLE.read_text("utf-8").splitlines():
        word, tab, count = line.partition("\t")
        if tab:  # comments have none; a # alone would not do, since it is also a word
            counts[word] = int(count)
    return counts
