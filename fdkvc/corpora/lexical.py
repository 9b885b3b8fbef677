"""The lexical embedding: a vector for each word by its letters alone, without any model.

A word's hash seeds the draw of a random direction, so a word has the same vector everywhere and
two words have nothing to do with each other. Queries, keys and values are the paper's random
projections of it (Section 4.1). A word's surprisal is that of its frequency. What it shows is how
policies deal with real turns, real repetitions of words, and real evidence; of meaning it knows
nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from fdkvc.attention import Floats
from fdkvc.corpora.recordings import Recording, Token, as_rows
from fdkvc.corpora.transcripts import Transcript, words
from fdkvc.corpora.word_frequencies import word_surprisal
from fdkvc.limits import MAX_CACHED_WORDS, MAX_NAME_CHARACTERS
from fdkvc.parameters import SEED
from fdkvc.synthetic.scenarios import World

LEXICAL = "lexical embedding"
"""How the source of such a recording begins."""


def lexical_recording(
    transcript: Transcript, seed: int = 0, world: World | None = None
) -> Recording:
    """Give each word and punctuation mark of a dialog a vector, and project it at random.

    Parameters
    ----------
    seed : int
        Of the vectors and of the projections, which are the same for all dialogs.
    world : World, optional
        For its dimensions.

    Raises
    ------
    ValueError
        If the seed is negative.

    Examples
    --------
    >>> from fdkvc.corpora.transcripts import Turn
    >>> dialog = Transcript("own", (Turn("User", "Hello there."), Turn("System", "hello")))
    >>> recording = lexical_recording(dialog)
    >>> [[token.text for token in turn] for turn in recording.tokens]
    [['Hello', 'there', '.'], ['hello']]
    >>> bool((recording.embeddings[0] == recording.embeddings[3]).all())
    True
    """
    SEED.check(seed, "seed")
    world = world or World()
    tokens = tuple(
        tuple(
            Token(turn.text[start:end][:MAX_NAME_CHARACTERS], start, end)
            for start, end in words(turn.text)
        )
        for turn in transcript.turns
    )
    embeddings = np.stack(
        [word_vector(token.text, seed, world.dimension) for turn in tokens for token in turn]
    )
    queries, keys, values = embeddings @ _projections(seed, world.dimension, world.head_dimension)
    return Recording(
        transcript,
        tokens,
        embeddings,
        as_rows(queries),
        as_rows(keys),
        as_rows(values),
        heads=(0,),
        source=f"{LEXICAL}, seed {seed}{transcript.source_note}",
        surprisal=np.array(
            [word_surprisal(token.text) for turn in tokens for token in turn], np.float32
        ),
    )


class LexicalRecordings(Sequence[Recording]):
    """Dialogs as lexical recordings, each made when it is asked for, and not kept.

    The vectors of a word take a hundred times as much memory as the word.

    Parameters
    ----------
    transcripts : sequence of Transcript
    seed : int
        As for `lexical_recording`.

    Raises
    ------
    ValueError
        If the seed is negative.
    """

    def __init__(self, transcripts: Sequence[Transcript], seed: int = 0) -> None:
        SEED.check(seed, "seed")
        self._transcripts, self._seed = transcripts, seed

    def __len__(self) -> int:
        return len(self._transcripts)

    @overload
    def __getitem__(self, at: int) -> Recording: ...

    @overload
    def __getitem__(self, at: slice) -> LexicalRecordings: ...

    def __getitem__(self, at: int | slice) -> Recording | LexicalRecordings:
        if isinstance(at, slice):
            return LexicalRecordings(self._transcripts[at], self._seed)
        return lexical_recording(self._transcripts[at], self._seed)


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_vector(word: str, seed: int = 0, dimension: int = 64) -> Floats:
    """Return the unit vector of a word (d,), whatever the case of its letters.

    Its direction is uniform over all directions, drawn from a hash of the word and the seed.

    Examples
    --------
    >>> bool((word_vector("Rome") == word_vector("rome")).all())
    True
    >>> abs(float(word_vector("Rome") @ word_vector("Paris"))) < 0.5
    True
    """
    digest = hashlib.sha256(word.casefold().encode("utf-8", "replace")).digest()
    entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
    drawn = Generator(SFC64(SeedSequence(entropy))).standard_normal(dimension, np.float32)
    vector: Floats = drawn / np.linalg.norm(drawn)
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=4)
def _projections(seed: int, dimension: int, head_dimension: int) -> Floats:
    """W_Q, W_K and W_V (3, d, h), as the paper draws them."""
    generator = Generator(SFC64(SeedSequence(seed)))
    drawn: Floats = generator.standard_normal((3, dimension, head_dimension), np.float32)
    return drawn * np.float32(dimension**-0.5)
