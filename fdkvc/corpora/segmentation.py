"""Topics of a dialog without annotation: TextTiling.

Hearst 1997, *TextTiling: Segmenting Text into Multi-paragraph Subtopic Passages*, Computational
Linguistics 23(1). Differences: turns replace token sequences, inverse turn frequency replaces the
list of stop words, and valleys must be deeper, since turns are short. In 60 dialogues of SGD it
finds two thirds of the changes of service to within a turn, and 1.5 times as many false ones.
"""

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fdkvc.attention import cosine
from fdkvc.corpora.transcripts import Transcript, word_spans
from fdkvc.parameters import check_count

BLOCK = 6
"""Turns compared on each side of a gap."""

Doubles = NDArray[np.float64]


def segmented(transcript: Transcript, block: int = BLOCK) -> Transcript:
    """Return the dialog with topics by TextTiling, comparing `block` turns on each side of a gap.

    Topics are letters from A, a new one at every boundary: TextTiling detects no returns. Raises a
    ValueError if `block` is below 1.

    Examples
    --------
    >>> from fdkvc.corpora.transcripts import Turn
    >>> texts = ["a table for two", "a table at six", "rain today", "rain and more rain today"]
    >>> dialog = Transcript("example", tuple(Turn("User", text) for text in texts))
    >>> [turn.topic for turn in segmented(dialog, block=2).turns]
    ['A', 'A', 'B', 'B']
    """
    starts = boundaries(cohesion(transcript.texts, block))
    segment = np.zeros(len(transcript.turns), np.intp)
    segment[starts] = 1
    letters = string.ascii_uppercase
    return transcript.with_topics([letters[at] for at in np.cumsum(segment)])


def cohesion(texts: Sequence[str], block: int = BLOCK) -> Doubles:
    """Return the similarity of the words around each gap between turns (T − 1,), in [0, 1].

    It is the cosine of the weighted word counts of up to `block` turns on each side.
    """
    check_count("block", block)
    block = min(block, len(texts))
    words = [[text[start:end].casefold() for start, end in word_spans(text)] for text in texts]
    vocabulary = {word: at for at, word in enumerate(sorted({w for turn in words for w in turn}))}
    turns = [
        np.array([vocabulary[word] for word in turn if word[0].isalnum()], np.intp)
        for turn in words
    ]
    turns_with = np.bincount(np.concatenate([*map(np.unique, turns)]), minlength=len(vocabulary))
    weights = np.log((len(texts) + 1) / np.maximum(turns_with, 1))
    similarity = np.zeros(max(len(texts) - 1, 0))
    # Counts before the block, before the gap and before the end of the block after it.
    sums = np.zeros((3, len(vocabulary)))
    for gap in range(1 - block, len(texts)):
        for count, turn in zip(sums, (gap - block - 1, gap - 1, gap + block - 1), strict=True):
            if 0 <= turn < len(texts):
                np.add.at(count, turns[turn], 1)
        if gap > 0:
            before, after = np.diff(sums * weights, axis=0)
            similarity[gap - 1] = cosine(before, after)
    return similarity


def boundaries(similarity: Doubles) -> list[int]:
    """Return the turns that begin a topic: up to 25 valleys deeper than mean + σ/2 of all gaps.

    A gap's depth is the rise of similarity to the nearest peaks on both sides.
    """
    gaps = range(len(similarity))
    depth = np.array(
        [
            _climb(similarity[: gap + 1][::-1]) + _climb(similarity[gap:]) - 2 * similarity[gap]
            for gap in gaps
        ]
    )
    valley = [similarity[gap] <= similarity[max(gap - 1, 0) : gap + 2].min() for gap in gaps]
    if not depth.any():
        return []
    deep = np.flatnonzero(np.array(valley) & (depth > depth.mean() + depth.std() / 2))
    most = len(string.ascii_uppercase) - 1
    return sorted(int(gap) + 1 for gap in sorted(deep, key=lambda gap: -depth[gap])[:most])


def _climb(values: Doubles) -> float:
    """Return the height of the first peak from here."""
    falls = np.flatnonzero(np.diff(values) < 0)
    return float(values[falls[0]] if falls.size else values[-1])
