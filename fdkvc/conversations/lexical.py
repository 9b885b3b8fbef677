"""The lexical embedding: a random vector for each word, without any model.

The vector is seeded by a hash of the word, so a word has the same vector everywhere, and different
words are unrelated. Queries, keys and values are the paper's random projections of it (Section
4.1); surprisal comes from word frequencies. This shows how policies handle real turns, repeated
words and real evidence, but it has no notion of meaning.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from random import Random
from threading import Lock
from typing import Any, Protocol

import numpy as np
from numpy.random import SFC64, Generator, SeedSequence
from numpy.typing import NDArray

from fdkvc.core.attention import Floats
from fdkvc.core.limits import MAX_CACHED_WORDS, MAX_KEPT_TOKENS, MAX_NAME_CHARACTERS
from fdkvc.core.parameters import SEED
from fdkvc.core.recordings import Recording, Token
from fdkvc.core.scripts import word_spans
from fdkvc.core.token_traits import text_surprisal
from fdkvc.core.transcripts import Transcript
from fdkvc.runs.workers import cores
from fdkvc.synthetic.scenarios import World

LEXICAL = "lexical embedding"
"""How `Recording.source` begins."""


class Encoder(Protocol):
    """Cuts a dialog into the tokens of a model; it can be pickled."""

    @property
    def name(self) -> str:
        """The name of the model."""

    def __hash__(self) -> int: ...

    def turns(self, transcript: Transcript) -> tuple[tuple[Token, ...], ...]:
        """Return the tokens of each turn, with the marks of a chat template."""

    def sizes(self, transcript: Transcript) -> Sequence[int]:
        """Return the number of tokens of each turn."""

    def spans(self, text: str) -> NDArray[Any]:
        """Return where the tokens of a text begin and end (n, 2)."""


def lexical_recording(
    transcript: Transcript, seed: int = 0, encoding: Encoder | None = None
) -> Recording:
    """Give each token of a dialog a random vector: by default, each word and punctuation mark.

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
    if encoding is None:
        tokens = tuple(tuple(_tokens(turn.text)) for turn in transcript.turns)
        unit = ""
    else:
        tokens = encoding.turns(transcript)
        unit = f", tokens of {encoding.name}"
    return embedded(transcript, tokens, seed, f"{LEXICAL}, seed {seed}{unit}")


def embedded(
    transcript: Transcript,
    tokens: tuple[tuple[Token, ...], ...],
    seed: int = 0,
    source: str = "",
) -> Recording:
    """Give each of these tokens a random vector; see `lexical_recording`."""
    SEED.check(seed, "seed")
    world = World()
    # Compute the vector of each different word once: a long dialog repeats most of them.
    words: dict[str, int] = {}
    of_word = []
    for token in chain.from_iterable(tokens):
        # A model's tokens begin with the space before a word, which makes no other word of it.
        word = token.text.strip()
        of_word.append(words.setdefault(word, len(words)))
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
        source=f"{source}{transcript.source_note}",
        surprisal=np.array([*map(text_surprisal, words)], np.float32)[of_word],
    )


def _tokens(text: str) -> Iterator[Token]:
    for start, end in word_spans(text):
        yield Token(text[start:end][:MAX_NAME_CHARACTERS], start, end)


class LexicalRecordings(Sequence[Recording]):
    """Lexical recordings of dialogs, computed on access; see `lexical_recording`.

    Vectors take a hundred times as much memory as the words, so few are kept, see `Kept`.
    """

    def __init__(
        self, transcripts: Sequence[Transcript], seed: int = 0, encoding: Encoder | None = None
    ) -> None:
        SEED.check(seed, "seed")
        self.transcripts = transcripts
        self.seed = seed
        self.encoding = encoding
        self._sizes: list[Sequence[int]] = []

    def __len__(self) -> int:
        return len(self.transcripts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            part = LexicalRecordings(self.transcripts[index], self.seed, self.encoding)
            part._sizes = self._sizes[index]
            return part
        return KEPT.recording(self.transcripts[index], self.seed, self.encoding)

    @property
    def sizes(self) -> Sequence[Sequence[int]]:
        """The number of tokens of each turn of each dialog, computed without vectors."""
        if not self._sizes:
            size = attrgetter("word_counts") if self.encoding is None else self.encoding.sizes
            self._sizes += map(size, self.transcripts)
        return self._sizes


class Kept:
    """Lexical recordings that were computed before, of at most `most` tokens in a process.

    A search reads all dialogs of a file again and again, in the same order. So what leaves for lack
    of room is drawn at random: the oldest would be the one that is read next.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.tokens = 0
        self._recordings: dict[tuple[Transcript, int, Encoder | None], Recording] = {}
        self._draws = Random(0)
        self._lock = Lock()

    def recording(
        self, transcript: Transcript, seed: int, encoding: Encoder | None
    ) -> Recording:
        """Return a kept recording, or compute it and keep it; see `lexical_recording`."""
        key = transcript, seed, encoding
        found = self._recordings.get(key)
        if found is None:
            found = lexical_recording(*key)
            with self._lock:
                if key not in self._recordings:
                    self._keep(key, found)
        return found

    def clear(self) -> None:
        """Keep none of them; whoever needs one computes it again."""
        with self._lock:
            self._recordings.clear()
            self.tokens = 0

    def _keep(self, key: tuple[Transcript, int, Encoder | None], recording: Recording) -> None:
        self.tokens += recording.starts[-1]
        while self.tokens > self.most and self._recordings:
            dropped = self._recordings.pop(self._draws.choice([*self._recordings]))
            self.tokens -= dropped.starts[-1]
        self._recordings[key] = recording


KEPT = Kept(MAX_KEPT_TOKENS // max(2, cores()))
"""Those of this process, one worker among as many as there are cores."""


def word_vectors(words: Sequence[str], seed: int = 0, dimension: int = 64) -> Floats:
    """Return the unit vectors of words (n, d), ignoring case.

    Their directions are drawn uniformly, each seeded by a hash of the word and by the seed.
    """
    vectors = [_word_vector(word.casefold(), seed, dimension) for word in words]
    return np.array(vectors, np.float32).reshape(-1, dimension)


@lru_cache(maxsize=MAX_CACHED_WORDS)
def _word_vector(word: str, seed: int, dimension: int) -> Floats:
    """Return the unit vector of a word in lower case (d,)."""
    # Not Python's `hash`, which differs between processes.
    digest = hashlib.sha256(word.encode("utf-8", "replace")).digest()
    entropy = [seed, *np.frombuffer(digest, "<u4").tolist()]
    vector = Generator(SFC64(SeedSequence(entropy))).standard_normal(dimension, np.float32)
    return np.asarray(vector / np.sqrt(vector @ vector))


@lru_cache(maxsize=4)
def _projections(seed: int, dimension: int, head_dimension: int) -> Floats:
    """Draw W_Q, W_K and W_V (3, d, h) as in the paper."""
    generator = Generator(SFC64(SeedSequence(seed)))
    drawn = generator.standard_normal((3, dimension, head_dimension), np.float32)
    return drawn * np.float32(dimension**-0.5)  # so that lengths stay about the same
