"""The lexical embedding: a random vector for each word, without any model.

The vector is seeded by a hash of the word, so a word has the same vector everywhere, and different
words are unrelated. Queries, keys and values are the paper's random projections (Section 4.1);
surprisal comes from word frequencies. This shows how policies handle real turns, repeated words and
real evidence, but has no notion of meaning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence

from fdkvc.core.attention import Floats
from fdkvc.core.limits import MAX_CACHED_WORDS, MAX_NAME_CHARACTERS
from fdkvc.core.parameters import SEED
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.scripts import word_spans
from fdkvc.core.token_traits import word_surprisal
from fdkvc.core.transcripts import Transcript
from fdkvc.synthetic.scenarios import World

LEXICAL = "lexical embedding"
"""How `Recording.source` begins."""


def lexical_recording(transcript: Transcript, seed: int = 0) -> Recording:
    """Give each word and punctuation mark of a dialog a random vector.

    Vectors and projections come from the seed, which is at least 0, and are the same for all
    dialogs; dimensions are those of the synthetic ones.

    Examples
    --------
    >>> from fdkvc.core.transcripts import Turn
    >>> dialog = Transcript("example", (Turn("User", "Hello there."), Turn("System", "hello")))
    >>> recording = lexical_recording(dialog)
    >>> [[token.text for token in turn] for turn in recording.tokens]
    [['Hello', 'there', '.'], ['hello']]
    >>> bool((recording.embeddings[0] == recording.embeddings[3]).all())
    True
    """
    SEED.check(seed, "seed")
    world = World()
    tokens = tuple(tuple(_tokens(turn.text)) for turn in transcript.turns)
    words: dict[str, int] = {}  # each once: a long dialog repeats most of them
    of_word = [words.setdefault(row.text, len(words)) for row in chain.from_iterable(tokens)]
    embeddings = word_vectors([*words], seed, world.dimension)[of_word]
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


def _tokens(text: str) -> Iterator[Token]:
    for start, end in word_spans(text):
        yield Token(text[start:end][:MAX_NAME_CHARACTERS], start, end)


class LexicalRecordings(Sequence[Recording]):
    """Lexical recordings of dialogs, computed on access; see `lexical_recording`.

    Vectors take a hundred times as much memory as the words, so only the last is kept.
    """

    def __init__(self, transcripts: Sequence[Transcript], seed: int = 0) -> None:
        SEED.check(seed, "seed")
        self.transcripts, self._seed = transcripts, seed

    def __len__(self) -> int:
        return len(self.transcripts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LexicalRecordings(self.transcripts[index], self._seed)
        return _last_recording(self.transcripts[index], self._seed)


@lru_cache(maxsize=1)
def _last_recording(transcript: Transcript, seed: int) -> Recording:
    return lexical_recording(transcript, seed)


def word_vectors(words: Sequence[str], seed: int = 0, dimension: int = 64) -> Floats:
    """Return the unit vectors of words (n, d), ignoring case.

    Their directions are drawn uniformly, each seeded by a hash of the word and by the seed.
    """
    vectors = [_word_vector(word.casefold(), seed, dimension) for word in words]
    return np.array(vectors, np.float32).reshape(-1, dimension)


@lru_cache(maxsize=MAX_CACHED_WORDS)
def _word_vector(word: str, seed: int, dimension: int) -> Floats:
    """Return the unit vector of a word in lower case (d,)."""
    digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
    entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
    vector = Generator(SFC64(SeedSequence(entropy))).standard_normal(dimension, np.float32)
    return np.asarray(vector / np.sqrt(vector @ vector))


@lru_cache(maxsize=4)
def _projections(seed: int, dimension: int, head_dimension: int) -> Floats:
    """Draw W_Q, W_K and W_V (3, d, h) as in the paper."""
    generator = Generator(SFC64(SeedSequence(seed)))
    drawn = generator.standard_normal((3, dimension, head_dimension), np.float32)
    return drawn * np.float32(dimension**-0.5)
