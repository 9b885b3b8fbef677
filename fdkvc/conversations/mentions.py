"""Mentions: the places in the turns of a dialog that have the value of an argument.

A dialog may be long and need many values, so `MentionFinder` builds a suffix array of its symbols
once: words, runs of space, and marks, each as one character. A value is then found by two binary
searches, and its edges are checked by regular expressions, so that "2" is not found in "12".
"""

import json
import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdkvc.core.attention import Bools
from fdkvc.core.limits import (
    MAX_CACHED_WORDS,
    MAX_DEMAND_CHARACTERS,
    MAX_DEMANDS,
    MAX_DIALOG_CHARACTERS,
    MAX_MENTIONS,
)
from fdkvc.core.parameters import check_most
from fdkvc.core.scripts import (
    ALONE,
    CASED,
    HANGUL,
    SPACED,
    is_foreign,
    plain,
    same_spelling,
    word_pattern,
)
from fdkvc.core.transcripts import Mention, TooLargeError, clean

NO_EVIDENCE = frozenset(("", "yes", "no", "true", "false", "dontcare", "free", "none"))
"""Values whose words often occur with other meanings, so that a mention is no evidence."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?(e-?\d{1,2})?")  # as JSON has it
_FIGURES = re.compile(r"[\d.,]+")
_THREE = re.compile(r"\d{3}(?!\d)")  # it may be the last thousands of a number with commas
_ID = re.compile(r"#?[^\W\d][\w.@/-]*")
# A word, a run of spaces or a mark. In "\nword", n belongs to the escape, not to the word.
_SYMBOL = r"(?<=\\)[bfnrt](?=\w)|\w+|\s+|[^\w\s]"
_ESCAPED = re.compile(r"[bfnrt]\w")
# A letter beyond ASCII as JSON escapes it, such as \u00e9, or a pair of surrogates.
_LETTER = re.compile(
    r"(?<!\\)\\+u(d[89ab][\da-f]{2}\\+ud[c-f][\da-f]{2}|(?!00[0-7])[\da-f]{4})",
    re.IGNORECASE | re.ASCII,
)
_BETWEEN_TURNS = "\0"


def wordings_of(value: str) -> tuple[str, ...]:
    r"""Return the wordings of an argument's value: as it is, and as JSON in a result escapes it.

    A number also has wordings with two decimal places, and with commas between thousands.

    Examples
    --------
    >>> wordings_of("1250")[:4]
    ('1250', '1,250', '1250.0', '1,250.0')
    >>> wordings_of("54.5"), wordings_of("1e-05")
    (('54.5', '54.50'), ('1e-05', '0.00001'))
    >>> wordings_of('5" disk')[:2]
    ('5" disk', '5\\" disk')
    """
    wordings = [value]
    if len(value) > MAX_DIALOG_CHARACTERS:  # no dialog can have it
        return (value,)
    if _NUMBER.fullmatch(value):
        exact = Decimal(value)
        places = max(0, -int(exact.normalize().as_tuple().exponent))
        for digits in range(places, max(places, 2) + 1):
            wordings += [f"{exact:.{digits}f}", f"{exact:,.{digits}f}"]
    for text in (value, json.dumps(value)[1:-1]):  # also of JSON within JSON
        wordings += [json.dumps(text, ensure_ascii=escaped)[1:-1] for escaped in (False, True)]
    return tuple(dict.fromkeys(wordings))


class _Searched(NamedTuple):
    """A text in the form in which it is searched."""

    text: str
    symbols: list[str]
    starts: list[int]
    """Where each symbol begins, and the end of the text."""
    escapes: tuple[list[int], list[int]]
    """See `_read_letters`."""

    @classmethod
    def of(cls, text: str) -> "_Searched":
        """Return a text without moving a character, but for JSON's escapes."""
        read, escapes = _read_letters(text)
        searched = _lower(plain(read))
        symbols = _symbols(searched)
        return cls(searched, symbols, [*accumulate(map(len, symbols), initial=0)], escapes)


def _symbols(text: str) -> list[str]:
    return word_pattern(_SYMBOL, is_foreign(text)).findall(text)


