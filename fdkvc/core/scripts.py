"""Words of texts in any script: where they are cut, and which spellings are the same.

In a script without spaces (Han, kana, Thai, Khmer, …), each character counts as a word, which is
Unicode's rule where there is no dictionary; so does a syllable of Hangul, because particles follow
a word without a space. Combining marks belong to the letter before. Letters with case (Latin,
Cyrillic, …) and digits are cut from those of other scripts. Any other text is cut at what is
neither letter nor digit.
"""

import re
from functools import cache, lru_cache
from unicodedata import category, decimal, decomposition, normalize

from fdkvc.core.limits import MAX_CACHED_WORDS, MAX_SPELLED_CHARACTERS

# Letters and marks other than Latin's: a text with any of them takes the slower path.
_FOREIGN = re.compile(
    "[\u0300-\u1fff\u2c00-\ud7ff\uf900-\ufdff\ufe20-\ufeff\uff01-\uffdc"
    "\U00010000-\U0001cfff\U0001d400-\U0001d7ff\U0001e000-\U0001efff\U00020000-\U0003ffff]"
)
_HANGUL = "\u1100-\u11ff\ua960-\ua97f\uac00-\ud7ff"
_ALONE = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u3001-\ua4cf"
    "\ua980-\ua9ff\uaa60-\uaadf\uf900-\ufaff\uff66-\uff9d\U00011700-\U0001174f"
    f"\U00016fe0-\U00018dff\U0001aff0-\U0001b2ff\U00020000-\U0003ffff{_HANGUL}"
)
"""Thai and Lao, Burmese, Khmer, Tai, Balinese, kana, Han, Yi, Javanese, Tangut, and Hangul."""

_CASELESS = (
    "\u0590-\u1cff\u2e00-\ua63f\ua6a0-\ua6ff\ua800-\uab2f\uab70-\ufaff\ufb18-\ufeff"
    "\U00010000-\U0001d3ff\U0001d800-\U0001efff\U00020000-\U0010ffff"
)
"""All scripts without upper and lower case."""

ALONE = re.compile(f"[{_ALONE}]")
"""A character that is a word of its own."""

HANGUL = f"[{_HANGUL}]"
"""Hangul, as a regular expression."""

CASED = rf"[^\W{_CASELESS}]"
r"""A character of a word in a script with case; in English ``\w``."""

SPACED = rf"[^\W{_ALONE}]"
r"""A character of a word in a script with spaces; in English ``\w``."""

_SAME = frozenset(("wide", "narrow", "font", "vertical", "compat"))
_SAME |= {"initial", "medial", "final", "isolated"}
"""Tags of Unicode's compatibility mappings that keep the meaning; others would make 102 of 10²."""


def is_foreign(text: str) -> bool:
    """Whether a text has letters or marks that English is written without."""
    return not text.isascii() and _FOREIGN.search(text) is not None


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return start and end of each word and punctuation mark.

    Examples
    --------
    >>> word_spans("It's 5.")
    [(0, 2), (2, 3), (3, 4), (5, 6), (6, 7)]
    >>> [text[start:end] for text in ["去上海，3张"] for start, end in word_spans(text)]
    ['去', '上', '海', '，', '3', '张']
    """
    pattern, text = _to_cut(text)
    return [match.span() for match in pattern.finditer(text)]


def word_count(text: str) -> int:
    """Return the number of words and punctuation marks."""
    pattern, text = _to_cut(text)
    return len(pattern.findall(text))


def _to_cut(text: str) -> tuple[re.Pattern[str], str]:
    foreign = is_foreign(text)
    return word_pattern(r"\w+|[^\w\s]", foreign), plain(text) if foreign else text


@cache
def word_pattern(pattern: str, foreign: bool) -> re.Pattern[str]:
    r"""Compile a pattern in which ``\w+`` is a word, for plain texts that are foreign or not."""
    if not foreign:
        return re.compile(pattern)
    # Without FE00 to FE0F, which select the variant of a symbol.
    letters = map(chr, (*range(0x300, 0xFE00), *range(0xFE10, 0x1F000)))
    marks = "".join(letter for letter in letters if category(letter) in ("Mn", "Mc"))
    # Also vowels and finals of decomposed Hangul, and the two joiners.
    marks = f"[{marks}\u1160-\u11ff\ud7b0-\ud7fb\u200c\u200d]*"
    caseless = rf"(?:(?!{CASED}|[{_ALONE}])\w{marks})+"
    word = f"[{_ALONE}]{marks}|(?:{CASED}{marks})+|{caseless}"
    return re.compile(pattern.replace(r"\w+", word))


def plain(text: str) -> str:
    """Replace digits of any script and letters of any width or form by the usual ones, 1 to 1.

    The length stays, so that spans of the result are spans of the text.

    Examples
    --------
    >>> plain("２：３０ ＡＢＣ ٣٫٥ 10²")
    '2:30 ABC 3.5 10²'
    """
    if text.isascii():
        return text
    text = re.sub("(?<=[０-９])，(?=[０-９])", ",", text)  # a thousands separator only there
    usual = {ord(letter): _usual(letter) for letter in {*text}}
    return text.translate({code: form for code, form in usual.items() if len(form) == 1})


def same_spelling(word: str) -> str:
    """Return the form that all spellings of a word share: no ligatures, composed accents.

    Examples
    --------
    >>> same_spelling("oﬃce"), len(same_spelling("e\u0301"))
    ('office', 1)
    """
    if word.isascii() or len(word) > MAX_SPELLED_CHARACTERS:
        return word
    return normalize("NFC", "".join(map(_usual, word)))


@lru_cache(maxsize=MAX_CACHED_WORDS)
def _usual(letter: str) -> str:
    """Return a character's NFKC form if that has the same meaning, else the character."""
    digit = decimal(letter, None)
    if digit is not None:
        return str(digit)
    if letter in "٫٬":  # Arabic separators of decimals and of thousands
        return "." if letter == "٫" else ","
    kind = decomposition(letter).partition(" ")[0]
    usual = normalize("NFKC", letter)
    same_meaning = not kind.startswith("<") or kind[1:-1] in _SAME
    in_words = letter.isalnum() or category(letter).startswith("M")
    # Roman numerals and marks such as ‼ stay, too: of these `plain` could replace only some.
    if not same_meaning or (kind == "<compat>" and not letter.isalpha()) or letter == "，":
        return letter
    if "\u3130" <= letter <= "\u318f":  # single letters of Hangul, which NFKC would join
        return letter
    # What is part of a word must stay so, and punctuation too: words would be cut elsewhere.
    if any((part.isalnum() or category(part).startswith("M")) != in_words for part in usual):
        return letter
    return usual
