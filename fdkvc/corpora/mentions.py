"""Mentions: where the turns of a dialog have the value of an argument."""

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import Bools
from fdkvc.corpora.transcripts import Mention, TooLargeError, clean
from fdkvc.limits import MAX_DEMAND_CHARACTERS, MAX_DEMANDS, MAX_DIALOG_CHARACTERS, MAX_MENTIONS
from fdkvc.parameters import check_most

NO_EVIDENCE = frozenset(("", "yes", "no", "true", "false", "dontcare", "free", "none"))
"""Values whose words also occur with other meanings, so that a mention is not evidence."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?(e-?\d{1,2})?")
_FIGURES = re.compile(r"[\d.,]+")
_THREE = re.compile(r"\d{3}(?!\d)")  # the end of a number with a comma between thousands
_ID = re.compile(r"#?[^\W\d][\w.@/-]*")
# A word, a run of spaces or a mark; the letter of an escape is not of the word after it.
_SYMBOL = re.compile(r"(?<=\\)[bfnrt](?=\w)|\w+|\s+|[^\w\s]")
_ESCAPED = re.compile(r"[bfnrt]\w")
_BETWEEN_TURNS = "\0"


def wordings_of(value: str) -> tuple[str, ...]:
    r"""Return the wordings of an argument's value: as it is, and as JSON escapes it in a result.

    A number is also found with zeros up to two decimal places, and with commas between thousands.

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
        for shown in range(places, max(places, 2) + 1):
            wordings += [f"{exact:.{shown}f}", f"{exact:,.{shown}f}"]
    for text in (value, json.dumps(value)[1:-1]):  # also of JSON within JSON
        wordings += [json.dumps(text, ensure_ascii=escaped)[1:-1] for escaped in (False, True)]
    return tuple(dict.fromkeys(wordings))


