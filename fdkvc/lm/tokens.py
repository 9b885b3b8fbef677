"""Tokens: words as a model reads and writes them, and the marks that say whose they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fdkvc.attention import SPEAKERS, Floats
from fdkvc.corpora.model_text import Passage, Writer
from fdkvc.corpora.tokenizer_file import FILE, as_value_error, stderr_silenced
from fdkvc.corpora.transcripts import word_numbers
from fdkvc.corpora.word_frequencies import surprisal_in

MARKS: Mapping[Writer, str] = {"user": "<user>", "system": "<system>", "call": "<call>"}
END = "<end>"
"""Tokens that a model may know for the beginning of a passage and for its end."""


@dataclass(frozen=True, eq=False)
class Tokens:
    """A tokenizer, and how a passage is laid out in tokens.

    A model that knows `MARKS` and `END` gets those. Another gets a line for each passage, which
    begins with its writer and a colon.

    Attributes
    ----------
    tokenizer : the library's
    first : tuple of int
        What the tokenizer puts before any text.
    marks : mapping of writer to tuple of int
    end : int
    """

    tokenizer: Any
    first: tuple[int, ...]
    marks: Mapping[Writer, tuple[int, ...]]
    end: int

    def encode(self, text: str) -> tuple[tuple[int, ...], tuple[tuple[int, int], ...]]:
        """Return the ids of a text and the characters that each stands for; words are no marks."""
        with as_value_error(f"the model's tokenizer cannot read {text[:40]!r}"):
            encoded = self.tokenizer.encode(text, add_special_tokens=False)
        return tuple(encoded.ids), tuple(encoded.offsets)

    def encode_passage(self, passage: Passage) -> EncodedPassage:
        """Return a passage in tokens."""
        ids, spans = self.encode(passage.text)
        mark = self.marks[passage.writer]
        none = ((0, 0),)
        return EncodedPassage(passage, (*mark, *ids, self.end), (*none * len(mark), *spans, *none))

    def text(self, ids: Sequence[int]) -> str:
        """Return what ids say, the marks left out."""
        with as_value_error("the model's tokenizer cannot write what the model says"):
            return str(self.tokenizer.decode(list(ids), skip_special_tokens=True))

    def said(self, ids: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return of what word each token of a passage is, and who says it.

        Returns
        -------
        (list of int, list of int)
            The `fdkvc.attention.word_number`, 0 for none, and the place in
            `fdkvc.attention.SPEAKERS`, −1 where the passage does not begin with a mark.
        """
        ends = [len(self.text(ids[: at + 1])) for at in range(len(ids))]
        words = word_numbers(self.text(ids), zip([0, *ends], ends, strict=False))
        first = len(self.first) if tuple(ids[: len(self.first)]) == self.first else 0
        writers = [
            writer
            for writer, mark in self.marks.items()
            if tuple(ids[first : first + len(mark)]) == mark
        ]
        speaker = SPEAKERS.index("user" if writers == ["user"] else "system") if writers else -1
        return words, [speaker] * len(ids)

    def rarity(self, vocabulary: int) -> Floats:
        """Return how surprising each of so many tokens is by itself, in nats (V,).

        It is how rare the first word of its text is, wherever it stands; see
        `fdkvc.corpora.word_frequencies`. A piece of a rare word is as rare as that word.
        """
        texts = [self.text([token]) for token in range(vocabulary)]
        return np.array([surprisal_in(text, [(0, len(text))])[0] for text in texts], np.float32)


@dataclass(frozen=True)
class EncodedPassage:
    """A passage in tokens, its mark and its end included.

    Attributes
    ----------
    passage : Passage
    ids : tuple of int
    spans : tuple of (start, end)
        The characters of the passage's text that each token stands for; equal where it is none.
    """

    passage: Passage
    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]

    def tokens_of(self, start: int, end: int) -> tuple[int, ...]:
        """Return the places of the tokens that stand for any of these characters."""
        return tuple(
            at for at, (low, high) in enumerate(self.spans) if max(low, start) < min(high, end)
        )


def load_tokens(folder: Path, vocabulary: int) -> Tokens:
    """Read the tokenizer of a model that knows so many tokens.

    Raises
    ------
    ValueError
        In a sentence that names the file and what is wrong with it.
    """
    from tokenizers import Tokenizer

    path = folder / FILE
    if not path.is_file():
        raise ValueError(f"there is no file {FILE}")
    with stderr_silenced(), as_value_error(f"{FILE} cannot be read"):
        tokenizer = Tokenizer.from_file(str(path))
        known = tokenizer.get_vocab()
    highest = max(known.values(), default=0)
    if highest >= vocabulary:
        raise ValueError(f"{FILE} has the token {highest}, but there are {vocabulary:,}")

    def ids(text: str) -> Any:
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    with stderr_silenced(), as_value_error(f"{FILE} cannot be used"):
        tokenizer.encode_special_tokens = True  # or a person could write a mark
        tokenizer.no_padding()
        tokenizer.no_truncation()
        ids("a")
        for token in range(min(vocabulary, 1000)):
            tokenizer.decode([token])
        first = tuple(tokenizer.encode("").ids)
        if known.keys() >= {*MARKS.values(), END}:
            marks = {writer: (known[mark],) for writer, mark in MARKS.items()}
            end = (known[END],)
        else:
            marks = {writer: ids(f"{writer.capitalize()}:") for writer in MARKS}
            end = ids("\n")[-1:]
    if not (end and all(marks.values())):
        raise ValueError("its tokenizer has no tokens for a line that begins with a name")
    return Tokens(tokenizer, first, marks, *end)