class MentionFinder:
    """Finds wordings in the turns of a dialog as whole words, ignoring case and kinds of space.

    A number or an id is not found within another: ``2`` is not in ``12``, ``2:30`` or ``-2``, and
    ``HAT1`` is not in ``HAT1-B``. In scripts without spaces a wording is found anywhere, and in
    Hangul at the start of a word, whose end may be a particle. Digits of all scripts, widths of
    letters, and letters with and without JSON's escapes count as equal. Mentions of a value may
    overlap.

    Examples
    --------
    >>> finder = MentionFinder(["Two rooms in San Jose", "12 rooms at 2:30, or 2?"])
    >>> finder.mentions(["san jose"], before=2)
    (Mention(turn=0, start=13, end=21),)
    >>> finder.mentions(["2"], before=2)
    (Mention(turn=1, start=21, end=22),)
    >>> MentionFinder(['{"hotel_name": 3}']).mentions(["hotel"], before=1)
    ()
    >>> MentionFinder(["去上海，３张"]).mentions(["上海", "3"], before=1)
    (Mention(turn=0, start=1, end=3), Mention(turn=0, start=4, end=5))
    """

    def __init__(self, texts: Sequence[str], name: str = "dialog") -> None:
        self._name = name
        self._requests = 0
        self._characters = 0
        # 1. One text of all turns, normalized without moving a character, but for JSON's escapes.
        searched = _Searched.of("".join(_BETWEEN_TURNS + text for text in texts))
        self._text = searched.text
        self._starts = searched.starts
        self._escapes = searched.escapes
        self._foreign = is_foreign(self._text)
        symbols = searched.symbols
        # 2. Which of its symbols separate turns.
        self._turns = [
            place for place, symbol in enumerate(symbols) if symbol == _BETWEEN_TURNS
        ]
        # 3. A character for each different symbol, so that a search compares few of them. All runs
        #    of space share one.
        spellings = {symbol: same_spelling(symbol) for symbol in dict.fromkeys(symbols)}
        different = dict.fromkeys(spellings.values())
        self._letters = {symbol: chr(number) for number, symbol in enumerate(different)}
        spaces = [" ", *filter(str.isspace, self._letters)]
        self._letters |= dict.fromkeys(spaces, chr(len(self._letters)))
        coded = {symbol: self._letters[spelling] for symbol, spelling in spellings.items()}
        self._coded = "".join(map(coded.__getitem__, symbols))
        # 4. Results of searches so far: by pattern, whether it matches at each symbol, −1 for not
        #    tried; by wording, up to which symbol it was searched, and the latest mentions there.
        self._matched: dict[str, NDArray[np.int8]] = {}
        self._searched: dict[tuple[str, str], tuple[int, list[int]]] = {}

    def mentions(
        self, wordings: Iterable[str], before: int, annotated: Iterable[Mention] = ()
    ) -> tuple[Mention, ...]:
        """Return the mentions of wordings in the turns before one, oldest first.

        `annotated` mentions are among them. Of each wording, only the latest `MAX_MENTIONS` are
        returned. Raises a TooLargeError after more than `MAX_DEMANDS` calls, or for too many
        characters of wordings and mentions.
        """
        self._requests += 1
        mentioned = "characters, of values and their mentions"
        demands = f"{self._name}: it demands"
        check_most(demands, self._requests, "values", MAX_DEMANDS, TooLargeError)
        end = self._turns[before] if before < len(self._turns) else len(self._coded)
        mentions = {*annotated}
        for wording in wordings:
            self._characters += len(wording)
            check_most(
                demands, self._characters, mentioned, MAX_DEMAND_CHARACTERS, TooLargeError
            )
            mentions.update(self._latest(_comparable(wording), end))
        self._characters += sum(mention.end - mention.start for mention in mentions)
        check_most(demands, self._characters, mentioned, MAX_DEMAND_CHARACTERS, TooLargeError)
        return tuple(sorted(mentions))

    def _latest(self, wording: str, end: int) -> Iterator[Mention]:
        """Yield the latest mentions of a wording among the first symbols."""
        forms = [_symbols(wording)] if wording else []
        # After a backslash, its first letter is a symbol of its own.
        if _ESCAPED.match(wording):
            forms.append([wording[0], *_symbols(wording[1:])])
        for symbols in forms:
            # 1. The wording by the characters of its symbols; one that the dialog lacks ends it.
            spelled = [*map(same_spelling, symbols)]
            if not self._letters.keys() >= {*spelled}:
                continue
            coded = "".join(map(self._letters.__getitem__, spelled))
            before_pattern, after_pattern = _around(wording, self._foreign)
            # 2. A value is often needed again: search only after the end of its last search.
            last = end - len(coded) + 1
            begin, earlier = self._searched.get((wording, coded), (0, []))
            if begin > last:
                begin = 0
                earlier = []
            latest: list[int] = []
            for starts in self._places(coded, begin, last):
                places = starts[self._match(before_pattern, starts)]
                places = places[self._match(after_pattern, places + len(coded))]
                latest[:0] = places[-MAX_MENTIONS:].tolist()
                if len(latest) >= MAX_MENTIONS:
                    break
            latest = [*earlier, *latest][-MAX_MENTIONS:]
            self._searched[wording, coded] = max(last, 0), latest
            for place in latest:
                turn = bisect_right(self._turns, place) - 1
                begin = self._given_place(self._turns[turn]) + 1
                start = self._given_place(place)
                stop = self._given_place(place + len(coded))
                yield Mention(turn, start - begin, stop - begin)

    def _given_place(self, symbol: int) -> int:
        """Return where a symbol begins in the texts as they were given, with escapes."""
        return _with_escapes(self._starts[symbol], self._escapes)

    def _places(self, coded: str, start: int, end: int) -> Iterator[NDArray[np.intp]]:
        """Yield arrays of symbols at which a wording begins, the last ones first, each sorted."""

        def first(place: int) -> str:
            return self._coded[place : place + len(coded)]

        if start >= end:
            return
        # 1. The suffixes that begin with the wording are neighbours in the suffix array.
        suffixes, ranks = self._sorted
        low = bisect_left(suffixes, coded, key=first)
        high = bisect_right(suffixes, coded, low, key=first)
        # 2. Few of them are sorted; of many, such as of a comma, the latest are found by rank.
        if (high - low) * 16 < len(suffixes):
            places = suffixes[low:high]
            yield np.sort(places[(places >= start) & (places < end)])
            return
        size = 1024
        # Backwards, in ever larger parts: the caller stops when it has enough.
        while end > start:
            begin = max(end - size, start)
            part = ranks[begin:end]
            yield begin + np.flatnonzero((part >= low) & (part < high))
            end = begin
            size = 2 * size

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """The suffix array: symbols sorted by the text from there on, and the rank of each.

        By prefix doubling (Manber and Myers 1993), in O(n log² n): ranks by the first 1, 2, 4, …
        symbols, each time from the ranks of both halves.
        """
        count = len(self._coded)
        step = 1
        ranks = np.array([*map(ord, self._coded)], np.intp)
        while True:
            later = np.zeros(count, np.intp)
            later[:-step] = ranks[step:] + 1
            different, ranks = np.unique(ranks * (count + 2) + later, return_inverse=True)
            if len(different) == count:
                return np.argsort(ranks), ranks.astype(np.int32)
            step *= 2

    def _match(self, pattern: str, places: NDArray[np.intp]) -> Bools:
        """Return whether a pattern that consumes no characters matches at the start of symbols."""
        matched = self._matched.setdefault(pattern, np.full(len(self._starts), -1, np.int8))
        new = places[matched[places] < 0]
        match = re.compile(pattern).match
        matched[new] = [bool(match(self._text, self._starts[place])) for place in new.tolist()]
        return matched[places] > 0