class MentionFinder:
    """Finds wordings in the turns of a dialog as whole words, ignoring case and kinds of space.

    Neither a number nor an id is found within another: ``2`` is not in ``12``, ``2:30`` or ``-2``,
    and ``HAT1`` is not in ``HAT1-B``. Mentions of a value may overlap. The symbols of the
    dialog are sorted once by all that follows, so that a search takes time by the wording's length.

    Examples
    --------
    >>> finder = MentionFinder(["Two rooms in San Jose", "12 rooms at 2:30, or 2?"])
    >>> finder.mentions(["san jose"], before=2)
    (Mention(turn=0, start=13, end=21),)
    >>> finder.mentions(["2"], before=2)
    (Mention(turn=1, start=21, end=22),)
    >>> MentionFinder(['{"hotel_name": 3}']).mentions(["hotel"], before=1)
    ()
    """

    def __init__(self, texts: Sequence[str], name: str = "dialog") -> None:
        self._name, self._requests, self._characters = name, 0, 0
        self._text = "".join(_BETWEEN_TURNS + _lower(text) for text in texts)
        symbols = _SYMBOL.findall(self._text)
        self._starts = [*accumulate(map(len, symbols), initial=0)]
        self._turns = [at for at, symbol in enumerate(symbols) if symbol == _BETWEEN_TURNS]
        # Each different symbol is a character, so that a search compares few.
        self._letters = {symbol: chr(at) for at, symbol in enumerate(dict.fromkeys(symbols))}
        spaces = [" ", *filter(str.isspace, self._letters)]
        self._letters |= dict.fromkeys(spaces, chr(len(self._letters)))
        self._coded = "".join(map(self._letters.__getitem__, symbols))
        self._matched: dict[str, NDArray[np.int8]] = {}
        self._searched: dict[tuple[str, str], tuple[int, list[int]]] = {}

    def mentions(
        self, wordings: Iterable[str], before: int, annotated: Iterable[Mention] = ()
    ) -> tuple[Mention, ...]:
        """Return the mentions of wordings in turns before one and the annotated ones, oldest first.

        Of each wording, only the latest `MAX_MENTIONS` are returned. More than `MAX_DEMANDS` calls,
        or too many characters of wordings and mentions, are a TooLargeError.
        """
        self._requests += 1
        mentioned = "characters, of values and their mentions"
        demands = f"{self._name}: it demands"
        check_most(demands, self._requests, "values", MAX_DEMANDS, TooLargeError)
        end = self._turns[before] if before < len(self._turns) else len(self._coded)
        mentions = {*annotated}
        for wording in wordings:
            self._characters += len(wording)
            check_most(demands, self._characters, mentioned, MAX_DEMAND_CHARACTERS, TooLargeError)
            mentions.update(self._latest(" ".join(_lower(clean(wording)).split()), end))
        self._characters += sum(mention.end - mention.start for mention in mentions)
        check_most(demands, self._characters, mentioned, MAX_DEMAND_CHARACTERS, TooLargeError)
        return tuple(sorted(mentions))

    def _latest(self, wording: str, end: int) -> Iterator[Mention]:
        """Yield the latest mentions of a wording among the first symbols."""
        forms = [_SYMBOL.findall(wording)] if wording else []
        if _ESCAPED.match(wording):
            forms.append([wording[0], *_SYMBOL.findall(wording[1:])])
        for symbols in forms:
            if not self._letters.keys() >= {*symbols}:
                continue
            coded = "".join(map(self._letters.__getitem__, symbols))
            before, after = _around(wording)
            # A value is often needed again: what is before the end of its last search is known.
            last = end - len(coded) + 1
            begin, earlier = self._searched.get((wording, coded), (0, []))
            begin, earlier = (begin, earlier) if begin <= last else (0, [])
            latest: list[int] = []
            for starts in self._places(coded, begin, last):
                places = starts[self._match(before, starts)]
                places = places[self._match(after, places + len(coded))]
                latest[:0] = places[-MAX_MENTIONS:].tolist()
                if len(latest) >= MAX_MENTIONS:
                    break
            latest = [*earlier, *latest][-MAX_MENTIONS:]
            self._searched[wording, coded] = max(last, 0), latest
            for place in latest:
                turn = bisect_right(self._turns, place) - 1
                begin = self._starts[self._turns[turn]] + 1
                start, stop = self._starts[place], self._starts[place + len(coded)]
                yield Mention(turn, start - begin, stop - begin)

    def _places(self, coded: str, start: int, end: int) -> Iterator[NDArray[np.intp]]:
        """Yield where symbols begin from a start to an end: in order, the latest at first."""

        def first(place: int) -> str:
            return self._coded[place : place + len(coded)]

        if start >= end:
            return
        suffixes, ranks = self._sorted
        low = bisect_left(suffixes, coded, key=first)
        high = bisect_right(suffixes, coded, low, key=first)
        if (high - low) * 16 < len(suffixes):
            places = suffixes[low:high]
            yield np.sort(places[(places >= start) & (places < end)])
            return
        size = 1024
        while end > start:
            begin = max(end - size, start)
            some = ranks[begin:end]
            yield begin + np.flatnonzero((some >= low) & (some < high))
            end, size = begin, 2 * size

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], NDArray[np.int32]]:
        """The places of the symbols, sorted by all symbols from there on, and the rank of each."""
        count, step = len(self._coded), 1
        ranks = np.array([*map(ord, self._coded)], np.intp)
        while True:  # the ranks are by twice as many symbols each time
            later = np.zeros(count, np.intp)
            later[:-step] = ranks[step:] + 1
            different, ranks = np.unique(ranks * (count + 2) + later, return_inverse=True)
            if len(different) == count:
                return np.argsort(ranks), ranks.astype(np.int32)
            step *= 2

    def _match(self, pattern: str, places: NDArray[np.intp]) -> Bools:
        """Return whether a pattern of no characters matches at the start of symbols."""
        matched = self._matched.setdefault(pattern, np.full(len(self._starts), -1, np.int8))
        new, match = places[matched[places] < 0], re.compile(pattern).match
        matched[new] = [bool(match(self._text, self._starts[at])) for at in new.tolist()]
        return matched[places] > 0


def _lower(text: str) -> str:
    """Lower the case of every letter that stays one character, so that positions stay."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _around(wording: str) -> tuple[str, str]:
    """Return what matches before and after a wording that is no part of a word, number or id."""
    before, after = r"(?:(?<!\w)|(?<=\\[bfnrt]))", r"(?!\w)"
    if wording[0].isdigit():
        before += r"(?<!\d[.:/-])" + (r"(?<!\d,)" if _THREE.match(wording) else "")
    if wording[-1].isdigit():
        after += r"(?![.:/-]\d|,\d{3}(?!\d))"
    if _FIGURES.fullmatch(wording):
        before += r"(?<![^\w.][.\-−])"  # a sign, or the point of a fraction
    if _ID.fullmatch(wording) and re.search(r"[\d@]", wording):
        before += r"(?<!\w[.@-])"
        after += r"(?![.@-]\w)"
    return before, after
