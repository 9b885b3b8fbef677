"""Mentions: where the turns of a dialog have the value of an argument."""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import accumulate

from fdkvc.corpora.transcripts import Mention, TooLargeError, clean
from fdkvc.limits import MAX_DEMANDS, MAX_MENTIONS

NO_EVIDENCE = frozenset(("", "yes", "no", "true", "false", "dontcare", "free", "none"))
"""Values whose words also occur with other meanings, so that a mention is not evidence."""

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,14})(\.\d{1,15})?(e-?\d{1,2})?")
_FIGURES = re.compile(r"[\d.,]+")
_THREE = re.compile(r"\d{3}(?!\d)")  # the end of a number with a comma between thousands
_ID = re.compile(r"#?[^\W\d][\w.@/-]*")
_SPACES = re.compile(r"\s+")
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
    found = [value]
    if _NUMBER.fullmatch(value):
        exact = Decimal(value)
        places = max(0, -int(exact.normalize().as_tuple().exponent))
        for shown in range(places, max(places, 2) + 1):
            found += [f"{exact:.{shown}f}", f"{exact:,.{shown}f}"]
    for text in (value, json.dumps(value)[1:-1]):  # also of JSON within JSON
        found += [json.dumps(text, ensure_ascii=each)[1:-1] for each in (False, True)]
    return tuple(dict.fromkeys(found))


class MentionFinder:
    """Finds wordings in the turns of a dialog as whole words, ignoring case and kinds of space.

    Neither a number nor an id is found within another: ``2`` is not in ``12``, ``2:30`` or ``-2``,
    and ``HAT1`` is not in ``HAT1-B``.

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
        self._name, self._requests = name, 0
        joined = "".join(_BETWEEN_TURNS + _lower(text) for text in texts)
        self._starts = [*accumulate((len(text) + 1 for text in texts[:-1]), initial=1)]
        self._text = _SPACES.sub(" ", joined)
        self._found: dict[str, list[Mention]] = {}
        # From which places of the text how many spaces are left out.
        self._places, self._left_out = [0], [0]
        for run in _SPACES.finditer(joined):
            if run.end() - run.start() > 1:
                self._places.append(run.start() - self._left_out[-1] + 1)
                self._left_out.append(self._left_out[-1] + run.end() - run.start() - 1)

    def mentions(self, wordings: Iterable[str], before: int) -> tuple[Mention, ...]:
        """Return the mentions of wordings in turns before one, oldest first.

        Of each wording, only the latest `MAX_MENTIONS` are returned. More than `MAX_DEMANDS` calls
        are a TooLargeError.
        """
        self._requests += 1
        if self._requests > MAX_DEMANDS:
            raise TooLargeError(f"{self._name}: it demands more than {MAX_DEMANDS:,} values")
        found: set[Mention] = set()
        for wording in wordings:
            mentions = self._mentions(" ".join(_lower(clean(wording)).split()))
            end = bisect_left(mentions, Mention(before, 0, 0))
            found.update(mentions[max(end - MAX_MENTIONS, 0) : end])
        return tuple(sorted(found))

    def _mentions(self, wording: str) -> list[Mention]:
        if wording not in self._found:
            self._found[wording] = list(self._search(wording)) if wording else []
        return self._found[wording]

    def _search(self, wording: str) -> Iterator[Mention]:
        at = self._text.find(wording)  # faster than by the pattern
        if at < 0:
            return
        pattern = _whole(wording)
        while at >= 0:
            after = at + 1
            if pattern.match(self._text, at):
                after = at + len(wording)
                start, end = self._original(at), self._original(after - 1) + 1
                turn = bisect_right(self._starts, start) - 1
                yield Mention(turn, start - self._starts[turn], end - self._starts[turn])
            at = self._text.find(wording, after)

    def _original(self, place: int) -> int:
        """Return the place of a character before spaces were left out."""
        return place + self._left_out[bisect_right(self._places, place) - 1]


def _lower(text: str) -> str:
    """Lower the case of every letter that stays one character, so that positions stay."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(small if len(small := letter.lower()) == 1 else letter for letter in text)


def _whole(wording: str) -> re.Pattern[str]:
    """Return a pattern of a wording where neither a word, a number nor an id goes on around it."""
    # The letter of an escape, as of a line's end within JSON, is not of the word after it.
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
    return re.compile(before + re.escape(wording) + after)