class WordingSearch:
    """Finds many wordings in one text after another, each in one pass, as `MentionFinder` does.

    Where a text has a symbol that is rare among the wordings, those with this symbol are compared.

    Examples
    --------
    >>> search = WordingSearch(["San Jose", "2"])
    >>> [*search.mentions("12 rooms in san  jose, or 2?")]
    [('San Jose', 12, 21), ('2', 26, 27)]
    """

    def __init__(self, wordings: Iterable[str]) -> None:
        spelled = {}
        for wording in wordings:
            spelled[wording] = tuple(map(same_spelling, _symbols(_comparable(wording))))
        uses = Counter(chain.from_iterable({*symbols} for symbols in spelled.values()))
        # By symbol: by its place and the number of all symbols, the wordings with these symbols.
        self._by_symbol: dict[
            str, dict[tuple[int, int], dict[tuple[str, ...], list[str]]]
        ] = {}
        for wording, symbols in spelled.items():
            if not symbols:
                continue
            place = min(range(len(symbols)), key=lambda index: uses[symbols[index]])
            shapes = self._by_symbol.setdefault(symbols[place], {})
            alike = shapes.setdefault((place, len(symbols)), {})
            alike.setdefault(symbols, []).append(wording)

    def mentions(self, text: str) -> Iterator[tuple[str, int, int]]:
        """Yield each wording in a text, with the start and end of the mention."""
        searched, symbols, starts, escapes = _Searched.of(text)
        foreign = is_foreign(searched)
        spelled = symbols if searched.isascii() else [*map(same_spelling, symbols)]
        spelled = [" " if symbol.isspace() else symbol for symbol in spelled]
        for index, symbol in enumerate(spelled):
            for (place, length), alike in self._by_symbol.get(symbol, {}).items():
                first = index - place
                end = index - place + length
                wordings = alike.get(tuple(spelled[first:end])) if first >= 0 else None
                if wordings is None:
                    continue
                before_pattern, after_pattern = _around(_comparable(wordings[0]), foreign)
                start = starts[first]
                stop = starts[end]
                is_whole = re.compile(before_pattern).match(searched, start)
                if is_whole and re.compile(after_pattern).match(searched, stop):
                    for wording in wordings:
                        yield (
                            wording,
                            _with_escapes(start, escapes),
                            _with_escapes(stop, escapes),
                        )


