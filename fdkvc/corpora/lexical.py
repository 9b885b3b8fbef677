"""The lexical embedding: a random vector for each word, without any model.

The vector is seeded by a hash of the word, so a word has the same vector everywhere, and different
words are unrelated. Queries, keys and values are the paper's random projections (Section 4.1);
surprisal comes from word frequencies. This shows how policies handle real turns, repeated words and
real evidence, but has no notion of meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import overload

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from fdkvc.attention import Floats
from fdkvc.corpora.recordings import Recording, Token
from fdkvc.corpora.transcripts import Transcript, word_spans
from fdkvc.corpora.word_frequencies import word_surprisal
from fdkvc.limits import MAX_CACHED_WORDS, MAX_NAME_CHARACTERS
from fdkvc.parameters import SEED
from fdkvc.synthetic.scenarios import World

LEXICAL = "lexical embedding"
"""How `Recording.source` begins."""


def lexical_recording(
    transcript: Transcript, seed: int = 0, world: World | None = None
) -> Recording:
    """Give each word and punctuation mark of a dialog a random vector.

    Vectors and projections come from the seed, which is at least 0, and are the same for all
    dialogs; dimensions are those of the world.

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
            for start, end in word_spans(turn.text)
        )
        for turn in transcript.turns
    )
    words: dict[str, int] = {}  # each once: a long dialog repeats most of them
    of_word = [words.setdefault(token.text, len(words)) for turn in tokens for token in turn]
    embeddings = np.stack([word_vector(word, seed, world.dimension) for word in words])[of_word]
    projections = _projections(seed, world.dimension, world.head_dimension)
    queries, keys, values = (embeddings @ projections)[:, None]
    return Recording(
        transcript,
        tokens,
        embeddings,
        queries,
        keys,
        values,
        heads=(0,),
        source=f"{LEXICAL}, seed {seed}{transcript.source_note}",
        surprisal=np.array([*map(word_surprisal, words)], np.float32)[of_word],
    )


class LexicalRecordings(Sequence[Recording]):
    """Lexical recordings of dialogs, computed on access and not cached; see `lexical_recording`.

    Vectors take a hundred times as much memory as the words.
    """

    def __init__(self, transcripts: Sequence[Transcript], seed: int = 0) -> None:
        SEED.check(seed, "seed")
        self.transcripts, self._seed = transcripts, seed

    def __len__(self) -> int:
        return len(self.transcripts)

    @overload
    def __getitem__(self, at: int) -> Recording: ...

    @overload
    def __getitem__(self, at: slice) -> LexicalRecordings: ...

    def __getitem__(self, at: int | slice) -> Recording | LexicalRecordings:
        if isinstance(at, slice):
            return LexicalRecordings(self.transcripts[at], self._seed)
        return lexical_recording(self.transcripts[at], self._seed)


@lru_cache(maxsize=MAX_CACHED_WORDS)
def word_vector(word: str, seed: int = 0, dimension: int = 64) -> Floats:
    """Return the unit vector of a word (d,), ignoring case.

    Its direction is drawn uniformly, seeded by a hash of the word and by the seed.

    Examples
    --------
    >>> bool((word_vector("Rome") == word_vector("rome")).all())
    True
    >>> abs(float(word_vector("Rome") @ word_vector("Paris"))) < 0.5
    True
    """
    digest = hashlib.sha256(word.casefold().encode("utf-8", "replace")).digest()
    entropy = np.frombuffer(seed.to_bytes(4, "little") + digest, "<u4")
    drawn = Generator(SFC64(SeedSequence(entropy))).standard_normal(dimension, np.float32)
    vector: Floats = drawn / np.sqrt(drawn @ drawn)
    vector.flags.writeable = False
    return vector


@lru_cache(maxsize=4)
def _projections(seed: int, dimension: int, head_dimension: int) -> Floats:
    """Draw W_Q, W_K and W_V (3, d, h) as in the paper."""
    generator = Generator(SFC64(SeedSequence(seed)))
    drawn: Floats = generator.standard_normal((3, dimension, head_dimension), np.float32)
    return drawn * np.float32(dimension**-0.5)