def _with_escapes(place: int, escapes: tuple[list[int], list[int]]) -> int:
    """Return where a character of a text was before `_read_letters`."""
    places, longer = escapes
    return place + longer[bisect_right(places, place)]


def _read_letters(text: str) -> tuple[str, tuple[list[int], list[int]]]:
    """Return a text with the letters that JSON escapes, also in JSON within JSON.

    Also return where each letter ends, and by how much the given text is longer: before the first
    letter, after it, after the second, and so on.
    """
    places = list[int]()
    longer = [0]
    if "\\u" not in text and "\\U" not in text:
        return text, (places, longer)

    def read(match: re.Match[str]) -> str:
        units = b"".join(int(code, 16).to_bytes(2) for code in re.findall("u(....)", match[0]))
        letter = units.decode("utf-16-be", "replace")
        places.append(match.end() - longer[-1] - len(match[0]) + len(letter))
        longer.append(longer[-1] + len(match[0]) - len(letter))
        return clean(letter)

    return _LETTER.sub(read, text), (places, longer)


def _comparable(wording: str) -> str:
    """Return a wording in the form in which it is searched."""
    return " ".join(_lower(plain(_read_letters(clean(wording))[0])).split())


def _lower(text: str) -> str:
    """Lower the case of every letter that stays one character, so that no character moves."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


@lru_cache(maxsize=MAX_CACHED_WORDS)
def _around(wording: str, foreign: bool) -> tuple[str, str]:
    """Return patterns of what must be before and after a wording to be a whole word, number or id.

    Mentions begin and end with symbols, so that words need no further check at their edges.
    """
    cased, spaced = (CASED, SPACED) if foreign else (r"\w", r"\w")
    # 1. At a mark: no letter beside it. At a word: nothing, or in scripts without spaces, less.
    before_pattern = rf"(?:(?<!{spaced})|(?<=\\[bfnrt]))"
    after_pattern = rf"(?!{spaced})"
    if re.match(r"\w", wording):
        before_pattern = f"(?<!{HANGUL})" if re.match(HANGUL, wording) else ""
    if re.match(r"\w", wording[-1]):
        after_pattern = "" if ALONE.match(wording[-1]) else f"(?!{cased})"
    # 2. At a digit: not within 1.5, 2:30, 3/4, 1-2 or 1,250.
    if wording[0].isdigit():
        before_pattern += r"(?<!\d[.:/-])" + (r"(?<!\d,)" if _THREE.match(wording) else "")
    if wording[-1].isdigit():
        after_pattern += r"(?![.:/-]\d|,\d{3}(?!\d))"
    if _FIGURES.fullmatch(wording):
        before_pattern += r"(?<![^\w.][.\-−])"  # a sign, or the point of a fraction
    # 3. An id: not within a longer one.
    if _ID.fullmatch(wording) and re.search(r"[\d@]", wording):
        before_pattern += rf"(?<!{cased}[.@-])"
        after_pattern += rf"(?![.@-]{cased})"
    return before_pattern, after_pattern
